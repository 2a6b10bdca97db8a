"""How much of a growing text is the beginning of a strict JSON object, so that it can be passed on as it comes.

A comma is passed on with what follows it, because a comma before a closing bracket is not JSON. A number or a literal
is passed on when it is complete.
"""

from __future__ import annotations

import re
from typing import Literal

from penstock.jsontext.scan import MAX_DEPTH, SPACE

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*+')
_CONTENT = re.compile(r'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+')  # of a string
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_WORD = re.compile(r'[^\s,:"{}\[\]]*+')
_SCALAR = re.compile(r"(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\Z")
_SCALAR_START = re.compile(r"[-0-9tfn]")
MAX_HELD = 4096
"""How much of a number, or of the space after a comma, is held until the text counts as deviating."""

Expected = Literal["object", "key", "key or end", "colon", "value", "value or end", "comma or end", "nothing"]
_AFTER_SIGN: dict[Expected, dict[str, Expected]] = {
    "key": {'"': "colon"},
    "key or end": {'"': "colon"},
    "colon": {":": "value"},
    "value": {'"': "comma or end"},
    "value or end": {'"': "comma or end"},
    "object": {},
    "comma or end": {},
    "nothing": {},
}
"""What is expected after a colon, and after a string that begins."""
_AFTER_COMMA: dict[str, Expected] = {"{": "key", "[": "value"}


class StrictObject:
    """Reads a text piece by piece; `feed` returns what can be passed on, and the rest is held.

    Once the text deviates from strict JSON, everything is held.
    """

    __slots__ = ("_expected", "_held", "_is_in_string", "_open", "_position", "is_deviating")

    def __init__(self) -> None:
        self.is_deviating = False
        self._expected: Expected = "object"
        self._open: list[str] = []  # the brackets that are open
        self._is_in_string = False
        self._held = ""  # what was not passed on
        self._position = 0  # how much of that was read

    def feed(self, piece: str) -> str:
        """Reads a piece; returns the text that can be passed on now."""
        if self.is_deviating:
            return ""
        if self._is_in_string and not self._held:
            end = _PLAIN.match(piece).end()  # type: ignore[union-attr]  # it matches the empty string
            if end == len(piece):  # most pieces of a long string
                return piece
        text = self._held + piece
        safe = self._read(text)
        self._held, self._position = text[safe:], self._position - safe
        self.is_deviating |= len(self._held) > MAX_HELD
        return text[:safe]

    def _read(self, text: str) -> int:
        """Reads the text from `_position` on, as far as it is strict; returns up to where it can be passed on."""
        position, safe, size = self._position, 0, len(text)
        while position < size:
            if self._is_in_string:
                safe = position = _CONTENT.match(text, position).end()  # type: ignore[union-attr]  # it always matches
                if position == size:
                    break
                if text[position] != '"':
                    self.is_deviating = not _HALF_ESCAPE.match(text, position)
                    break
                self._is_in_string = False
                safe = position = position + 1
            elif (expected := _AFTER_SIGN[self._expected].get(sign := text[position])) is not None:
                self._expected, self._is_in_string = expected, sign == '"'
                safe = position = position + 1
            elif (end := self._token(text, position)) > position:
                position = end
                if self._expected not in ("key", "value"):
                    safe = position
            else:
                break
        self._position = position
        return safe

    def _token(self, text: str, position: int) -> int:
        """Reads a token; returns its end, or `position` if it is wrong or not complete."""
        sign, expected = text[position], self._expected
        if sign in " \t\r\n":
            return SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
        if sign == "," and expected == "comma or end":
            self._expected = _AFTER_COMMA[self._open[-1]]
        elif sign in "{[" and self._opens(sign):
            self._open.append(sign)
            self._expected = "key or end" if sign == "{" else "value or end"
        elif sign in "}]" and "end" in expected and self._open[-1] == "{["["}]".index(sign)]:
            self._open.pop()
            self._expected = "comma or end" if self._open else "nothing"
        elif expected in ("value", "value or end"):
            return self._scalar(text, position)
        else:
            self.is_deviating = True
            return position
        return position + 1

    def _opens(self, sign: str) -> bool:
        is_value = self._expected in ("value", "value or end") and len(self._open) < MAX_DEPTH
        return is_value or (self._expected == "object" and sign == "{")

    def _scalar(self, text: str, position: int) -> int:
        """Reads a number or a literal, if it is complete; returns its end."""
        end = _WORD.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
        if end == len(text):
            self.is_deviating = not _SCALAR_START.match(text, position)
            return position
        if not _SCALAR.match(text[position:end]):
            self.is_deviating = True
            return position
        self._expected = "comma or end"
        return end
