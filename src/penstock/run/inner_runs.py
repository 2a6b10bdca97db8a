"""The inner runs of a run: the executions of its tools that are agents (`Agent.as_tool`).

An inner run is a `Run` like any other, with a driver of its own. What it emits goes to the run around it, as `Nested`:
so one log has the events of all of them, one reader reads them, and its gates hold for all. The path of an event has
the call ids from the outermost call on; a run deeper inside makes the path longer, and not the envelope.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.events import Usage
from penstock.messages import Message
from penstock.results import Outcome, as_outcome
from penstock.run.after_cancel import is_due
from penstock.run.commands import CancelTool, Emit, Output
from penstock.run.events import (
    Done,
    InnerEvent,
    LogEvent,
    Nested,
    RunStart,
    StepEnd,
    StreamEvent,
    ToolEnd,
    ToolStart,
    innermost,
)
from penstock.run.execution import Execution, error_outcome
from penstock.run.limits import add_usage
from penstock.run.numbering import RunNumbering

if TYPE_CHECKING:
    from penstock.run.machine import Run
    from penstock.run.state import RunState

MAX_LEVELS = 8
"""How deep agents may be nested: the run of an agent that a person started is level 0."""

_STOPPED = "the call of this agent was stopped"


class InnerRun(Struct):
    """The run of an agent in a call. `key` is that of the execution, `call_id` the id with which it was started."""

    key: str
    call_id: str
    run: Run
    has_ended: bool = False

    def wrap(self, events: Iterable[LogEvent]) -> list[Nested]:
        """Its events as those of the run around it."""
        return [_wrap(self.call_id, event) for event in events]


class InnerRuns:
    """The inner runs of one run. Iterates over those that have not ended.

    Those that have ended are kept until the step after theirs has ended: their last events may be unread until then.
    """

    def __init__(self, outer: RunState) -> None:
        self._outer = outer
        self._runs: dict[str, InnerRun] = {}

    def __iter__(self) -> Iterator[InnerRun]:
        return iter([inner for inner in list(self._runs.values()) if not inner.has_ended])

    # -- what happened -------------------------------------------------------------------------------------------------

    def begin(self, execution: Execution, start: RunStart) -> InnerRun:
        """An agent begins to run in this execution. Without a policy for it, as in another program, it has no tools."""
        outer = self._outer
        policy = outer.rules.policies.get(execution.name)
        new_run = _without_tools if policy is None or policy.new_run is None else policy.new_run
        run: Run = new_run(list(start.messages))
        run.numbering = RunNumbering(run.messages, used=outer.numbering.used)
        run.level, run.is_logged = outer.level + 1, outer.is_logged
        run.record.events[0] = start
        inner = self._runs[execution.key] = InnerRun(execution.key, execution.call_id, run)
        return inner

    def take(self, inner: InnerRun, events: Iterable[LogEvent]) -> list[Nested]:
        """An inner run emitted these events; if it is over, its usage is that of the run around it from here on."""
        nested = inner.wrap(events)
        if inner.run.is_over and not inner.has_ended:
            self.end(inner, inner.run.usage)
            self._outer.record.events.append(_ending(inner))
        return nested

    def end(self, inner: InnerRun | None, usage: Usage) -> None:
        """An inner run has ended, and used this."""
        self._outer.tally.usage = add_usage(self._outer.tally.usage, usage)
        if inner is not None:
            inner.has_ended = True

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

    def cancel(self, why: str, unread: Sequence[StreamEvent]) -> tuple[list[StreamEvent], list[Nested], list[Nested]]:
        """The reader cancelled the run, and has not read these events.

        Returns those of the run itself, what the reader still gets of the inner runs, and what their logs get.
        """
        own, of_inner = _split(unread)
        shown: list[Nested] = []
        logged: list[Nested] = []
        for inner in self._runs.values():
            events = of_inner.get(inner.call_id, [])
            if inner.has_ended:
                shown += inner.wrap(inner.run.inner.due(events))
                continue
            commands = [command for command in inner.run.cancel(why, events) if isinstance(command, Emit)]
            shown += self.take(inner, [event for command in commands for event in command.events])
            logged += inner.wrap(event for command in commands for event in command.logged)
        return own, shown, logged

    def due(self, unread: Iterable[StreamEvent]) -> list[StreamEvent]:
        """What still comes of unread events of a run that had ended before the run around it was cancelled."""
        own, of_inner = _split(unread)
        hidden = {event.key for event in own if isinstance(event, ToolStart)}
        nested = [
            event
            for inner in self._runs.values()
            for event in inner.wrap(inner.run.inner.due(of_inner.get(inner.call_id, [])))
        ]
        starts = self._outer.starts
        return [*nested, *(event for event in own if isinstance(event, Done) or is_due(event, starts, hidden))]

    def forget(self, step: int) -> None:
        """A step begins: forget the inner runs that have ended in a step before this one."""
        for key, inner in list(self._runs.items()):
            if inner.has_ended and int(key.partition(".")[0]) < step:
                del self._runs[key]

    # -- what can be asked ---------------------------------------------------------------------------------------------

    def find(self, key: str) -> InnerRun | None:
        """The inner run of this execution; None if there is none, or it has ended."""
        inner = self._runs.get(key)
        return None if inner is None or inner.has_ended else inner

    def at(self, call_id: str) -> InnerRun | None:
        """The inner run in this call: the last one, if the call ran again."""
        return next((inner for inner in reversed(self._runs.values()) if inner.call_id == call_id), None)

    def holder(self, call_id: str) -> InnerRun | None:
        """The inner run in which this call waits, or deeper inside."""
        return next((inner for inner in self if any(request.call_id == call_id for request in inner.run.waiting)), None)

    def fold(self, unread: Iterable[StreamEvent]) -> None:
        """The reader has read all events but these."""
        _, of_inner = _split(unread)
        for inner in self:
            inner.run.fold_unread(of_inner.get(inner.call_id, []))

    def stored(self, events: Sequence[LogEvent]) -> Iterator[Nested]:
        """The events of the inner runs, for the stored events of the run around them."""
        open_keys = {event.key for event in events if isinstance(event, ToolStart)}
        open_keys -= {event.key for event in events if isinstance(event, ToolEnd)}
        for inner in self:
            yield from inner.wrap(inner.run.stored_events() if inner.key in open_keys else [_ending(inner).event])


def unwrap(event: Nested) -> InnerEvent | Nested:
    """The event as the inner run of the outermost call has it."""
    return event.event if len(event.path) == 1 else Nested(event.path[1:], event.event)


def outcome_of(run: RunState) -> Outcome:
    """What the model reads of an inner run that is over."""
    reason, why = run.ending
    if reason == "answered":
        return as_outcome(run.output)
    text = f"The agent gave no answer ({reason}): {why}" if why else f"The agent gave no whole answer ({reason})"
    return error_outcome(f"{text}. Its last text: {run.output}" if run.output else f"{text}.")


def has_step_end(events: Iterable[StreamEvent]) -> bool:
    """Whether a response of an inner run, or deeper inside, has ended with these events."""
    return any(isinstance(innermost(event), StepEnd) for event in events)


def _without_tools(messages: list[Message]) -> Run:
    from penstock.run.machine import Run

    return Run(messages, {})


def _wrap(call_id: str, event: Any) -> Nested:
    match event:
        case Nested():
            return Nested((call_id, *event.path), event.event)
        case Done():
            return Nested((call_id,), replace(event, messages=()))
        case _:
            return Nested((call_id,), event)


def _split(events: Iterable[StreamEvent]) -> tuple[list[StreamEvent], dict[str, list[StreamEvent]]]:
    """The events of a run itself, and those of its inner runs by call id."""
    own: list[StreamEvent] = []
    of_inner: dict[str, list[StreamEvent]] = {}
    for event in events:
        if not isinstance(event, Nested):
            own.append(event)
        elif not isinstance(inner := unwrap(event), RunStart):
            of_inner.setdefault(event.path[0], []).append(inner)
    return own, of_inner


def _ending(inner: InnerRun) -> Nested:
    """All that a stored run needs of an inner run that does not continue: what it has used."""
    reason, why = inner.run.ending if inner.run.is_over else ("cancelled", _STOPPED)
    return Nested((inner.call_id,), Done(reason, "", (), inner.run.usage, why))


def _emitted(commands: Iterable[Any]) -> list[StreamEvent]:
    return [event for command in commands if isinstance(command, Emit) for event in command.events]
