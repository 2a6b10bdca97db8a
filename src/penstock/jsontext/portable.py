"""What arrived, made fit to be written as JSON again: values that JSON has not, characters in halves (QUIRKS 50)."""

from __future__ import annotations

import json
from typing import Any

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
from penstock.jsontext.surrogates import heal

Piece = Text | Reasoning | Refusal | ToolCallDelta


def plain(value: Any) -> Any:
    """The value, made fit to be written as JSON again."""
    try:
        written = msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, RecursionError):
        return _replaced(value) if _is_dumpable(value) else shown(value)
    is_exact = b"null" not in written or _is_dumpable(value, allow_nan=False)  # what JSON has no number for became null
    return value if is_exact else _replaced(value)


def shown(value: Any) -> str:
    """The value as Python shows it, up to a length; one that is nested too deeply for that is not shown."""
    try:
        return heal(str(value)[:10_000])
    except RecursionError:
        return "a value that is nested too deeply"


def _is_dumpable(value: Any, *, allow_nan: bool = True) -> bool:
    try:
        json.dumps(value, allow_nan=allow_nan)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _replaced(value: Any) -> Any:
    return json.loads(heal(json.dumps(value, ensure_ascii=False)), parse_constant=str)


def _fit(chunk: StreamChunk) -> StreamChunk:
    """The event, made fit to be written as JSON: halves of characters turn up in ids and names too."""
    try:
        encode(chunk)
    except UnicodeEncodeError:
        mended: StreamChunk = msgspec.convert(plain(msgspec.to_builtins(chunk)), StreamChunk)
        return mended
    return chunk


class Mender:
    """A stage over events that holds back the first half of a character until the piece with the second half comes.

    A half whose block ends without the other half is told as U+FFFD.
    """

    def __init__(self) -> None:
        self._halves: dict[int, Piece] = {}  # by block

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
                    self._give_up([half for half in self._halves.values() if half.block == chunk.block], out)
                case Finish():
                    self._give_up([half for half in self._halves.values() if half.choice == chunk.choice], out)
                case Retry():
                    self._halves.clear()
                case _:
                    pass
            out.append(_fit(chunk))
        return out

    def close(self) -> list[StreamChunk]:
        out: list[StreamChunk] = []
        self._give_up(list(self._halves.values()), out)
        return out

    def _join(self, chunk: Piece, text: str, out: list[StreamChunk]) -> None:
        half = self._halves.pop(chunk.block, None)
        if half is not None:
            text = (half.piece if isinstance(half, ToolCallDelta) else half.text) + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._halves[chunk.block] = type(chunk)(chunk.block, text[-1], chunk.choice)
            text = text[:-1]
        if text:
            out.append(type(chunk)(chunk.block, heal(text), chunk.choice))

    def _give_up(self, halves: list[Piece], out: list[StreamChunk]) -> None:
        for half in halves:
            del self._halves[half.block]
            out.append(type(half)(half.block, "\ufffd", half.choice))
