"""Characters that arrive in halves: some servers cut their text between the two surrogates of a pair (QUIRKS 50)."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from penstock.events import Reasoning, Refusal, StreamChunk, Text, ToolCallDelta

_ESCAPED_LONE = re.compile(r"(?<!\\)((?:\\\\)*)\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def heal(text: str) -> str:
    """The text with surrogate pairs joined and lone halves replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def plain(value: Any) -> Any:
    """The value, made fit to be written as JSON again."""
    try:
        msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, RecursionError):
        return heal(repr(value)[:10_000]) if not _is_dumpable(value) else _replaced(value)
    return value


def _is_dumpable(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _replaced(value: Any) -> Any:
    return json.loads(
        _ESCAPED_LONE.sub(r"\1\\ufffd", json.dumps(json.loads(heal(json.dumps(value, ensure_ascii=False)))))
    )


_CLASSES: dict[str, type[Text | Reasoning | Refusal | ToolCallDelta]] = {
    kind.type: kind for kind in (Text, Reasoning, Refusal, ToolCallDelta)
}


class Mender:
    """A stage over events that holds back the first half of a character until the piece with the second half comes."""

    def __init__(self) -> None:
        self._halves: dict[tuple[str, int], str] = {}

    def feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        out: list[StreamChunk] = []
        for chunk in chunks:
            match chunk:
                case Text() | Reasoning() | Refusal():
                    if text := self._join(chunk.type, chunk.block, chunk.text):
                        out.append(type(chunk)(chunk.block, text, chunk.choice))
                case ToolCallDelta():
                    if text := self._join(chunk.type, chunk.block, chunk.piece):
                        out.append(ToolCallDelta(chunk.block, text, chunk.choice))
                case _:
                    out.append(chunk)
        return out

    def _join(self, kind: str, block: int, text: str) -> str:
        text = self._halves.pop((kind, block), "") + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._halves[kind, block] = text[-1]
            text = text[:-1]
        return heal(text)

    def close(self) -> list[StreamChunk]:
        """Halves whose other half never came."""
        halves, self._halves = self._halves, {}
        return [_CLASSES[kind](block, "\ufffd") for kind, block in halves]
