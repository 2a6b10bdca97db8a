"""The outbox of a run with a log: its units wait until the log has them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from penstock.log.run_writer import RunWriter
from penstock.run.events import LogEvent, StreamEvent
from penstock.run.outbox import MAX_AHEAD, NO_LOCK, Gate, Outbox, reporter_of


class LoggedOutbox(Outbox):
    """Writes each unit to the log; its commit opens the gates after it for the reader.

    `inputs` are the numbers of the inputs from other processes that the next unit comes from. While the outbox is full,
    only the newest report of each tool is kept, and written before the next unit. A run without a reader `is_drained`:
    its units are dropped when they are committed, and only the gates are left.
    """

    __slots__ = ("_pending", "_reports", "inputs", "is_drained", "writer")

    def __init__(self, lock: AbstractContextManager[Any] = NO_LOCK) -> None:
        super().__init__(lock)
        self.writer: RunWriter
        self.is_drained = False
        self.inputs: Sequence[int] = ()
        self._pending: deque[list[StreamEvent] | Gate] = deque()
        self._reports: dict[str, list[StreamEvent]] = {}  # by the key of the tool

    @property
    def is_idle(self) -> bool:
        return not self.items and not self._pending

    @property
    def is_written(self) -> bool:
        """Whether everything is in the log, or the log takes no more."""
        return not self._pending or self.writer.is_closed

    def put(self, events: list[StreamEvent], log: Sequence[LogEvent] | None = None) -> bool:
        if self.is_full and len(events) == 1 and (reporter := reporter_of(events[0])):
            self._reports[reporter] = events
            return False
        if log is not None and not log and not self.inputs:
            return self._add_unlogged(events)
        if self._reports:
            self._write_reports()
        inputs, self.inputs = self.inputs, ()
        self.writer.put(events if log is None else log, inputs)  # first: what cannot be encoded is not waited for
        self._pending.append(events)
        with self._lock:
            self.unread += len(events)
            if self.unread > MAX_AHEAD:
                self.is_full = True
        return False

    def _write_reports(self) -> None:
        """Write the newest report of each tool, of those that came while the outbox was full."""
        reports, self._reports = self._reports, {}
        for unit in reports.values():
            self.writer.put(unit)
            self._pending.append(unit)
            with self._lock:
                self.unread += len(unit)

    def _add_unlogged(self, events: list[StreamEvent]) -> bool:
        """Add events for the reader alone to the last unit that is not committed yet, if there is one.

        They have no unit of their own: the log may have its end already, and takes no more units then.
        """
        for index in range(len(self._pending) - 1, -1, -1):
            if isinstance(unit := self._pending[index], list):
                self._pending[index] = [*unit, *events]  # a new list: the log may hold the old one
                with self._lock:
                    self.unread += len(events)
                return False
        return super().put(events)

    def hold(self, gate: Gate) -> bool:
        if not self._pending:
            return super().hold(gate)
        self._pending.append(gate)
        return False

    def acknowledge(self) -> None:
        """Tell the store that an input had no effect: it is deleted."""
        if self.inputs:
            self.put([], ())

    def release(self) -> None:
        """Release the run to its store: this process does not continue it."""
        self._pending.append([])
        self.writer.release()

    def committed(self, units: int) -> int:
        """Note that more units are committed; returns how many more items the reader can take."""
        items, pending = self.items, self._pending
        before = len(items)
        while pending:
            if type(pending[0]) is list:
                if not units:
                    break
                units -= 1
            item = pending.popleft()
            if self.is_drained and isinstance(item, list):
                self.unread -= len(item)
                if self.is_full and self.unread <= MAX_AHEAD // 2:
                    self.is_full = False
            elif item:
                items.append(item)
        return len(items) - before

    @property
    def unread_events(self) -> list[StreamEvent]:
        return super().unread_events + [event for item in self._pending if isinstance(item, list) for event in item]

    def drop(self) -> list[StreamEvent]:
        events = super().drop() + [event for item in self._pending if isinstance(item, list) for event in item]
        units = sum(isinstance(item, list) for item in self._pending)
        self._reports.clear()
        self._pending.clear()
        self._pending.extend([] for _ in range(units))  # which are written, and not read
        return events
