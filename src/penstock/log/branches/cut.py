"""Where a history may be cut: at any event, but what belongs to the end of a response stays with it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.events import Error
from penstock.run.events import (
    Decision,
    Done,
    LogEvent,
    Nested,
    OutputInvalid,
    StepEnd,
    StepStart,
    ToolEnd,
    ToolStart,
    innermost,
)
from penstock.run.steps import ENDS


def whole_until(events: Sequence[LogEvent], number: int) -> int:
    """The number of the last event that a fork at this event takes.

    A log has some events only together: a response after which no tool may start, and the end of its run; an answer
    that is not valid, and what is wrong with it; a call that was declined, and its result. A fork between them would
    start tools of a refused response, or ask for an answer to an answer.
    """
    path, last = _path(events[number - 1]), innermost(events[number - 1])
    if isinstance(last, Decision) and not last.approved:
        following = (place for place in range(number, len(events)) if _is_end_of(events[place], path, last.call_id))
        return next(following, number - 1) + 1
    step_end = _step_end_before(events, number, path)
    return number if step_end is None else _end_of_run(events, number, path, step_end)


def last_step_start(events: Sequence[LogEvent]) -> int:
    """The place of the last `step_start` of the run itself."""
    return next(place for place in reversed(range(len(events))) if isinstance(events[place], StepStart))


def had_effect_after(events: Sequence[LogEvent], place: int) -> bool:
    """Whether a tool with side effects has started after this place, in the run itself."""
    return any(isinstance(event, ToolStart) and event.order != "read" for event in events[place:])


def _step_end_before(events: Sequence[LogEvent], number: int, path: tuple[str, ...]) -> StepEnd | None:
    """The end of the response, if nothing but ends of calls has happened in the run since."""
    for event in reversed(events[:number]):
        if _path(event) != path:
            continue
        match innermost(event):
            case StepEnd() as step_end:
                return step_end
            case ToolEnd() | Error():
                pass
            case _:
                return None
    return None


def _end_of_run(events: Sequence[LogEvent], number: int, path: tuple[str, ...], step_end: StepEnd) -> int:
    """The number of the event that follows from the response without anything happening in between, if there is one."""
    for place in range(number, len(events)):
        if _path(events[place]) != path:
            continue
        match innermost(events[place]):
            case Done(reason=reason):
                return number if reason == "cancelled" and step_end.finish_reason not in ENDS else place + 1
            case OutputInvalid():
                return place + 1
            case ToolEnd() | Error():
                pass
            case _:
                break
    return number


def _path(event: LogEvent) -> tuple[str, ...]:
    return event.path if isinstance(event, Nested) else ()


def _is_end_of(event: LogEvent, path: tuple[str, ...], call_id: str) -> bool:
    inner = innermost(event)
    return _path(event) == path and isinstance(inner, ToolEnd) and inner.call_id == call_id
