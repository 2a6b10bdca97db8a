"""Orders the events of a response so that a call ends before the next block begins.

Some protocols write one block after the other, and clients remember only the block that is open. A response of another
protocol may begin its second call before the first one is confirmed: then the events of the second wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.events import (
    Opaque,
    Reasoning,
    Refusal,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
)

_IN_BLOCKS = (
    Text, Reasoning, Refusal, Opaque, ToolCallStart, ToolCallDelta, ToolCallClosed, ToolCall, ToolCallInvalid,
)  # fmt: skip


class BlockOrder:
    """The events of one response, in order: `size` is how many characters of arguments wait."""

    def __init__(self) -> None:
        self.size = 0
        self._open: int | None = None  # the block of the call that has begun and not ended
        self._waiting: dict[int, list[StreamChunk]] = {}

    def feed(self, event: StreamChunk) -> Sequence[StreamChunk]:
        """The events that may be written now."""
        if not isinstance(event, _IN_BLOCKS):
            is_end = event.type in ("finish", "error", "retry")
            return [*self._all(), event] if is_end and self._waiting else (event,)
        if self._open is None:
            self._open = event.block if isinstance(event, ToolCallStart) else None
            return (event,)
        if event.block == self._open:
            if not _ends(event):
                return (event,)
            self._open = None
            return [event, *self._next()]
        self._waiting.setdefault(event.block, []).append(event)
        self.size += len(event.piece) if isinstance(event, ToolCallDelta) else 0
        return ()

    def _next(self) -> list[StreamChunk]:
        """The blocks that have waited, up to a call that has not ended."""
        ready: list[StreamChunk] = []
        while self._waiting and self._open is None:
            block = next(iter(self._waiting))
            events = self._waiting.pop(block)
            self.size -= sum(len(event.piece) for event in events if isinstance(event, ToolCallDelta))
            if isinstance(events[0], ToolCallStart) and not any(map(_ends, events)):
                self._open = block
            ready += events
        return ready

    def _all(self) -> list[StreamChunk]:
        """All that has waited: the response is over."""
        waiting, self._waiting, self._open, self.size = self._waiting, {}, None, 0
        return [event for events in waiting.values() for event in events]


def _ends(event: StreamChunk) -> bool:
    return isinstance(event, ToolCall | ToolCallInvalid)
