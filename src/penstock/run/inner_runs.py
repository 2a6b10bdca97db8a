"""The inner runs of a run: the executions of its tools that are agents (`Agent.as_tool`).

An inner run is a `Run` like any other, with a driver of its own. What it emits goes to the run around it, as `Nested`:
so one log has the events of all of them, one reader reads them, and its gates hold for all. The path of an event has
the call ids from the outermost call on; a run deeper inside makes the path longer, and not the envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.events import Retry, Usage
from penstock.messages import Message
from penstock.results import Outcome, as_outcome, error_outcome
from penstock.run.calls.execution import Execution
from penstock.run.commands import AskModel, CancelTool, Emit, Output
from penstock.run.events import (
    CallReviewed,
    Done,
    InnerEvent,
    LogEvent,
    Nested,
    RunStart,
    StepEnd,
    StepStart,
    StreamEvent,
    ToolReturned,
    innermost,
)
from penstock.run.limits import add_usage, over_budget, over_cost, sum_usage
from penstock.run.numbering import RunNumbering

if TYPE_CHECKING:
    from penstock.run.machine import Run
    from penstock.run.state import RunState

NewRun = Callable[[list[Message]], "Run"]

MAX_LEVELS = 8
"""How deep agents may be nested: the run of an agent that a person started is level 0.

