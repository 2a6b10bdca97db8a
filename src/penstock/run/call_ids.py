"""The ids of calls, such that none comes twice in a run: providers may count anew in each answer (QUIRKS 21)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from penstock.calls.numbering import UniqueIds
from penstock.events import StreamChunk, ToolCall, ToolCallClosed, ToolCallInvalid, ToolCallStart
from penstock.messages import Message

_OF_CALLS = (ToolCallStart, ToolCallClosed, ToolCall, ToolCallInvalid)


class CallIds:
    """Gives a call whose id was used before in the history another one, the same in all that is said of it."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._used = UniqueIds()
        self._given: dict[tuple[int, str], str] = {}  # of the answer that is coming, by block and the provider's id
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolCall | ToolCallInvalid):
                    self._used.take(part.id)

    def next_answer(self) -> None:
        """Another answer begins: its ids are new ones."""
        self._given.clear()

    def told(self, chunk: StreamChunk) -> StreamChunk:
        """The chunk with the id that its call has in the run."""
        if not isinstance(chunk, _OF_CALLS) or not chunk.id:
            return chunk
        known = chunk.block, chunk.id
        if known not in self._given:
            self._given[known] = self._used.take(chunk.id)
        return chunk if self._given[known] == chunk.id else replace(chunk, id=self._given[known])
