"""The events of a network read in parts, so that an event loop can run other tasks while the stages read them.

One frame may have megabytes of text, of which each character may begin a call. A driver on an event loop sets
`is_used`, and then feeds empty bytes as long as the stages `has_more`: each time they read the next part.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.events import Reasoning, Refusal, StreamChunk, Text, ToolCallDelta

PART_CHARACTERS = 512
"""How many characters a part has: the slowest texts take about a millisecond for a hundred."""
PART_EVENTS = 32


class EventParts:
    """The events that the stages have not read yet; `has_more` if there are any."""

    __slots__ = ("_events", "_number", "_offset", "has_more", "is_used")

    def __init__(self) -> None:
        self.is_used = False
        self.has_more = False
        self._events: list[StreamChunk] = []
        self._number = 0  # the number of the next event
        self._offset = 0  # how many characters of its text were read

    def first(self, events: list[StreamChunk]) -> list[StreamChunk]:
        """The first part of some events; all of them if no driver asks for the others."""
        if not self.is_used:
            return events
        self._events, self._number, self._offset = events, 0, 0
        return self.next()

    def next(self) -> list[StreamChunk]:
        """The next part."""
        part: list[StreamChunk] = []
        left = PART_CHARACTERS
        while left > 0 and len(part) < PART_EVENTS and self._number < len(self._events):
            event = self._events[self._number]
            match event:
                case Text() | Reasoning() | Refusal():
                    piece = event.text[self._offset : self._offset + left]
                    is_whole = len(piece) == len(event.text)
                    part.append(event if is_whole else replace(event, text=piece))
                    left -= self._passed(len(piece), len(event.text))
                case ToolCallDelta():
                    piece = event.piece[self._offset : self._offset + left]
                    is_whole = len(piece) == len(event.piece)
                    part.append(event if is_whole else replace(event, piece=piece))
                    left -= self._passed(len(piece), len(event.piece))
                case _:
                    part.append(event)
                    self._number += 1
        self.has_more = self._number < len(self._events)
        if not self.has_more:
            self._events = []
        return part

    def _passed(self, size: int, total: int) -> int:
        """Notes that this many characters of an event are in a part."""
        self._offset += size
        if self._offset >= total:
            self._number, self._offset = self._number + 1, 0
        return size