An agent that would be nested deeper does not run, and the model reads why.
"""

SPENDING = StepStart | StepEnd | Retry
"""The events of a run after which it has used more: of its model, or of hooks that asked one."""

_STOPPED = "the call of this agent was stopped"


class InnerRun(Struct):
    """The run of an agent in a call. `key` is that of the execution, `call_id` the id with which it was started."""

    key: str
    call_id: str
    run: Run
    has_ended: bool = False

    @property
    def ending(self) -> Nested:
        """The event that a stored run keeps of a finished inner run: its usage."""
        state = self.run.state
        reason, why = state.ending if state.is_over else ("cancelled", _STOPPED)
        return Nested((self.call_id,), Done(reason, "", (), self.run.usage, why))

    def wrap(self, events: Iterable[LogEvent]) -> list[Nested]:
        """Its events, wrapped for the run around it."""
        return [_wrap(self.call_id, event) for event in events]


class InnerRuns:
    """The inner runs of one run, whose state is `outer`. Iterates over the open ones.

    `level` counts the runs around this one. Inner runs that have ended are kept until the step after theirs has ended:
    their last events may be unread until then. `without_tools` makes the run of an agent that has no policy here, as in
    another program.
    """

    def __init__(self, outer: RunState, without_tools: NewRun) -> None:
        self.level = 0
        self._outer = outer
        self._without_tools = without_tools
        self._runs: dict[str, InnerRun] = {}

    def __iter__(self) -> Iterator[InnerRun]:
        return iter([inner for inner in self.all if not inner.has_ended])

    # -- what happened -------------------------------------------------------------------------------------------------

    def begin(self, execution: Execution, start: RunStart) -> InnerRun:
        """An agent begins to run in this execution."""
        outer = self._outer
        policy = outer.rules.policies.get(execution.name)
        new_run: NewRun = self._without_tools if policy is None or policy.new_run is None else policy.new_run
        run = new_run(list(start.messages))
        run.state.numbering = RunNumbering(run.state.messages, used=outer.numbering.used)
        run.state.is_logged = outer.is_logged
        run.state.record.events[0] = start
        run.inner.level = self.level + 1
        inner = self._runs[execution.key] = InnerRun(execution.key, execution.call_id, run)
        return inner

    def take(self, inner: InnerRun, events: Iterable[LogEvent]) -> list[Nested]:
        """Wrap the events of an inner run; when it is over, add its usage to the run around it."""
        nested = inner.wrap(events)
        if inner.run.state.is_over and not inner.has_ended:
            self.end(inner, inner.run.usage)
            self._outer.record.events.append(inner.ending)
        elif _has(nested, SPENDING):
            self.count()
        return nested

    def end(self, inner: InnerRun | None, usage: Usage) -> None:
        """An inner run has ended, with this usage."""
        self._outer.tally.spent(usage)
        if inner is not None:
            inner.has_ended = True
        self.count()

    def count(self) -> None:
        """Open inner runs have used more, or one of them has ended."""
        self._outer.tally.inside = sum_usage(inner.run.usage for inner in self)

    def end_stopped(self, outputs: list[Output]) -> list[Output]:
        """The outputs, with the last events of each inner run before the command that stops it."""
        if not self._runs:
            return outputs
        complete: list[Output] = []
        for output in outputs:
            inner = self.find(output.key) if isinstance(output, CancelTool) else None
            if inner is not None:
                complete += self.take(inner, _emitted(inner.run.outer_stopped(_STOPPED)))
            complete.append(output)
        return complete

    def fold(self, unread: Iterable[StreamEvent]) -> None:
        """The reader has read all events but these."""
        _, by_call = split(unread)
        for inner in self:
            inner.run.fold_unread(by_call.get(inner.call_id, []))

    def forget(self, step: int) -> None:
        """Forget the finished inner runs of the steps before this one."""
        for key, inner in list(self._runs.items()):
            if inner.has_ended and int(key.partition(".")[0]) < step:
                del self._runs[key]

    # -- what can be asked ---------------------------------------------------------------------------------------------

    @property
    def all(self) -> list[InnerRun]:
        """The open inner runs, and those that ended in this step or the one before."""
        return list(self._runs.values())

    @property
    def total_usage(self) -> Usage:
        """The tokens of the outer run and of all its inner runs."""
        return add_usage(self._outer.tally.usage, sum_usage(inner.run.usage for inner in self))

    @property
    def estimate(self) -> float | None:
        """The estimated price of the requests under way, of the outer run and its inner runs; None if not known."""
        prices = [self._outer.estimate, *(inner.run.inner.estimate for inner in self)]
        known = [price for price in prices if price is not None]
        return sum(known) if len(known) == len(prices) else None

    def over_before(self, request: AskModel, more: Usage | None = None) -> str:
        """The limit that keeps the outer run from a request, after what was spent and `more`; empty if none does."""
        outer, limits = self._outer, self._outer.rules.limits
        if not limits.has_budget and outer.price_of is None:
            return ""
        spent = self.total_usage if more is None else add_usage(self.total_usage, more)
        if (over := over_budget(limits, spent)) or outer.price_of is None:
            return over
        outer.estimate = outer.price_of(request)
        return over_cost(limits, spent, self.estimate)

    def over_limit(self, events: Iterable[StreamEvent]) -> str:
        """Which limit inner runs have exceeded with these events, or would with their requests; empty if none."""
        if not _has(events, SPENDING):
            return ""
        limits, tally = self._outer.rules.limits, self._outer.tally
        over = over_budget(limits, add_usage(self.total_usage, tally.so_far))
        return over or (over_cost(limits, self.total_usage, self.estimate) if _has(events, StepStart | Retry) else "")

    def find(self, key: str) -> InnerRun | None:
        """The open inner run of this execution."""
        inner = self._runs.get(key)
        return None if inner is None or inner.has_ended else inner

    def at(self, call_id: str) -> InnerRun | None:
        """The last inner run of this call."""
        return next((inner for inner in reversed(self._runs.values()) if inner.call_id == call_id), None)

    def holder(self, call_id: str) -> InnerRun | None:
        """The inner run in which this call waits, or deeper inside."""
        return next((inner for inner in self if any(request.call_id == call_id for request in inner.run.waiting)), None)


def unwrap(event: Nested) -> InnerEvent | Nested:
    """The event as the inner run of the outermost call has it."""
    return event.event if len(event.path) == 1 else Nested(event.path[1:], event.event)


def outcome_of(state: RunState) -> Outcome:
    """The outcome of a finished inner run, for the model."""
    reason, why = state.ending
    if reason == "answered":
        return as_outcome(state.output)
    text = f"The agent gave no answer ({reason}): {why}" if why else f"The agent gave no whole answer ({reason})"
    return error_outcome(f"{text}. Its last text: {state.output}" if state.output else f"{text}.")


def _has(events: Iterable[StreamEvent], kinds: Any) -> bool:
    """Whether one of these events, at any depth, is of a kind."""
    return any(isinstance(innermost(event), kinds) for event in events)


def _wrap(call_id: str, event: Any) -> Nested:
    match event:
        case Nested():
            return Nested((call_id, *event.path), event.event)
        case Done():
            return Nested((call_id,), replace(event, messages=()))
        case _:
            return Nested((call_id,), event)


def split(events: Iterable[StreamEvent]) -> tuple[list[StreamEvent], dict[str, list[StreamEvent]]]:
    """The events of a run itself, and those of its inner runs by call id."""
    own: list[StreamEvent] = []
    by_call: dict[str, list[StreamEvent]] = {}
    for event in events:
        if not isinstance(event, Nested):
            own.append(event)
        elif not isinstance(inner := unwrap(event), RunStart | CallReviewed | ToolReturned):
            by_call.setdefault(event.path[0], []).append(inner)
    return own, by_call


def _emitted(commands: Iterable[Any]) -> list[StreamEvent]:
    return [event for command in commands if isinstance(command, Emit) for event in command.events]
