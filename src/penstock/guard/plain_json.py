r"""JSON text without needless escapes, so that a guard sees the characters that a reader of the values gets.

`{"a": "\u0062ad"}` becomes `{"a": "bad"}`: the same value. Escapes that JSON needs stay: quotes, backslashes, control
characters and lone surrogates.
"""

from __future__ import annotations

import re

from penstock.events import Retry, StreamChunk, Text, Unknown, Usage

_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\[^u]|\\u(?=[0-9a-fA-F]{0,3}[^0-9a-fA-F])", re.DOTALL)
_CODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_NEEDED = {*map(chr, range(0x20)), '"', "\\"}
_SIZE = len("\\u0000")


def plain_json(text: str) -> str:
    """The text with needless escapes decoded. It may be incomplete, and anything may stand around the JSON."""
    return _ESCAPE.sub(_decoded, text) if "\\" in text else text


def _decoded(escape: re.Match[str]) -> str:
    text = escape[0]
    if text == "\\/":
        return "/"
    if len(text) < _SIZE:
        return text
    characters = "".join(chr(int(code, 16)) for code in _CODE.findall(text))
    joined = characters.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return "".join(f"\\u{ord(one):04x}" if one in _NEEDED or "\ud800" <= one <= "\udfff" else one for one in joined)


def _open_escape(text: str) -> int:
    """Where an escape begins that the next piece may continue, or the length of the text."""
    end, is_high = 0, False
    for escape in _ESCAPE.finditer(text):
        end = escape.end()
        is_high = escape[0].startswith("\\u") and "d800" <= escape[0][-4:].lower() <= "dbff"
    start = text.find("\\", end)
    start = len(text) if start < 0 else start
    return start - _SIZE if is_high and start == end else start


class PlainJSON:
    """A stage: chunks of a response whose text is JSON to chunks without needless escapes, however they are cut."""

    def __init__(self) -> None:
        self._open: dict[int, Text] = {}  # the escape that has not ended, by choice

    def feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """Add chunks; returns them with plain text. An escape that has not ended waits for the next piece."""
        plain: list[StreamChunk] = []
        for chunk in chunks:
            match chunk:
                case Text():
                    plain += self._add(chunk)
                case Usage() | Unknown():
                    plain.append(chunk)
                case Retry():
                    self._open.clear()
                    plain.append(chunk)
                case _:
                    plain += [*self.close(), chunk]
        return plain

    def close(self) -> list[StreamChunk]:
        """End the text; returns escapes that never ended."""
        rest: list[StreamChunk] = [*self._open.values()]
        self._open.clear()
        return rest

    def _add(self, chunk: Text) -> list[Text]:
        pieces: list[Text] = []
        text, before = chunk.text, self._open.pop(chunk.choice, None)
        if before is not None and before.block == chunk.block:
            text = before.text + text
        elif before is not None:
            pieces.append(before)
        if "\\" in text and (end := _open_escape(text)) < len(text):
            self._open[chunk.choice] = Text(chunk.block, text[end:], chunk.choice)
            text = text[:end]
        if text:
            pieces.append(Text(chunk.block, plain_json(text), chunk.choice))
        return pieces
