"""What happens in a run besides what the model says: steps, tools, approvals, and the end.

An agent yields `StreamEvent`s: every `StreamChunk` of the model, and these.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from penstock.events import Event, FinishReason, StreamChunk, Usage
from penstock.messages import Message, ToolResult
from penstock.tools.outcome import nearest_json

EndReason = Literal["answered", "length", "refused", "cut", "error", "limit", "cancelled", "paused"]
ToolEnding = Literal["done", "failed", "declined", "cancelled", "discarded"]
RequestKind = Literal["approval", "deferred"]


class StepStart(Event, frozen=True, tag="step_start"):
    """The model is asked; `step` counts from 1."""

    step: int
    type: ClassVar[Literal["step_start"]] = "step_start"


class StepEnd(Event, frozen=True, tag="step_end"):
    """The model's answer is over, or there is to be none any more; tools may still be running."""

    step: int
    finish_reason: FinishReason
    usage: Usage | None = None
    type: ClassVar[Literal["step_end"]] = "step_end"


class ToolStart(Event, frozen=True, tag="tool_start"):
    """A tool was started; `is_early` if the model was still streaming.

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
    """A tool reports how far it is.

    A tool waits for a reader who is slow. Where it cannot (plain async code, see `Context`), its newest report takes
    the place of the last one that is unread.
    """

    key: str
    call_id: str
    name: str
    data: Any
    type: ClassVar[Literal["tool_progress"]] = "tool_progress"


class ToolEnd(Event, frozen=True, tag="tool_end"):
    """A call came to its end, with what the model will read; what was `discarded` counts for nothing.

    There is one for every `ToolStart`, and one for every call that has a result in the history, also if it never ran.
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
    """A call waits for somebody: its `kind` says for whom.

    For `approval`, a person says yes or no (`run.decide`). A `deferred` call runs elsewhere, and waits for its result
    (`run.provide`).
    """

    call_id: str
    name: str
    arguments: dict[str, Any]
    kind: RequestKind = "approval"
    type: ClassVar[Literal["approval_request"]] = "approval_request"


class Done(Event, frozen=True, tag="done"):
    """The run is over: the one last event. `output` is the final text, `why` says how it came to its end.

    In `messages` every call has a result, whatever the reason, so that another run can go on from them. After `paused`
    the results of the calls that wait say only that: to go on when they are decided or have come, store the run
    (`run.dump()`) and resume it (`Agent.resume`).
    """

    reason: EndReason
    output: str
    messages: tuple[Message, ...]
    usage: Usage
    why: str = ""
    type: ClassVar[Literal["done"]] = "done"


StreamEvent = StreamChunk | StepStart | StepEnd | ToolStart | ToolProgress | ToolEnd | ApprovalRequest | Done
"""An event of an agent's run: a chunk of a response, or one of the run's own."""

_encoder = msgspec.json.Encoder(enc_hook=nearest_json)  # what a tool reports may be anything
_decoder = msgspec.json.Decoder(StreamEvent)


def encode(event: StreamEvent) -> bytes:
    """An event of a run as one line of JSON; what is no JSON of a tool's data, as what comes closest to it."""
    try:
        return _encoder.encode(event)
    except (TypeError, ValueError, OverflowError, RecursionError):
        told = {name: nearest_json(getattr(event, name)) for name in ("data", "arguments") if hasattr(event, name)}
        return _encoder.encode(msgspec.structs.replace(event, **told))


def decode(line: bytes | str) -> StreamEvent:
    """The event that `encode` wrote."""
    event: StreamEvent = _decoder.decode(line)
    return event
