"""The calls with side effects that the parent of a fork has made: a fork gets their results, and does not repeat them.

A call is the same if its tool and its arguments are, inside the same agents. Each result is used once, in the order in
which the parent made the calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from penstock.jsontext.values import canonical_json
from penstock.results import Outcome, error_outcome
from penstock.run.commands import StartTool
from penstock.run.events import LogEvent, Nested, ToolEnd, ToolReturned, ToolStart
from penstock.run.forked import Forked, PastCall
from penstock.sentences import interrupted


class CallNames:
    """The names of the tools of a run, by the ids of their calls."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add(self, start: ToolStart) -> None:
        self._names[start.call_id] = start.name

    def around(self, event: LogEvent) -> tuple[str, ...]:
        """The names of the agents around an event."""
        return tuple(self._names.get(call_id, "") for call_id in event.path) if isinstance(event, Nested) else ()


class PastCalls:
    """The results for a fork, as far as its log says that they are left. A run that is no fork has none."""

    def __init__(self) -> None:
        self._left: dict[str, deque[PastCall]] = {}
        self._taken: dict[tuple[str, str], PastCall] = {}  # by call id and key: a call that runs again gets the same
        self._names = CallNames()
        self.is_fork = False

    def add(self, event: LogEvent) -> None:
        """The next event of the log."""
        inner = event.event if isinstance(event, Nested) else event
        if isinstance(inner, ToolStart):
            self._names.add(inner)
            if self._left:
                self.take(self._names.around(event), inner)
        elif isinstance(inner, Forked):
            self.is_fork = True
            self.extend(inner.past)

    def extend(self, calls: Iterable[PastCall]) -> None:
        for call in calls:
            self._left.setdefault(_digest(call.tools, call.arguments), deque()).append(call)

    def take(self, around: Sequence[str], start: StartTool | ToolStart) -> PastCall | None:
        """What the parent has of a call that starts; None if it has not made it. `around` are the agents' names."""
        place = start.call_id, start.key
        if place not in self._taken and (calls := self._left.get(_digest((*around, start.name), start.arguments))):
            self._taken[place] = calls.popleft()
        return self._taken.get(place)

    @property
    def left(self) -> list[PastCall]:
        """Those that the fork has not made yet."""
        return [call for calls in self._left.values() for call in calls]


class StartedCall(Struct):
    """An execution with side effects in the log of a parent."""

    start: ToolStart
    around: tuple[str, ...]
    number: int
    returned: ToolReturned | None = None
    end: ToolEnd | None = None

    @property
    def has_effect(self) -> bool:
        """Whether it may have side effects; a read may run again."""
        return self.start.order != "read"

    @property
    def past(self) -> PastCall:
        """The call for a fork; hooks of the fork see what the tool returned, and not what hooks of the parent made."""
        tools, known = (*self.around, self.start.name), self.returned or self.end
        if known is None:
            return PastCall(tools, self.start.arguments)
        return PastCall(tools, self.start.arguments, known.result, known.data)


class ParentCalls:
    """The executions in the log of a parent, by call id and key: what its tools did, before and after a fork."""

    def __init__(self) -> None:
        self._started: dict[tuple[str, str], StartedCall] = {}
        self._names = CallNames()
        self._inherited: list[tuple[int, PastCalls]] = []

    def add(self, number: int, event: LogEvent) -> None:
        """The next event of the log."""
        inner = event.event if isinstance(event, Nested) else event
        match inner:
            case ToolStart():
                self._names.add(inner)
                around = self._names.around(event)
                for _, past in self._inherited:
                    past.take(around, inner)
                self._started[inner.call_id, inner.key] = StartedCall(inner, around, number)
            case ToolReturned() if (started := self.find(inner.call_id, inner.key)) is not None:
                started.returned = inner
            case ToolEnd(ending="discarded"):
                self._started.pop((inner.call_id, inner.key), None)
            case ToolEnd() if (started := self.find(inner.call_id, inner.key)) is not None:
                started.end = inner
            case Forked():
                past = PastCalls()
                past.extend(inner.past)
                self._inherited.append((number, past))
            case _:
                pass

    def find(self, call_id: str, key: str) -> StartedCall | None:
        """The execution with this key, and what became of it."""
        return self._started.get((call_id, key))

    def after(self, number: int, without: Sequence[str] = ()) -> tuple[PastCall, ...]:
        """The effects after the event with this number, except for calls with these ids."""
        made = [
            each.past
            for each in self._started.values()
            if each.number > number and each.has_effect and each.start.call_id not in without
        ]
        inherited = [call for at, past in self._inherited if at > number for call in past.left]
        return (*made, *inherited)


def outcome_of(call: PastCall) -> Outcome:
    """The outcome of a call that the parent has made; without a result, nobody knows whether it had an effect."""
    if (result := call.result) is None:
        return error_outcome(interrupted(may_have_effect=True))
    return Outcome(result.content, call.data, result.is_error, result.state)


def _digest(tools: Sequence[str], arguments: dict[str, Any]) -> str:
    return f"{'/'.join(tools)} {canonical_json(arguments)}"
