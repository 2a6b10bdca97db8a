"""Surrogate pairs that are split between two events of one block (QUIRKS 50)."""

from __future__ import annotations

import msgspec

from penstock.events import (
    Finish,
    Reasoning,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolCallInvalid,
    encode,
)
from penstock.jsontext.portable import as_json_value
from penstock.jsontext.surrogates import SurrogateJoiner

Piece = Text | Reasoning | Refusal | ToolCallDelta


class EventSurrogateJoiner:
    """A stage from events to events that can be encoded: it joins the surrogate pairs of each block.

    A high surrogate waits for the next piece of its block. If the block ends first, it becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[Piece, SurrogateJoiner]] = {}  # by block, with the last piece

    def feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        out: list[StreamChunk] = []
        for chunk in chunks:
            match chunk:
                case Text() | Reasoning() | Refusal():
                    self._join(chunk, chunk.text, out)
                    continue
                case ToolCallDelta():
                    self._join(chunk, chunk.piece, out)
                    continue
                case ToolCall() | ToolCallInvalid():
                    self._release([piece for piece, _ in self._waiting.values() if piece.block == chunk.block], out)
                case Finish():
                    self._release([piece for piece, _ in self._waiting.values() if piece.choice == chunk.choice], out)
                case Retry():
                    self._waiting.clear()
                case _:
                    pass
            out.append(_encodable(chunk))
        return out

    def close(self) -> list[StreamChunk]:
        out: list[StreamChunk] = []
        self._release([piece for piece, _ in self._waiting.values()], out)
        return out

    def _join(self, chunk: Piece, text: str, out: list[StreamChunk]) -> None:
        waiting = self._waiting.pop(chunk.block, None)
        joiner = waiting[1] if waiting else SurrogateJoiner()
        text = joiner.feed(text)
        if joiner.pending:
            self._waiting[chunk.block] = chunk, joiner
        if text:
            out.append(type(chunk)(chunk.block, text, chunk.choice))

    def _release(self, pieces: list[Piece], out: list[StreamChunk]) -> None:
        for piece in pieces:
            _, joiner = self._waiting.pop(piece.block)
            out.append(type(piece)(piece.block, joiner.close(), piece.choice))


def _encodable(chunk: StreamChunk) -> StreamChunk:
    """The event without lone surrogates, which also occur in ids and names."""
    try:
        encode(chunk)
    except UnicodeEncodeError:
        joined: StreamChunk = msgspec.convert(as_json_value(msgspec.to_builtins(chunk)), StreamChunk)
        return joined
    return chunk
