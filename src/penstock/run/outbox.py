"""The outbox of a run: what its reader has not read yet. Pure: the driver guards it and wakes those who wait.

A unit is the list of events that one input to the run emitted: for a read of the network, all its events. Units are
read whole and in order.
"""

from __future__ import annotations

from collections import deque

from penstock.run.events import ApprovalRequest, RequestKind, StreamEvent, ToolProgress

MAX_AHEAD = 10_000
"""How many events may be unread before the model and the tools wait for the reader."""


class Outbox:
    """Keeps the units of a run until they are read.

    `is_full` is the back-pressure: it is set when more than `MAX_AHEAD` events are unread and cleared when half of them
    have been read. A tool that cannot wait meanwhile loses no order, only reports: its newest one replaces the last one
    that is still unread.
    """

    __slots__ = ("_progress", "is_full", "units", "unread")

    def __init__(self) -> None:
        self.units: deque[list[StreamEvent]] = deque()
        self.is_full = False
        self.unread = 0
        self._progress: dict[str, list[StreamEvent]] = {}  # the unit of each tool's last unread report

    def put(self, events: list[StreamEvent]) -> bool:
        """Add a unit, which is the outbox's from here on. Returns False if it replaced an unread one instead."""
        if len(events) == 1 and isinstance(report := events[0], ToolProgress):
            unread = self._progress.get(report.key)
            if unread is not None and self.is_full:
                unread[0] = report
                return False
            self._progress[report.key] = events
        self.units.append(events)
        self.unread += len(events)
        if self.unread > MAX_AHEAD:
            self.is_full = True
        return True

    def take(self) -> list[StreamEvent]:
        """Return the next unit. There must be one."""
        events = self.units.popleft()
        self.unread -= len(events)
        if self.is_full and self.unread <= MAX_AHEAD // 2:
            self.is_full = False
        report = events[0] if self._progress and events else None
        if isinstance(report, ToolProgress) and self._progress.get(report.key) is events:
            del self._progress[report.key]
        return events

    def withdraw(self, call_id: str, kind: RequestKind) -> None:
        """Remove the request for a decision or a result that was answered before it was read."""
        for events in self.units:
            for event in events:
                if isinstance(event, ApprovalRequest) and (event.call_id, event.kind) == (call_id, kind):
                    events.remove(event)
                    self.unread -= 1
                    return
