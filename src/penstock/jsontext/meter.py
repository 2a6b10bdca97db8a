"""Measures JSON as its bytes arrive: what it would cost to decode, before anything is decoded.

A decoder holds the interpreter for as long as it takes, so the cost must be known before. Every step here is one call
of C code for each piece.
"""

from __future__ import annotations

from array import array
from itertools import accumulate

ESCAPES_PER_VALUE = 20
"""How many escapes in strings take as long to decode as one value."""

WIDE_PER_VALUE = 80
"""How many bytes of a string that is not ASCII take as long to decode as one value."""

DIGITS_PER_VALUE = 32
"""How many digits of a long number take as long to decode as one value."""

FRACTION = 3
"""How many more values a number counts for that has a fraction or an exponent."""

LARGE_EXPONENT = 128
"""How many more values a number counts for whose exponent has three digits."""

MAX_DIGITS = 400
"""How many digits a number may have: to convert them takes the square of their number."""

LONGEST_NUMBER = MAX_DIGITS + 100
"""How many characters of a number are kept that may go on in the next piece."""

_PIECE = 64 * 1024  # texts are measured in pieces, so that measuring can stop at the limit
_LEVELS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[{]}")
_ONE_DIGIT = bytes.maketrans(b"123456789E", b"000000000e")
_EXPONENTS = (b"e000", b"e-000", b"e+000")
_TOO_LONG = b"0" * (MAX_DIGITS + 1)


class JSONMeter:
    """The `values` and the `depth` of a JSON text so far, and whether a number `is_long`.

    Values are counted by the commas, colons and opening brackets outside of strings. What takes longer than a value
    counts as several: escapes, strings that are not ASCII, long numbers, and numbers with a fraction or an exponent.
    """

    __slots__ = (
        "_escapes", "_is_escaped", "_is_in_string", "_is_wide", "_level", "_number", "_open", "_values", "_wide",
        "depth", "is_long",
    )  # fmt: skip

    def __init__(self) -> None:
        self.depth = 0
        self.is_long = False
        self._values = 0
        self._escapes = 0
        self._level = 0
        self._is_in_string = False
        self._is_escaped = False  # the last byte was a backslash, which belongs to the next one
        self._number = b""  # the one at the end, which may go on
        self._open = 0  # the bytes of the open string, as long as they are ASCII
        self._is_wide = False  # the open string is not ASCII
        self._wide = 0

    @property
    def values(self) -> int:
        """How many values there are, or as how many the text counts."""
        return self._values + self._escapes // ESCAPES_PER_VALUE + self._wide // WIDE_PER_VALUE

    @property
    def escapes(self) -> int:
        """How many escapes its strings have."""
        return self._escapes

    def feed(self, piece: bytes) -> None:
        """Measure another piece."""
        parts = self._without_escapes(piece).split(b'"')
        self._measure_width(piece, is_same=len(parts) == 1)
        outside = b"".join(parts[self._is_in_string :: 2])
        self._is_in_string ^= len(parts) % 2 == 0
        if outside:
            self._measure(outside)

    def _measure_width(self, piece: bytes, *, is_same: bool) -> None:
        """Count a piece with a string that is not ASCII, and what came before of the string that is open."""
        if not is_same:
            self._is_wide = False
        if not piece.isascii():
            self._wide += len(piece) + self._open
            self._is_wide, self._open = True, 0
        elif self._is_wide:
            self._wide += len(piece)
        else:
            self._open = self._open + len(piece) if is_same else len(piece)

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
        self._measure_numbers(outside.translate(_ONE_DIGIT))

    def _measure_numbers(self, outside: bytes) -> None:
        """Count what takes longer than a value. Every digit is a zero here."""
        text = self._number + outside
        self._values += _weight(text) - _weight(self._number)
        self.is_long |= _TOO_LONG in text
        self._number = text[len(text.rstrip(b"0.e+-")) :][-LONGEST_NUMBER:]


def _weight(text: bytes) -> int:
    """As how many more values the numbers of a text count."""
    exponents = text.count(b"0e")
    large = sum(map(text.count, _EXPONENTS)) if exponents else 0
    return FRACTION * (text.count(b".") + exponents) + LARGE_EXPONENT * large + text.count(_TOO_LONG[:DIGITS_PER_VALUE])


def is_complex(text: bytes, values: int, escapes: int) -> bool:
    """Whether it takes long to decode this JSON: it has more values, or more escapes in strings, than these."""
    if len(text) <= min(values, escapes):
        return False
    meter = JSONMeter()
    for start in range(0, len(text), _PIECE):
        meter.feed(text[start : start + _PIECE])
        if meter.values > values or meter.escapes > escapes:
            return True
    return False
