"""How much of a growing text is the beginning of a strict JSON object, so that it can be passed on as it comes.

A comma is passed on with what follows it, because a comma before a closing bracket is not JSON. A number or a literal
is passed on when it is complete.
"""

from __future__ import annotations

import re
from typing import Literal

from penstock.jsontext.scan import MAX_DEPTH, SPACE

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*+')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_WORD = re.compile(r'[^\s,:"{}\[\]]*+')
_SCALAR = re.compile(r"(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\Z")
_SCALAR_START = re.compile(r"[-0-9tfn]")
MAX_HELD = 4096
"""How much of a number, or of the space after a comma, is held until the text counts as deviating."""

Expected = Literal["object", "key", "key or end", "colon", "value", "value or end", "comma or end", "nothing"]
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
        safe, size = 0, len(text)
        while self._position < size:
            before = self._position
            is_known = self._string(text) if self._is_in_string else self._token(text)
            if self._position > before and (
                self._is_in_string or self._expected not in ("key", "value") or text[before] == ":"
            ):
                safe = self._position
            if not is_known:
                break
        return safe

    def _string(self, text: str) -> bool:
        """Reads a piece of a string; returns whether more can be read."""
        end = _PLAIN.match(text, self._position).end()  # type: ignore[union-attr]  # it matches the empty string
        self._position = end
        if end == len(text):
            return False
        if text[end] == '"':
            self._position, self._is_in_string = end + 1, False
            return True
        if escape := _ESCAPE.match(text, end):
            self._position = escape.end()
            return True
        self.is_deviating = not _HALF_ESCAPE.match(text, end)
        return False

    def _token(self, text: str) -> bool:
        """Reads a token outside of strings; returns whether more can be read."""
        position = SPACE.match(text, self._position).end()  # type: ignore[union-attr]  # it matches the empty string
        if position > self._position:
            self._position = position
            return True
        sign, expected = text[position], self._expected
        if sign == '"' and expected in ("key", "key or end", "value", "value or end"):
            self._expected = "colon" if "key" in expected else "comma or end"
            self._is_in_string = True
        elif sign == ":" and expected == "colon":
            self._expected = "value"
        elif sign == "," and expected == "comma or end":
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
            return False
        self._position = position + 1
        return True

    def _opens(self, sign: str) -> bool:
        is_value = self._expected in ("value", "value or end") and len(self._open) < MAX_DEPTH
        return is_value or (self._expected == "object" and sign == "{")

    def _scalar(self, text: str, position: int) -> bool:
        """Reads a number or a literal, if it is complete."""
        end = _WORD.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
        if end == len(text):
            self.is_deviating = not _SCALAR_START.match(text, position)
            return False
        if not _SCALAR.match(text[position:end]):
            self.is_deviating = True
            return False
        self._position, self._expected = end, "comma or end"
        return True
