"""Marks: the strings that mean something to a dialect, looked for in text that is still coming."""

from __future__ import annotations

import re
from functools import lru_cache


class Marks:
    """A set of marks, ready to be looked for. Where several fit, the longest counts."""

    __slots__ = ("_by_length", "_few", "_first", "_firsts")

    def __init__(self, marks: tuple[str, ...]) -> None:
        self._by_length = sorted(set(marks), key=len, reverse=True)
        firsts = sorted({mark[0] for mark in marks})
        self._first = firsts[0] if len(firsts) == 1 else ""
        self._few = (firsts[0], firsts[len(firsts) // 2], firsts[-1]) if 0 < len(firsts) <= 3 else None
        self._firsts = None if self._first else re.compile("[" + re.escape("".join(firsts)) + "]" if firsts else r"\Z")

    def find(self, text: str, at: int, is_over: bool, most: int) -> tuple[int, str]:
        """Where the first mark begins, and the mark; or where text begins that may become one, and the empty string.

        A mark that begins at `most` or beyond is not looked for.
        """
        end = min(len(text), most)
        while True:
            if self._firsts is None:
                at = text.find(self._first, at, end)
            else:
                at = found.start() if (found := self._firsts.search(text, at, end)) else -1
            if at < 0 or at >= end:
                return end, ""
            if (mark := self.match(text, at, is_over)) is not None:
                return at, mark
            at += 1

    def cannot_begin_in(self, text: str) -> bool:
        """Whether no mark begins anywhere in the text, as is so in most pieces of a long one."""
        if self._few is not None:
            one, another, last = self._few
            return one not in text and another not in text and last not in text
        return self._firsts is not None and self._firsts.search(text) is None

    def match(self, text: str, at: int, is_over: bool) -> str | None:
        """The mark that stands here; the empty string if that cannot be told yet, None if there is none."""
        rest = len(text) - at
        for mark in self._by_length:
            if len(mark) <= rest:
                if text.startswith(mark, at):
                    return mark
            elif not is_over and mark.startswith(text[at:]):
                return ""
        return None


@lru_cache(maxsize=1024)  # some marks are made of what models write
def marks_of(*marks: str) -> Marks:
    """The marks, made ready once."""
    return Marks(marks)
