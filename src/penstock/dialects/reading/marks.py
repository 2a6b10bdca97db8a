"""Marks: the strings that have a meaning in a dialect, and the search for them in text that is still arriving."""

from __future__ import annotations

import re
from functools import lru_cache


class Marks:
    """A set of marks, prepared for searching. Where several match, the longest counts."""

    __slots__ = ("_by_length", "_few", "_first", "_firsts", "find_start")

    def __init__(self, marks: tuple[str, ...]) -> None:
        self._by_length = sorted(set(marks), key=len, reverse=True)
        firsts = sorted({mark[0] for mark in marks})
        self._first = firsts[0] if len(firsts) == 1 else ""
        self._few = (firsts[0], firsts[len(firsts) // 2], firsts[-1]) if 0 < len(firsts) <= 3 else None
        pattern = re.compile("[" + re.escape("".join(firsts)) + "]" if firsts else r"\Z")
        self._firsts = None if self._first else pattern
        self.find_start = pattern.search  # finds a character with which a mark can begin

    def find(self, text: str, position: int, is_over: bool, limit: int) -> tuple[int, str]:
        """Returns the position of the first mark, and the mark.

        If there is none, returns the position of a suffix that may become one, and "". Only marks that begin before
        `limit` are found.
        """
        end = min(len(text), limit)
        while True:
            if self._firsts is None:
                position = text.find(self._first, position, end)
            else:
                position = match.start() if (match := self._firsts.search(text, position, end)) else -1
            if position < 0 or position >= end:
                return end, ""
            if (mark := self.match(text, position, is_over)) is not None:
                return position, mark
            position += 1

    def cannot_begin_in(self, text: str) -> bool:
        """Returns whether no mark can begin anywhere in the text; a fast check, true of most pieces of a long text."""
        if self._few is not None:
            first, second, third = self._few
            return first not in text and second not in text and third not in text
        return self._firsts is not None and self._firsts.search(text) is None

    def match(self, text: str, position: int, is_over: bool) -> str | None:
        """Returns the mark at a position; "" if more text is needed to decide, None if there is no mark."""
        rest = len(text) - position
        for mark in self._by_length:
            if len(mark) <= rest:
                if text.startswith(mark, position):
                    return mark
            elif not is_over and mark.startswith(text[position:]):
                return ""
        return None


@lru_cache(maxsize=1024)  # bounded: some marks contain names that models write
def marks_of(*marks: str) -> Marks:
    """Returns the marks, prepared once per set."""
    return Marks(marks)
