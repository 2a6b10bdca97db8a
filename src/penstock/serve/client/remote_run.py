"""A run on a server as its reader sees it: `RemoteRun` in sync code, `AsyncRemoteRun` in async code.

Its events are those of a local run. A reader that leaves does not end the run.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from penstock.agent.async_hints import AsyncOnly
from penstock.agent.run_result import NOT_FINISHED, WITH_OUTPUT, RunResult, no_output
from penstock.errors import OutputError
from penstock.events import Reasoning, Refusal, Retry, Text, ToolCall, ToolCallInvalid, Unknown, Usage
from penstock.log.position import Position, parse_position
from penstock.messages import File, Image, Message, Part, ToolResult, user
from penstock.run.events import (
    ApprovalRequest,
    Decision,
    Done,
    EndReason,
    Nested,
    OutputInvalid,
    Reset,
    RunStart,
    Said,
    StepStart,
    StreamEvent,
    ToolEnd,
)
from penstock.serve.client.carriers import AsyncCarrier, Carrier
from penstock.serve.client.exchange import Exchange, follow, messages_of, request, run_path


class RemoteRunState:
    """The state of a run, from the events read so far."""

    def __init__(self, run_id: str, after: int | str = 0, thread: str = "") -> None:
        self.id = run_id
        self.thread = thread
        self.position = parse_position(after)
        """The position of the last event that was read: a later reader continues after it."""
        self.done: Done | None = None
        """The last event; None until the run has ended."""
        self._texts: list[str] = []
        self._requests: dict[str, ApprovalRequest] = {}
        self._shown: dict[str, str] = {}  # what a decision must name
        self._is_waiting = False
        self._pause: Done | None = None  # the end so far, if the run waits and `result` has returned

    @property
    def text(self) -> str:
        """What the model wrote in its last response, as far as it was read, however the run ended.

        Of a finished run with structured output, the JSON text of the output.
        """
        return self.done.output if self.done is not None else "".join(self._texts)

    @property
    def output(self) -> str:
        """The answer, or the JSON text of structured output; an `OutputError` as that of a local run."""
        if self._end is None:
            raise OutputError(NOT_FINISHED, self.text, reason="not finished")
        return self._result_at(self._end).output

    @property
    def usage(self) -> Usage:
        """The usage of all responses, once the run has finished or `result` has found it waiting."""
        return self._end.usage if self._end is not None else Usage()

    @property
    def cost(self) -> float | None:
        """What the run has cost in US dollars, once it has finished; None if that is not known."""
        return self.usage.cost

    @property
    def finish_reason(self) -> EndReason | None:
        """How the run ended, or `paused` if `result` has found it waiting; None until then."""
        return self._end.reason if self._end is not None else None

    @property
    def why(self) -> str:
        """Why the run ended, in a sentence; empty until then, or if there is no reason."""
        return self._end.why if self._end is not None else ""

    @property
    def messages(self) -> list[Message]:
        """The history of the run without instructions, once it has finished or `result` has found it waiting."""
        return [*self._end.messages] if self._end is not None else []

    @property
    def _end(self) -> Done | None:
        return self.done or self._pause

    @property
    def waiting(self) -> list[ApprovalRequest]:
        """The waiting calls: for a decision, a result, or an answer to a question."""
        return [*self._requests.values()]

    def _add(self, position: Position, public: dict[str, Any]) -> StreamEvent | None:
        """Add a received event; returns the event for the reader."""
        self.position, self._pause = position, None
        self._is_waiting = public.get("type") == "waiting"
        event = received_event(public)
        inner = event.event if isinstance(event, Nested) else event
        match inner:
            case ApprovalRequest():
                self._requests[inner.call_id] = inner
                sent = public["event"] if isinstance(event, Nested) else public
                self._shown[inner.call_id] = sent.get("shown", "")
            case ToolEnd() | Decision():
                self._requests.pop(inner.call_id, None)
            case _:
                pass
        match event:
            case StepStart() | Retry():
                self._texts.clear()
            case Text():
                self._texts.append(event.text)
            case Done():
                self.done = event
                self._requests.clear()
            case Reset():
                self._texts.clear()
                self._requests.clear()
                self._shown.clear()
            case _:
                pass
        return event

    def _result(self, tries: int) -> Exchange[RunResult[str]]:
        if self.done is None:
            state = yield from request("GET", run_path(self.id), tries=tries)
            messages = received_messages((yield from messages_of(self.id, tries)))
            usage, why = msgspec.convert(state["usage"], Usage), "the run waits for a decision or a result"
            self._pause = Done("paused", self.text, messages, usage, why)
        assert self._end is not None
        return self._result_at(self._end)

    def _result_at(self, end: Done) -> RunResult[str]:
        outcome = end.output if end.reason in WITH_OUTPUT else no_output(end)
        waiting = tuple(self.waiting)
        return RunResult(
            outcome, self.messages, end.usage, end.reason, end.why, waiting=waiting, id=self.id, text=end.output
        )

    def _decide(
        self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str, tries: int
    ) -> Exchange[Any]:
        """The body of a decision, with the hash of the request: from the events read so far, or from the server."""
        if call_id not in self._shown:
            state = yield from request("GET", run_path(self.id), tries=tries)
            self._shown |= {each["call_id"]: each["shown"] for each in state["waiting"]}
        body: dict[str, Any] = {
            "call_id": call_id,
            "approved": approved,
            "shown": self._shown.get(call_id, ""),
            "reason": reason,
        }
        if arguments is not None:
            body["arguments"] = arguments
        return (yield from request("POST", run_path(self.id, "/decide"), body, tries=tries))

    def _provide(self, call_id: str, value: Any, is_error: bool, tries: int) -> Exchange[Any]:
        body = {"call_id": call_id, "value": value, "is_error": is_error}
        return request("POST", run_path(self.id, "/provide"), body, tries=tries)

    def _say(self, message: str, key: str, tries: int) -> Exchange[Any]:
        return request("POST", run_path(self.id, "/say"), {"message": message, "key": key}, tries=tries)

    def _cancel(self, why: str, tries: int) -> Exchange[Any]:
        return request("POST", run_path(self.id, "/cancel"), {"why": why}, tries=tries)


class RemoteRun(RemoteRunState):
    """A run on a server in sync code: `with client.start("…") as run: for event in run: …`."""

    def __init__(self, carrier: Carrier, run_id: str, after: int | str = 0, thread: str = "") -> None:
        super().__init__(run_id, after, thread)
        self._carrier = carrier
        self._events: Generator[StreamEvent] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[StreamEvent]:
        """The events that were not read yet, as they come; it ends with `Done`."""
        if self._events is None:
            self._events = self._read()
        return self._events

    def close(self) -> None:
        """Stop reading. The run continues."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def result(self) -> RunResult[str]:
        """Read the run to its end, or until it waits for somebody (`paused`)."""
        if self.done is None:
            for _ in self._read(until_waiting=True):
                pass
        return self._carrier.send(self._result(self._carrier.tries))

    def cancel(self, why: str = "the client cancelled the run") -> bool:
        """End the run; False if it was cancelled before, or was over."""
        return bool(self._carrier.send(self._cancel(why, self._carrier.tries))["is_new"])

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = "") -> bool:
        """Approve or decline a call that waits; the first decision counts. False if there was one."""
        exchange = self._decide(call_id, approved, arguments, reason, self._carrier.tries)
        return bool(self._carrier.send(exchange)["is_new"])

    def provide(self, call_id: str, value: Any, is_error: bool = False) -> bool:
        """Give the result of a deferred call, or the answer to a question; the first one counts."""
        return bool(self._carrier.send(self._provide(call_id, value, is_error, self._carrier.tries))["is_new"])

    def say(self, message: str) -> bool:
        """Add a user message; the model gets it with its next request."""
        return bool(self._carrier.send(self._say(message, self._carrier.new_key(), self._carrier.tries))["is_new"])

    def _read(self, until_waiting: bool = False) -> Generator[StreamEvent]:
        if self.done is not None:
            return
        for ready in self._carrier.stream(follow(self.id, self.position, tries=self._carrier.tries)):
            for position, public in ready.events:
                if (event := self._add(position, public)) is not None:
                    yield event
            if until_waiting and self._is_waiting:
                return


