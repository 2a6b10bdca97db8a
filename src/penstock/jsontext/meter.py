"""Measures JSON as its bytes arrive: what it would cost to decode, before anything is decoded.

A decoder holds the interpreter for as long as it takes, so the cost must be known before. Every step here is one call
of C code for each piece.
"""

from __future__ import annotations

import re
from array import array
from itertools import accumulate

ESCAPES_PER_VALUE = 20
"""How many escapes in strings take as long to decode as one value."""

MAX_DIGITS = 400
"""How many digits a number may have: to convert them takes the square of their number."""

_LEVELS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[{]}")
_DIGITS = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1))


class JSONMeter:
    """The `values` and the `depth` of a JSON text so far, and whether a number `is_long`.

    Values are counted by the commas, colons and opening brackets outside of strings, and by the escapes inside.
    """

    __slots__ = ("_digits", "_escapes", "_is_escaped", "_is_in_string", "_level", "_values", "depth", "is_long")

    def __init__(self) -> None:
        self.depth = 0
        self.is_long = False
        self._values = 0
        self._escapes = 0
        self._level = 0
        self._is_in_string = False
        self._is_escaped = False  # the last byte was a backslash, which belongs to the next one
        self._digits = b""  # those at the end, which may go on

    @property
    def values(self) -> int:
        """How many values there are, with the escapes in strings."""
        return self._values + self._escapes // ESCAPES_PER_VALUE

    def feed(self, piece: bytes) -> None:
        """Measure another piece."""
        parts = self._without_escapes(piece).split(b'"')
        outside = b"".join(parts[self._is_in_string :: 2])
        self._is_in_string ^= len(parts) % 2 == 0
        if outside:
            self._measure(outside)

    def _without_escapes(self, piece: bytes) -> bytes:
        """The piece without escaped quotes and backslashes: each quote begins or ends a string."""
        if self._is_escaped and piece:
            piece, self._is_escaped = piece[1:], False
        if b"\\" not in piece:
            return piece
        self._escapes += piece.count(b"\\")
        piece = piece.replace(rb"\\", b"").replace(rb"\"", b"")
        self._is_escaped = piece.endswith(b"\\")
        return piece

    def _measure(self, outside: bytes) -> None:
        opened = outside.count(b"[") + outside.count(b"{")
        self._values += outside.count(b",") + outside.count(b":") + opened
        if opened or self._level:
            levels = array("b", outside.translate(_LEVELS, _NO_BRACKETS))
            *_, self._level = all_levels = [*accumulate(levels, initial=self._level)]
            self.depth = max(self.depth, *all_levels)
        digits = self._digits + outside
        self.is_long |= _DIGITS.search(digits) is not None
        self._digits = digits[len(digits.rstrip(b"0123456789")) :][: MAX_DIGITS + 1]
