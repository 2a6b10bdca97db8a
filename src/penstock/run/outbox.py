"""The outbox of a run: what its reader has not read yet. Pure: the driver passes a lock and wakes waiting readers.

A unit is the list of events that one input to the run emitted: for a read of the network, all its events. Units are
read in order. Between them stand gates: work that waits until the reader has read everything before it and asks for
more, such as the next request or the start of a tool with side effects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import length_hint
from typing import TYPE_CHECKING, Any

from penstock.run.events import (
    ApprovalRequest,
    Done,
    LogEvent,
    Nested,
    RequestKind,
    StreamEvent,
    ToolProgress,
    innermost,
)

if TYPE_CHECKING:
    from penstock.run.state import RunState

MAX_AHEAD = 10_000
"""How many events may be unread before the model and the tools wait for the reader."""

Gate = Callable[[], None]
NO_LOCK = nullcontext()
_REPORTS = frozenset({ToolProgress, Nested})  # events that may report progress


def reporter_of(event: StreamEvent) -> str:
    """The tool whose progress this event reports, with its path in inner runs; empty for any other event."""
    report = innermost(event)
    if not isinstance(report, ToolProgress):
        return ""
    return "/".join([*event.path, report.key]) if isinstance(event, Nested) else report.key


class Outbox:
    """Keeps the units and gates of a run until the reader gets to them.

    `is_full` is the back-pressure: it is set when more than `MAX_AHEAD` events are unread and cleared when half of them
    have been read. A tool that cannot wait meanwhile loses no order, only reports: its newest one replaces the last one
    that is still unread.
    """

    __slots__ = ("_lock", "_progress", "_rest", "_taken", "is_full", "items", "unread")

    def __init__(self, lock: AbstractContextManager[Any] = NO_LOCK) -> None:
        self.items: deque[list[StreamEvent] | Gate] = deque()
        self.is_full = False
        self._lock = lock  # reentrant, for a reader in another thread than the run
        self.unread = 0  # unread events, without those of the unit taken last
        self._taken: list[StreamEvent] = []
        self._rest: Iterator[StreamEvent] = iter(self._taken)
        self._progress: dict[str, list[StreamEvent]] = {}  # the unit of each tool's last unread report

    @property
    def is_idle(self) -> bool:
        """Whether no unit and no gate is left for the reader."""
        return not self.items

    @property
    def is_written(self) -> bool:
        """Whether nothing waits to be written to a log."""
        return True

    def put(self, events: list[StreamEvent], log: Sequence[LogEvent] | None = None) -> bool:
        """Add a unit, which is the outbox's from here on; `log` is what a log has of it, where that is something else.

        Returns whether there is an item more for the reader: not if the unit replaced an unread one.
        """
        if len(events) == 1 and type(events[0]) in _REPORTS and (reporter := reporter_of(events[0])):
            with self._lock:
                unread = self._progress.get(reporter)
                if unread is not None and self.is_full:
                    unread[0] = events[0]
                    return False
                self._progress[reporter] = events
        with self._lock:
            self.items.append(events)
            self.unread += len(events)
            if self.unread > MAX_AHEAD:
                self.is_full = True
        return True

    def hold(self, gate: Gate) -> bool:
        """Add a gate: it is called when the reader asks for the event after everything that was put before.

        Returns whether there is an item more for the reader.
        """
        self.items.append(gate)
        return True

    def take(self) -> Iterator[StreamEvent] | Gate | None:
        """The reader asks for more: returns the next unit, to be read event by event, or the next gate, to be called.

        None if there is nothing.
        """
        with self._lock:
            item = self.items.popleft() if self.items else None
            if not isinstance(item, list):
                return item
            self.unread -= len(item)
            if self.is_full and self.unread <= MAX_AHEAD // 2:
                self.is_full = False
            reporter = reporter_of(item[0]) if self._progress and item else ""
            if reporter and self._progress.get(reporter) is item:
                del self._progress[reporter]
            self._taken, self._rest = item, iter(item)
            return self._rest

    @property
    def most_unread(self) -> int:
        """How many events are unread at most: those of the unit that was taken last count as unread."""
        with self._lock:
            return self.unread + len(self._taken)

    @property
    def unread_events(self) -> list[StreamEvent]:
        """The unread events."""
        with self._lock:
            events = self._taken[len(self._taken) - length_hint(self._rest) :]
            for item in self.items:
                if isinstance(item, list):
                    events += item
        return events

    def drop(self) -> list[StreamEvent]:
        """Remove and return the unread events. Writers waiting for room keep waiting."""
        with self._lock:
            events = [*self._rest]  # ends the reader's loop over them
            for item in self.items:
                if isinstance(item, list):
                    events += item
            self.items.clear()
            self._progress.clear()
            self.unread = 0
        return events

    def withdraw(self, call_id: str, kind: RequestKind) -> None:
        """Remove an unread request that was answered already."""
        with self._lock:
            for events in self.items:
                if not isinstance(events, list):
                    continue
                for event in events:
                    request = innermost(event)
                    if isinstance(request, ApprovalRequest) and (request.call_id, request.kind) == (call_id, kind):
                        events.remove(event)
                        self.unread -= 1
                        return


class UnreadOutbox(Outbox):
    """The outbox of a run whose events nobody reads: keeps its gates, and the unit with its end."""

    __slots__ = ("_state",)

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state

    def put(self, events: list[StreamEvent], log: Sequence[LogEvent] | None = None) -> bool:
        if events and type(events[-1]) is Done:
            return super().put(events, log)
        return self._state.phase == "tools"  # nothing to read, but perhaps all calls wait, so that the run pauses
