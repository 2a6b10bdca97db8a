"""The commands of a run: what its driver does next. The driver decides nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from msgspec import Struct

from penstock.calls.sources import Sources
from penstock.messages import Message, ToolResult
from penstock.results import Outcome
from penstock.run.events import CallReviewed, CallVerdict, LogEvent, Nested, StreamEvent, ToolReturned, is_for_readers
from penstock.run.step_changes import UNCHANGED, StepChanges


class PrepareStep(Struct, frozen=True):
    """Let the hooks of the agent decide on the next step; pass their decision to `Run.step_prepared`.

    It waits for the reader like `AskModel`: hooks are code of the user, and may have side effects. `last_tools` are the
    names of the tools that they chose for the step before; empty if they left them as they are.
    """

    step: int
    messages: tuple[Message, ...]
    last_tools: tuple[str, ...] = ()


class AskModel(Struct, frozen=True):
    """Send these messages to the model; pass its chunks to `Run.chunks` and the end of its response to `Run.ended`.

    It waits for the reader: when everything emitted before it has been read and the next event is asked for, call
    `Run.reached`, and send the request only if it returns True. `Run.ended` is called at such a moment too.

    `changes` are what the hooks changed, of which the messages have theirs already. `model` is the name of the model;
    empty for the agent's own.
    """

    messages: tuple[Message, ...]
    changes: StepChanges = UNCHANGED
    model: str = ""


class StopAsking(Struct, frozen=True):
    """Cancel the request to the model, or the hooks before it, if they are under way."""


class StartTool(Struct, frozen=True):
    """Start a tool; pass its outcome to `Run.tool_done`, or call `Run.tool_late` when its timeout expires.

    One that `awaits_reader` may have side effects: it waits for the reader like `AskModel`.
    """

    key: str
    call_id: str
    name: str
    arguments: dict[str, Any]
    timeout: float | None = None
    awaits_reader: bool = False


class PrepareTool(Struct, frozen=True):
    """Start the `prepare` function of a tool; pass its end to `Run.tool_prepared`, unless its call has started before.

    `CancelTool` discards it, also after its end. `StartTool` of the same key uses what it returned.
    """

    key: str
    call_id: str
    name: str
    arguments: dict[str, Any]
    timeout: float | None = None


class GrowTool(Struct, frozen=True):
    """Start the `prepare` function of a tool that reads the arguments of this block while they are written.

    `PrepareTool` of the same key says that they are complete, `CancelTool` discards it.
    """

    key: str
    call_id: str
    name: str
    block: int


class ReviewCall(Struct, frozen=True):
    """Let `before_call` and the approval predicate decide about a call; pass their `CallReview` to the run.

    It is an input of the run: `Run.call_reviewed`. Both are code of the user, which must not block the run. A call of
    the kind `approval` is one that the provider runs.
    """

    key: str
    call_id: str
    name: str
    arguments: dict[str, Any]
    is_in_text: bool = False
    origin: str = "native"
    is_confirmed: bool = True
    kind: str = "function"


class CallReview(Struct, frozen=True):
    """The verdict on a call: see `CallReviewed`. `outcome` is the result of a call that does not run."""

    verdict: CallVerdict = "go"
    arguments: dict[str, Any] | None = None
    why: str = ""
    outcome: Outcome | None = None
    sources: Sources = {}


class ReviseResult(Struct, frozen=True):
    """Let `after_call` see the result of a tool; pass theirs to `Run.result_revised`, or None to leave it as it is.

    One that `awaits_reader` is that of a tool with side effects: the log must have the result before.
    """

    key: str
    name: str
    arguments: dict[str, Any]
    result: ToolResult
    data: Any = None
    origin: str = "native"
    awaits_reader: bool = False


class AnswerTool(Struct, frozen=True):
    """Pass the answer to a tool that asked a question."""

    key: str
    outcome: Outcome


class ExpireLater(Struct, frozen=True):
    """Call `Run.call_expired` after this many seconds: the call waits no longer for a decision or a result."""

    call_id: str
    seconds: float


class CancelTool(Struct, frozen=True):
    """Cancel a tool, if it is still running; its result is ignored."""

    key: str


class Emit(Struct, frozen=True):
    """Pass these events to the reader of the run. Each input to the run gives at most one, before other commands.

    `log` are the events for the log of the run, if they differ; they are written before the reader gets `events`.
    """

    events: list[StreamEvent]
    log: Sequence[LogEvent] | None = None

    @property
    def logged(self) -> Sequence[LogEvent]:
        """The events for the log."""
        return self.events if self.log is None else self.log


_Other = (
    PrepareStep
    | AskModel
    | StopAsking
    | GrowTool
    | PrepareTool
    | StartTool
    | ReviewCall
    | ReviseResult
    | AnswerTool
    | ExpireLater
    | CancelTool
)
_COMMANDS = frozenset(get_args(_Other))
_MAYBE_ONLY_LOGGED = frozenset({CallReviewed, ToolReturned, Nested})
Command = _Other | Emit
Output = StreamEvent | CallReviewed | ToolReturned | _Other
"""An event or a command: the result of an input to the run."""


def as_commands(outputs: list[Output]) -> list[Command]:
    """Put the events into one `Emit`, followed by the commands in their order."""
    events: list[LogEvent] = []
    commands: list[Command] = []
    sort_outputs(outputs, events, commands)
    return [emit(events), *commands] if events else commands


def emit(events: list[Any]) -> Emit:
    """Emit these events; readers do not get those that only a log has."""
    if _MAYBE_ONLY_LOGGED.isdisjoint(map(type, events)):
        return Emit(events)
    shown = [event for event in events if is_for_readers(event)]
    return Emit(events) if len(shown) == len(events) else Emit(shown, events)


def sort_outputs(outputs: list[Output], events: list[Any], commands: list[Command]) -> None:
    """Append the events and the commands to their lists."""
    for output in outputs:
        kept: list[Any] = commands if type(output) in _COMMANDS else events
        kept.append(output)
