"""Writes the events of a run as AG-UI 1.0.

| in the log | in the stream |
|---|---|
| a step | `STEP_STARTED` … `STEP_FINISHED`; its text and its calls are one message |
| text, reasoning | `TEXT_MESSAGE_…`, `REASONING_…` |
| a call that grows, its result | `TOOL_CALL_START`, `TOOL_CALL_ARGS`, `TOOL_CALL_END`; `TOOL_CALL_RESULT` |
| the progress of a tool, its question | `CUSTOM` with the name `tool_progress`, `question` |
| a withdrawn response | `MESSAGES_SNAPSHOT` without it |
| a wait for approval | `RUN_FINISHED` with an interrupt per call |
| a wait for tools of the client | `RUN_FINISHED` with `pendingToolCallIds` |
| structured output | `STATE_SNAPSHOT` with `output` |

The stream is a function of the events: to continue after a number, feed the events before it and drop what they give.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Literal, assert_never

import msgspec
from msgspec import Struct

from penstock.asgi.limits import MEGABYTE
from penstock.events import (
    ArgumentDelta,
    Error,
    Finish,
    Opaque,
    OutputDelta,
    Reasoning,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    Usage,
)
from penstock.messages import ToolResult
from penstock.run.events import (
    ApprovalRequest,
    CallReviewed,
    Decision,
    Done,
    HistoryReplaced,
    LogEvent,
    Nested,
    OutputInvalid,
    Reset,
    RunEvent,
    RunStart,
    Said,
    StepEnd,
    StepStart,
    Taken,
    ToolEnd,
    ToolPrepare,
    ToolProgress,
    ToolResults,
    ToolReturned,
    ToolStart,
    Waiting,
)
from penstock.run.forked import Forked
from penstock.serve.ag_ui.ends import finished, parked, paused, stopped
from penstock.serve.ag_ui.messages import AGUIEvent, AGUIMessage, MessagesFold, content_of
from penstock.serve.public_events import shortened


class RunHead(Struct, frozen=True, kw_only=True):
    """The head of a stream: the ids that the client chose, and the messages that it has.

    `answered` are calls whose results the client has. With `is_snapshot`, the stream begins with the messages, because
    the client may have others. `has_output` if the agent has structured output.
    """

    run_id: str
    thread_id: str
    client_run_id: str
    messages: Sequence[AGUIMessage] = ()
    answered: Collection[str] = ()
    is_snapshot: bool = False
    has_output: bool = False


class AGUIEncoder:
    """The events of one run for one client."""

    can_reset = True

    def __init__(self, head: RunHead, most: int = MEGABYTE) -> None:
        self._head = head
        self._most = most
        self._parts = OpenParts(head.run_id)
        self._fold = MessagesFold()
        self._requests: dict[str, ApprovalRequest] = {}
        self._state: Literal["running", "waiting", "parked", "over"] = "running"

    def open(self) -> list[bytes]:
        """The start of the stream."""
        names = {"threadId": self._head.thread_id, "runId": self._head.client_run_id, "protocolVersion": "1.0"}
        start = {"type": "RUN_STARTED", **names, "metadata": {"runId": self._head.run_id}}
        return [self._frame(start), *([self._frame(self._snapshot())] if self._head.is_snapshot else [])]

    def feed(self, events: Iterable[LogEvent]) -> list[bytes]:
        """The frames for these events."""
        return [self._frame(item) for event in events for item in self.events(event)]

    def close(self) -> list[bytes]:
        """The end of the stream: run finished, run waiting, or server shutting down."""
        match self._state:
            case "over":
                return []
            case "waiting":
                return [self._frame(paused(self._head, [*self._requests.values()]))]
            case "parked":
                return [self._frame(parked())]
            case "running":
                return [self._frame(stopped())]

    def events(self, event: LogEvent) -> Iterator[AGUIEvent]:
        """The events of AG-UI for an event of a run."""
        if isinstance(event, StreamChunk):
            items = self._of_response(event) if getattr(event, "choice", 0) == 0 else ()
        else:
            self._state = "running"
            if isinstance(event, Waiting):
                self._state = "parked" if event.why else "waiting"
            items = self._of_run(event)
        for item in items:
            self._fold.add(item)
            if item["type"] != "TOOL_CALL_RESULT" or item["toolCallId"] not in self._head.answered:
                yield item

    def messages(self) -> list[AGUIMessage]:
        """The messages of the run so far."""
        return self._fold.build()

    def _of_response(self, event: StreamChunk) -> Iterable[AGUIEvent]:
        parts = self._parts
        match event:
            case Text() | Refusal():
                return parts.say(event.text)
            case Reasoning():
                return parts.think(event.block, event.text)
            case ToolCallStart():
                return parts.start_call(event.block, event.id, event.name)
            case ToolCallDelta():
                return parts.grow_call(event.block, event.piece)
            case ToolCall():
                text = (
                    event.arguments_raw if event.kind == "function" else msgspec.json.encode(event.arguments).decode()
                )
                return self._end_call(event.block, event.id, event.name, text or "{}")
            case ToolCallInvalid():
                return self._end_call(event.block, event.id, event.name, event.arguments_raw)
            case Retry():
                return self._withdraw(self._parts.prefix)
            case (
                ToolCallClosed() | Opaque() | Usage() | Finish() | Error() | Unknown() | ArgumentDelta() | OutputDelta()
            ):
                return ()
            case _:
                assert_never(event)

    def _of_run(
        self, event: RunEvent | RunStart | Taken | Waiting | Forked | CallReviewed | ToolReturned
    ) -> Iterable[AGUIEvent]:
        parts = self._parts
        match event:
            case StepStart():
                return parts.begin_step(event.step)
            case StepEnd():
                return parts.close()
            case ToolProgress():
                return [_custom("tool_progress", event.call_id, toolCallName=event.name, data=event.data)]
            case ToolEnd():
                return self._end_tool(event)
            case ApprovalRequest():
                return self._ask(event)
            case Decision():
                self._requests.pop(event.call_id, None)
                return ()
            case Said():
                return self._add_message(event)
            case Waiting():
                return parts.end_step()
            case Done():
                self._state = "over"
                return [*parts.end_step(), *finished(self._head, event)]
            case Nested(event=ApprovalRequest() as request):  # a question of a sub-agent
                return self._ask(request)
            case Nested():
                if isinstance(event.event, Decision | ToolEnd):
                    self._requests.pop(event.event.call_id, None)
                return ()
            case Reset():
                self._requests.clear()
                return self._withdraw(f"{self._head.run_id}.")
            case RunStart() | ToolStart() | ToolResults() | OutputInvalid() | HistoryReplaced() | Taken():
                return ()
            case CallReviewed() | ToolReturned() | ToolPrepare() | Forked():
                return ()
            case _:
                assert_never(event)

    def _end_call(self, block: int, id: str, name: str, arguments: str) -> Iterator[AGUIEvent]:
        """End a complete call, perhaps with other arguments than were streamed."""
        if self._parts.is_open(block):
            known = self._fold.arguments(id)
        else:
            yield from self._parts.start_call(block, id, name)
            known = ""
        if not known:
            yield from self._parts.grow_call(block, arguments)
        yield from self._parts.end_call(block)
        if known not in ("", arguments):
            self._fold.correct(id, arguments)
            yield self._snapshot()

    def _withdraw(self, prefix: str) -> Iterator[AGUIEvent]:
        """Withdraw messages. Calls of the response get results, so that no client runs them, and all is removed."""
        yield from self._parts.close()
        for id in self._fold.open_calls(self._parts.message_id):
            yield self._result(id, "the model withdrew this call")
        self._fold.withdraw(prefix)
        yield self._snapshot()

    def _end_tool(self, event: ToolEnd) -> Iterator[AGUIEvent]:
        self._requests.pop(event.call_id, None)
        if event.ending != "discarded":
            is_error = event.ending != "done" or event.result.is_error
            yield self._result(event.call_id, _content(event.result), is_error=is_error)

    def _result(self, call_id: str, content: Any, *, is_error: bool = True) -> AGUIEvent:
        names = {"messageId": f"{self._head.run_id}.{call_id}", "toolCallId": call_id, "role": "tool"}
        metadata = {"metadata": {"isError": True}} if is_error else {}
        return {"type": "TOOL_CALL_RESULT", **names, "content": content, **metadata}

    def _ask(self, event: ApprovalRequest) -> Iterator[AGUIEvent]:
        if event.kind == "input":
            yield _custom("question", event.call_id, toolCallName=event.name, question=event.arguments)
        else:
            self._requests[event.call_id] = event

    def _add_message(self, event: Said) -> Iterator[AGUIEvent]:
        """Add a message of the run. Its id is its place among the messages so far."""
        yield from self._parts.close_texts()
        id = f"{self._head.run_id}.said.{len(self._fold.build())}"
        yield {"type": "TEXT_MESSAGE_START", "messageId": id, "role": "user"}
        if event.message.text:
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": event.message.text}
        yield {"type": "TEXT_MESSAGE_END", "messageId": id}

    def _snapshot(self) -> AGUIEvent:
        return {"type": "MESSAGES_SNAPSHOT", "messages": [*self._head.messages, *self._fold.build()]}

    def _frame(self, event: AGUIEvent) -> bytes:
        body = msgspec.json.encode(event)
        if len(body) > self._most and event["type"] != "MESSAGES_SNAPSHOT":  # a part of it would remove messages
            body = msgspec.json.encode(shortened(event, self._most))
        return b"data: %b\n\n" % body


def _custom(name: str, call_id: str, **value: Any) -> AGUIEvent:
    return {"type": "CUSTOM", "name": name, "value": {"toolCallId": call_id, **value}}


def _content(result: ToolResult) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in result.content):
        return result.text
    return [content for part in result.content if (content := content_of(part)) is not None]


class OpenParts:
    """The parts that have begun but not ended for a client. Message ids are made from the run and the step."""

    def __init__(self, run_id: str) -> None:
        self.step = 0
        self._run_id = run_id
        self._is_in_step = False
        self._text: str | None = None
        self._reasoning: tuple[int, str] | None = None  # the block, and the id of its message
        self._calls: dict[int, str] = {}  # by block

    @property
    def message_id(self) -> str:
        """The id of the assistant's message of this step."""
        return f"{self.prefix}answer"

    @property
    def prefix(self) -> str:
        """The prefix of all message ids of this step, except results."""
        return f"{self._run_id}.{self.step}."

    def begin_step(self, step: int) -> Iterator[AGUIEvent]:
        yield from self.end_step()
        self.step, self._is_in_step = step, True
        yield {"type": "STEP_STARTED", "stepName": f"step {step}"}

    def end_step(self) -> Iterator[AGUIEvent]:
        yield from self.close()
        if self._is_in_step:
            self._is_in_step = False
            yield {"type": "STEP_FINISHED", "stepName": f"step {self.step}"}

    def close(self) -> Iterator[AGUIEvent]:
        """End all open parts of this step."""
        yield from self.close_texts()
        for block in [*self._calls]:
            yield from self.end_call(block)

    def close_texts(self) -> Iterator[AGUIEvent]:
        if self._text is not None:
            id, self._text = self._text, None
            yield {"type": "TEXT_MESSAGE_END", "messageId": id}
        if self._reasoning is not None:
            (_, id), self._reasoning = self._reasoning, None
            yield {"type": "REASONING_MESSAGE_END", "messageId": id}
            yield {"type": "REASONING_END", "messageId": id}

    def say(self, text: str) -> Iterator[AGUIEvent]:
        if self._text is None:
            yield from self.close_texts()
            self._text = self.message_id
            yield {"type": "TEXT_MESSAGE_START", "messageId": self._text, "role": "assistant"}
        if text:
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._text, "delta": text}

    def think(self, block: int, text: str) -> Iterator[AGUIEvent]:
        if self._reasoning is None or self._reasoning[0] != block:
            yield from self.close_texts()
            self._reasoning = block, f"{self.prefix}reasoning.{block}"
            yield {"type": "REASONING_START", "messageId": self._reasoning[1]}
            yield {"type": "REASONING_MESSAGE_START", "messageId": self._reasoning[1], "role": "reasoning"}
        if text:
            yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._reasoning[1], "delta": text}

    def start_call(self, block: int, id: str, name: str) -> Iterator[AGUIEvent]:
        yield from self.close_texts()
        self._calls[block] = id
        names = {"toolCallId": id, "toolCallName": name or "unknown"}
        yield {"type": "TOOL_CALL_START", **names, "parentMessageId": self.message_id}

    def is_open(self, block: int) -> bool:
        """Whether this block is an open call."""
        return block in self._calls

    def grow_call(self, block: int, piece: str) -> Iterator[AGUIEvent]:
        if block in self._calls and piece:
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": self._calls[block], "delta": piece}

    def end_call(self, block: int) -> Iterator[AGUIEvent]:
        if (id := self._calls.pop(block, None)) is not None:
            yield {"type": "TOOL_CALL_END", "toolCallId": id}
