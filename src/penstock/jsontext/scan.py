"""Finds the end and the depth of a JSON value in one pass, without parsing it."""

from __future__ import annotations

import re
from array import array
from itertools import accumulate

MAX_DEPTH = 512
"""How deep values may be nested; deeper JSON is malformed. Recursive parsers fail a little above this as well."""

_TO_BRACKET = re.compile(r'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+', re.DOTALL)
TO_QUOTE = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_LEVELS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[{]}")
SPACE = re.compile(r"[ \t\r\n]*")
SCALAR = re.compile(r'[^\s,:"{}\[\]]*')


def is_too_deep(text: str, most: int = MAX_DEPTH) -> bool:
    """Whether JSON text is nested deeper than this."""
    if len(text) <= 2 * most or text.count("{") + text.count("[") <= most:
        return False
    outside = _STRING.sub("", text).encode("ascii", "ignore")
    levels = array("b", outside.translate(_LEVELS, _NO_BRACKETS))
    return max(accumulate(levels), default=0) > most


class ValueScanner:
    """Finds the end of a JSON value. It counts brackets outside of strings and does not check the grammar."""

    __slots__ = ("_depth", "_is_escaped", "_is_in_string", "_kind")

    def __init__(self) -> None:
        self._kind = ""  # "nested", "string" or "scalar" once the first character is known
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False

    @property
    def is_in_string(self) -> bool:
        """Whether the text fed so far ends inside a string."""
        return self._is_in_string

    @property
    def depth(self) -> int:
        """How many brackets are open in the text fed so far."""
        return self._depth

    def feed(self, text: str, position: int = 0) -> int:
        """Reads from `position` on; returns the position after the end of the value, or -1 if it has not ended."""
        if self._is_in_string and '"' not in text and "\\" not in text:  # most pieces of a long string
            self._is_escaped = self._is_escaped and position >= len(text)
            return -1
        if not self._kind:
            position = SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
            if position == len(text):
                return -1
            self._kind = {"{": "nested", "[": "nested", '"': "string"}.get(text[position], "scalar")
            if self._kind == "string":
                self._is_in_string, position = True, position + 1
        if self._kind == "scalar":
            end = SCALAR.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
            return end if end < len(text) else -1
        return self._scan(text, position)

    def _scan(self, text: str, position: int) -> int:
        while True:
            if self._is_in_string:
                position = self._leave_string(text, position)
                if position < 0 or self._kind == "string":
                    return position
            position = _TO_BRACKET.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
            if position == len(text):
                return -1
            match text[position]:
                case "{" | "[":
                    self._depth += 1
                case '"':
                    self._is_in_string = True
                case _:
                    self._depth -= 1
                    if self._depth <= 0:
                        return position + 1
            position += 1

    def _leave_string(self, text: str, position: int) -> int:
        if self._is_escaped and position < len(text):
            self._is_escaped = False
            position += 1
        if quote := TO_QUOTE.match(text, position):
            self._is_in_string = False
            return quote.end()
        rest = len(text) - position
        backslashes = rest - len(text[position:].rstrip("\\")) if text.endswith("\\") else 0
        self._is_escaped = self._is_escaped or backslashes % 2 == 1
        return -1