class AsyncRemoteRun(RemoteRunState, AsyncOnly):
    """A run on a server in async code: `async with await client.start("…") as run: async for event in run: …`."""

    def __init__(self, carrier: AsyncCarrier, run_id: str, after: int | str = 0, thread: str = "") -> None:
        super().__init__(run_id, after, thread)
        self._carrier = carrier
        self._events: AsyncGenerator[StreamEvent] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        """The events that were not read yet, as they come; it ends with `Done`."""
        if self._events is None:
            self._events = self._read()
        return self._events

    async def close(self) -> None:
        """Stop reading. The run continues."""
        if self._events is not None:
            await self._events.aclose()
            self._events = None

    async def result(self) -> RunResult[str]:
        """Read the run to its end, or until it waits for somebody (`paused`)."""
        if self.done is None:
            async for _ in self._read(until_waiting=True):
                pass
        return await self._carrier.send(self._result(self._carrier.tries))

    async def cancel(self, why: str = "the client cancelled the run") -> bool:
        """End the run; False if it was cancelled before, or was over."""
        return bool((await self._carrier.send(self._cancel(why, self._carrier.tries)))["is_new"])

    async def decide(
        self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = ""
    ) -> bool:
        """Approve or decline a call that waits; the first decision counts. False if there was one."""
        exchange = self._decide(call_id, approved, arguments, reason, self._carrier.tries)
        return bool((await self._carrier.send(exchange))["is_new"])

    async def provide(self, call_id: str, value: Any, is_error: bool = False) -> bool:
        """Give the result of a deferred call, or the answer to a question; the first one counts."""
        exchange = self._provide(call_id, value, is_error, self._carrier.tries)
        return bool((await self._carrier.send(exchange))["is_new"])

    async def say(self, message: str) -> bool:
        """Add a user message; the model gets it with its next request."""
        exchange = self._say(message, self._carrier.new_key(), self._carrier.tries)
        return bool((await self._carrier.send(exchange))["is_new"])

    async def _read(self, until_waiting: bool = False) -> AsyncGenerator[StreamEvent]:
        if self.done is not None:
            return
        exchange = follow(self.id, self.position, tries=self._carrier.tries)
        async with aclosing(self._carrier.stream(exchange)) as stream:
            async for ready in stream:
                for position, public in ready.events:
                    if (event := self._add(position, public)) is not None:
                        yield event
                if until_waiting and self._is_waiting:
                    return


