"""Block numbers and call ids that are unique within a run: each response of a provider may count from 0 again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from penstock.calls.numbering import UniqueIds
from penstock.events import (
    Opaque,
    Reasoning,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
)
from penstock.messages import Message

_WITH_ID = frozenset({ToolCallStart, ToolCallClosed, ToolCall, ToolCallInvalid})
_WITH_BLOCK = _WITH_ID | {Text, Reasoning, Refusal, ToolCallDelta, Opaque}


class RunNumbering:
    """Numbers the blocks of a run on, and renames a call if the history has its id already (QUIRKS 21).

    `next_block` is the first number that no block of the run has, `used` has its call ids, and those of inner runs.
    """

    def __init__(self, messages: Iterable[Message], next_block: int = 0, used: UniqueIds | None = None) -> None:
        self.next_block = next_block
        self._offset = next_block
        self.used = used or UniqueIds()
        self._ids: dict[tuple[int, str], str] = {}  # ids in the run, by the provider's block and id
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolCall | ToolCallInvalid):
                    self.used.take(part.id)

    def next_response(self) -> None:
        """Another response begins."""
        self._ids.clear()
        self._offset = self.next_block

    def restore(self, chunk: StreamChunk) -> None:
        """Reserve the block and the id of a chunk from a log."""
        kind: Any = type(chunk)
        if kind in _WITH_BLOCK:
            content: Any = chunk
            self.next_block = max(self.next_block, content.block + 1)
            if kind in _WITH_ID and content.id:
                self.used.add(content.id)

    def feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """Return the chunks with the blocks and ids that they have in the run."""
        numbered: list[StreamChunk] = []
        for chunk in chunks:
            kind: Any = type(chunk)
            if kind is Retry:
                self.next_response()
            elif kind in _WITH_BLOCK:
                content: Any = chunk
                block = content.block + self._offset
                if block >= self.next_block:
                    self.next_block = block + 1
                if kind in _WITH_ID and content.id:
                    content = self._with_id(content)
                chunk = replace(content, block=block) if self._offset else content
            numbered.append(chunk)
        return numbered

    def _with_id(self, chunk: Any) -> Any:
        known = chunk.block, chunk.id
        if known not in self._ids:
            self._ids[known] = self.used.take(chunk.id)
        return chunk if self._ids[known] == chunk.id else replace(chunk, id=self._ids[known])
