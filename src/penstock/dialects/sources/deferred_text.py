"""Text that waits for a thread, because a call may be in it that is compared with a long conversation.

Such a comparison takes up to a second, which an event loop does not have. So a driver on an event loop asks before
each network read whether it `is_due`, and if so feeds the read in a thread. Other text is read at once. If it may begin
a call, it waits with all that follows it, and the next read is due.
"""

from __future__ import annotations

from typing import Self

from penstock.dialects.provenance import Provenance
from penstock.dialects.stage import TextCalls
from penstock.events import StreamChunk, Text


class DeferredText:
    """The events of a response that wait. Without a driver that asks, none do."""

    @classmethod
    def of(cls, calls: TextCalls, provenance: Provenance | None) -> Self | None:
        """What waits for a stage; None if nothing has to, as the conversation is short."""
        return cls(calls) if provenance is not None and provenance.is_long else None

    def __init__(self, calls: TextCalls) -> None:
        self._calls = calls
        self._waiting: list[StreamChunk] = []
        self._is_asked = False
        self._is_due = False

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def is_due(self) -> bool:
        """Whether what is fed next takes long, and is to be fed in a thread."""
        self._is_asked = True
        self._is_due = bool(self._waiting) or self._calls.is_in_call
        return self._is_due

    def take(self, events: list[StreamChunk]) -> list[StreamChunk]:
        """The events that are to be read now, of those that wait and these."""
        if not self._is_asked or self._is_due:
            self._is_due = False
            return self.close() + events
        first = 0 if self._waiting else self._first(events)
        self._waiting += events[first:]
        return events[:first]

    def close(self) -> list[StreamChunk]:
        """The events that wait."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def _first(self, events: list[StreamChunk]) -> int:
        """The number of the first event that has to wait."""
        for number, event in enumerate(events):
            if isinstance(event, Text) and self._calls.may_call(event):
                return number
        return len(events)