# Converts received events to the events of a local run.
#
# Fields that do not leave the server have their defaults: a tool's private data, instructions and vendor state.


HIDDEN = ("run_start", "taken", "waiting")
"""Events of a log that a local run does not have."""


def received_event(public: Mapping[str, Any]) -> StreamEvent | None:
    """The event of a run; None if a local run has no such event. Unknown types become `Unknown`."""
    type = public.get("type")
    if type in HIDDEN:
        return None
    try:
        if (make := _MAKERS.get(type or "")) is not None:
            return make(public)
        event: StreamEvent = msgspec.convert({**_DEFAULTS.get(type or "", {}), **_keyed(public)}, StreamEvent)
        return event
    except (msgspec.ValidationError, KeyError, TypeError):
        return Unknown(dict(public), "an event of the server that this version does not know")


def _keyed(public: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's execution has the key of its call: a server sends one execution of each."""
    return {"key": public["call_id"], **public} if "call_id" in public else dict(public)


_DEFAULTS: dict[str, dict[str, Any]] = {
    "tool_call_invalid": {"arguments_raw": ""},
    "history_replaced": {"splices": ()},
}


def _tool_end(public: Mapping[str, Any]) -> ToolEnd:
    result = _result(public["call_id"], public["name"], public.get("result", {}))
    times = public.get("started"), public.get("seconds")
    return ToolEnd(public["call_id"], result, public["ending"], None, *times)


def _result(call_id: str, name: str, result: Mapping[str, Any]) -> ToolResult:
    media = [_medium(part) for part in result.get("media", ())]
    text = (Text(0, result["text"]),) if result.get("text") else ()
    return ToolResult(call_id, name, (*text, *media), bool(result.get("is_error")))


def _medium(part: Mapping[str, Any]) -> Image | File:
    kind = Image if part["type"] == "image" else File
    return kind(part["url"], part["media_type"])


def _done(public: Mapping[str, Any]) -> Done:
    messages = received_messages(public.get("messages", ()))
    return replace(msgspec.convert({**public, "messages": ()}, Done), messages=messages)


def received_messages(messages: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """The messages of a run, without parts that this version does not know."""
    return tuple(Message(each["role"], tuple(filter(None, map(_part, each["parts"])))) for each in messages)


def _part(public: Mapping[str, Any]) -> Part | None:
    match public.get("type"):
        case "tool_result":
            return _result(public["call_id"], public["name"], public)
        case "image" | "file":
            return _medium(public)
        case _:
            event = received_event(public)
            return event if isinstance(event, Text | Reasoning | Refusal | ToolCall | ToolCallInvalid) else None


def _nested(public: Mapping[str, Any]) -> Nested:
    inner = public["event"]
    event = _start(inner) if inner["type"] == "run_start" else received_event(inner)
    if event is None or isinstance(event, Nested | Reset):
        raise KeyError("event")
    return Nested(tuple(public["path"]), event)


def _start(public: Mapping[str, Any]) -> RunStart:
    prompt = public.get("prompt", "")
    return RunStart((user(prompt),) if prompt else (), public.get("agent", ""))


_MAKERS: dict[str, Callable[[Mapping[str, Any]], StreamEvent]] = {
    "tool_end": _tool_end,
    "done": _done,
    "nested": _nested,
    "retry": lambda public: Retry(public.get("reason", "")),
    "said": lambda public: Said(user(public["text"])),
    "output_invalid": lambda public: OutputInvalid(public["problem"], user(public["problem"])),
}
