"""The events of a run: steps, tools, approvals and the end. An agent yields them and its model's `StreamChunk`s."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from penstock.events import Event, FinishReason, StreamChunk, Usage
from penstock.jsontext.nearest import nearest_json
from penstock.messages import Message, ToolResult

EndReason = Literal["answered", "length", "refused", "cut", "error", "limit", "cancelled", "paused"]
ToolEnding = Literal["done", "failed", "declined", "cancelled", "discarded"]
RequestKind = Literal["approval", "deferred"]


class StepStart(Event, frozen=True, tag="step_start"):
    """A request is sent to the model, when this was read; `step` counts from 1."""

    step: int
    type: ClassVar[Literal["step_start"]] = "step_start"


class StepEnd(Event, frozen=True, tag="step_end"):
    """The response of the model has ended, or the run was stopped before; tools may still be running."""

    step: int
    finish_reason: FinishReason
    usage: Usage | None = None
    type: ClassVar[Literal["step_end"]] = "step_end"


class ToolStart(Event, frozen=True, tag="tool_start"):
    """A tool starts; `is_early` if the model was still streaming. A tool with side effects begins when this was read.

    `fault` is empty, unless the call was damaged and runs with repaired arguments (`Agent(run_repaired=…)`).
    """

    key: str
    call_id: str
    name: str
    arguments: dict[str, Any]
    is_early: bool = False
    fault: str = ""
    type: ClassVar[Literal["tool_start"]] = "tool_start"


class ToolProgress(Event, frozen=True, tag="tool_progress"):
    """A tool reports its progress.

    A tool waits for a slow reader (back-pressure). Where it cannot wait (plain async code, see `Context`), its newest
    report replaces the last unread one.
    """

    key: str
    call_id: str
    name: str
    data: Any
    type: ClassVar[Literal["tool_progress"]] = "tool_progress"


class ToolEnd(Event, frozen=True, tag="tool_end"):
    """A call has ended, with the result that the model reads; a `discarded` one is not in the history.

    There is one for every `ToolStart`, and one for every call that has a result in the history, also if it never ran;
    after `run.cancel()` only for tools that had started.
    """

    key: str
    result: ToolResult
    ending: ToolEnding = "done"
    data: Any = None
    type: ClassVar[Literal["tool_end"]] = "tool_end"

    @property
    def call_id(self) -> str:
        return self.result.call_id

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.result.name


class ApprovalRequest(Event, frozen=True, tag="approval_request"):
    """A call waits: for a decision (`approval`, see `run.decide`) or for its result from elsewhere (`deferred`, see
    `run.provide`)."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    kind: RequestKind = "approval"
    type: ClassVar[Literal["approval_request"]] = "approval_request"


class Done(Event, frozen=True, tag="done"):
    """The run is over: the last event, once. `output` is the final text, `why` the reason in a sentence.

    In `messages` every call has a result, whatever the reason, so that another run can continue from them. After
    `paused` the results of the calls that wait only say so: to continue with them, store the run (`run.dump()`) and
    resume it (`Agent.resume`).
    """

    reason: EndReason
    output: str
    messages: tuple[Message, ...]
    usage: Usage
    why: str = ""
    type: ClassVar[Literal["done"]] = "done"


RunEvent = StepStart | StepEnd | ToolStart | ToolProgress | ToolEnd | ApprovalRequest | Done
StreamEvent = StreamChunk | RunEvent
"""An event of an agent's run: a chunk of a response, or one of the run's own."""

_encoder = msgspec.json.Encoder(enc_hook=nearest_json)  # a tool may report any object
_decoder = msgspec.json.Decoder(StreamEvent)


def is_chunk(event: StreamEvent) -> bool:
    """Whether the event is a chunk of a response, and not one of the run's own."""
    return not isinstance(event, RunEvent)


def encode(event: StreamEvent) -> bytes:
    """An event as one line of JSON; data of a tool that JSON cannot hold is replaced by its closest equivalent."""
    try:
        return _encoder.encode(event)
    except (TypeError, ValueError, OverflowError, RecursionError):
        fields = {name: nearest_json(getattr(event, name)) for name in ("data", "arguments") if hasattr(event, name)}
        return _encoder.encode(msgspec.structs.replace(event, **fields))


def decode(line: bytes | str) -> StreamEvent:
    """Read an event that `encode` wrote."""
    event: StreamEvent = _decoder.decode(line)
    return event
