"""Writes the events of a run as a UI message stream (version 1), which builds one message.

| in the log | in the stream |
|---|---|
| a step | `start-step` … `finish-step` |
| text, reasoning | `text-…`, `reasoning-…`: one part per block |
| a call that grows | `tool-input-start`, `tool-input-delta`, `tool-input-available` |
| a call that the client runs | `tool-input-available` again, without `providerExecuted`, when the run waits for it |
| the progress of a tool, its end | `tool-output-available` with `preliminary`; `tool-output-…` |
| a call that waits for approval | `tool-approval-request`; in version 7 also `tool-approval-response` |
| a call in an inner run that waits | the same, as a dynamic tool; the rest of an inner run is not shown |
| a withdrawn response | in version 7 `reset-step`; in version 6 `data-retry`, and another step |
| a wait | `finish` with `tool-calls`; the stream that continues after the answer has no `start` |

The stream is a function of the events: to continue after a number, feed the events before it and drop their chunks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Literal, assert_never

import msgspec

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
from penstock.serve.ai_sdk.call_parts import CallParts, Chunk, Version
from penstock.serve.ai_sdk.parts import finish_reason, usage_of, user_parts
from penstock.serve.public_events import PARKED, public_end, shortened

DONE = b"data: [DONE]\n\n"
STOPPED = "the server stopped before the answer was complete: load the chat again"
LOST = "the server lost a part of this answer: load the chat again"


class TextParts:
    """The texts of a message. A block that is interrupted by another one continues in a new part."""

    def __init__(self) -> None:
        self._open: tuple[str, int, str] | None = None  # the kind, the block and the id of the part that grows
        self._parts = 0

    def new_id(self) -> str:
        self._parts += 1
        return str(self._parts)

    def grow(self, kind: str, block: int, text: str) -> Iterator[Chunk]:
        if self._open is None or self._open[:2] != (kind, block):
            yield from self.close()
            self._open = kind, block, self.new_id()
            yield {"type": f"{kind}-start", "id": self._open[2]}
        if text:
            yield {"type": f"{kind}-delta", "id": self._open[2], "delta": text}

    def close(self) -> Iterator[Chunk]:
        if self._open is not None:
            kind, _, id = self._open
            self._open = None
            yield {"type": f"{kind}-end", "id": id}

    def withdraw(self) -> None:
        self._open = None


class UIMessageEncoder:
    """The message of one run. Tools in `declared` have parts of their own type (`tool-NAME`), others are dynamic."""

    can_reset = False

    def __init__(
        self, run_id: str, *, version: Version = 6, declared: Collection[str] = (), most: int = MEGABYTE
    ) -> None:
        self._run_id = run_id
        self._version = version
        self._most = most
        self._texts = TextParts()
        self._calls = CallParts(run_id, version, declared)
        self._is_in_step = False
        self._state: Literal["running", "waiting", "parked", "over"] = "running"

    def open(self) -> list[bytes]:
        """Nothing: the stream begins with the run."""
        return []

    def feed(self, events: Iterable[LogEvent]) -> list[bytes]:
        """The frames for these events."""
        return [self._frame(chunk) for event in events for chunk in self.chunks(event)]

    def close(self) -> list[bytes]:
        """The end of the stream: run finished, run waiting, or server shutting down."""
        return [self._frame(chunk) for chunk in self.last_chunks()] + ([DONE] if self._state != "running" else [])

    def chunks(self, event: LogEvent) -> Iterable[Chunk]:
        """The chunks for an event."""
        if isinstance(event, StreamChunk):
            return self._of_response(event) if getattr(event, "choice", 0) == 0 else ()
        self._state = "running"
        if isinstance(event, Waiting):
            self._state = "parked" if event.why else "waiting"
        return self._of_run(event)

    def last_chunks(self) -> Iterator[Chunk]:
        """The chunks that end the stream."""
        if self._state == "waiting":
            yield {"type": "finish", "finishReason": "tool-calls"}
        elif self._state in ("running", "parked"):
            yield {"type": "error", "errorText": STOPPED if self._state == "running" else PARKED}

    def _of_response(self, event: StreamChunk) -> Iterable[Chunk]:
        texts, calls = self._texts, self._calls
        match event:
            case Text() | Refusal():
                return texts.grow("text", event.block, event.text)
            case Reasoning():
                return texts.grow("reasoning", event.block, event.text)
            case ToolCallStart():
                return [*texts.close(), *calls.start(event)]
            case ToolCallDelta():
                return calls.grow(event)
            case ToolCall():
                return [*texts.close(), *calls.complete(event)]
            case ToolCallInvalid():
                return [*texts.close(), *calls.refuse(event)]
            case Retry():
                return self._withdraw()
            case (
                ToolCallClosed() | Opaque() | Usage() | Finish() | Error() | Unknown() | ArgumentDelta() | OutputDelta()
            ):
                return ()
            case _:
                assert_never(event)

    def _of_run(
        self, event: RunEvent | RunStart | Taken | Waiting | Forked | CallReviewed | ToolReturned
    ) -> Iterable[Chunk]:
        calls = self._calls
        match event:
            case RunStart():
                metadata = {"runId": self._run_id, "agent": event.agent}
                return [{"type": "start", "messageId": self._run_id, "messageMetadata": metadata}]
            case StepStart():
                return self._begin_step()
            case StepEnd():
                return self._texts.close()
            case ToolStart():
                return calls.run(event)
            case ToolProgress():
                return calls.report(event)
            case ToolEnd():
                return calls.end(event)
            case ApprovalRequest():
                return calls.ask(event)
            case Decision():
                return calls.decide(event)
            case Said():
                return self._steer(event)
            case Done():
                return self._end(event)
            case Waiting():
                return self._end_step()
            case Nested():
                return self._of_inner_run(event)
            case Reset():  # no chunk withdraws a whole message
                return [{"type": "error", "errorText": LOST}]
            case ToolResults() | OutputInvalid() | HistoryReplaced() | Taken():
                return ()
            case CallReviewed() | ToolReturned() | ToolPrepare() | Forked():
                return ()
            case _:
                assert_never(event)

    def _of_inner_run(self, event: Nested) -> Iterable[Chunk]:
        """The chunks for a sub-agent: a client sees its waiting calls."""
        match event.event:
            case ApprovalRequest():
                return self._calls.ask(event.event)
            case Decision():
                return self._calls.decide(event.event)
            case ToolEnd():
                return self._calls.settle(event.event)
            case _:
                return ()

    def _begin_step(self) -> Iterator[Chunk]:
        yield from self._end_step()
        self._is_in_step = True
        self._calls.begin_step()
        yield {"type": "start-step"}

    def _end_step(self) -> Iterator[Chunk]:
        yield from self._texts.close()
        if self._is_in_step:
            self._is_in_step = False
            yield {"type": "finish-step"}

    def _withdraw(self) -> Iterator[Chunk]:
        """Withdraw a response. Version 6 has no chunk for it: the parts stay, in their own step, with a mark."""
        calls = [*self._calls.withdraw()]
        if self._version == 7:
            self._texts.withdraw()
            yield {"type": "reset-step"}
            return
        yield from self._texts.close()
        yield from calls
        yield {"type": "data-retry", "data": {}}
        yield {"type": "finish-step"}
        yield {"type": "start-step"}

    def _steer(self, event: Said) -> Iterator[Chunk]:
        if self._version == 7:
            yield from self._texts.close()
            id = f"{self._run_id}.{self._texts.new_id()}"
            yield {"type": "steering-message", "id": id, "parts": user_parts(event.message)}

    def _end(self, event: Done) -> Iterator[Chunk]:
        self._state = "over"
        yield from self._texts.close()
        yield from self._calls.abandon()
        yield from self._end_step()
        why = public_end(event)
        metadata = {"usage": usage_of(event.usage), "reason": event.reason, **({"why": why} if why else {})}
        match event.reason:
            case "error" | "cut":
                yield {"type": "message-metadata", "messageMetadata": metadata}
                yield {"type": "error", "errorText": why}
            case "cancelled":
                yield {"type": "message-metadata", "messageMetadata": metadata}
                yield {"type": "abort", "reason": why}
            case "answered" | "length" | "refused" | "limit" | "stopped" | "paused":
                yield {"type": "finish", "finishReason": finish_reason(event.reason), "messageMetadata": metadata}
            case _:
                assert_never(event.reason)

    def _frame(self, chunk: Chunk) -> bytes:
        body = msgspec.json.encode(chunk)
        if len(body) > self._most:
            body = msgspec.json.encode(shortened(chunk, self._most))
        return b"data: %b\n\n" % body
