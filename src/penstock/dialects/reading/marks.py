"""Marks: the strings that have a meaning in a dialect, and the search for them in text that is still arriving."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct

FindStart = Callable[[str], re.Match[str] | None]
"""Finds where a mark may begin in a text, at its first character, or if that is a letter, at the first letters."""


class TagPair(Struct, frozen=True):
    """The start tags and the end tags of one thing, in all spellings. A start tag may lack its end: `<parameter=`."""

    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()


NO_PAIR = TagPair()


class CallTags(Struct, frozen=True):
    """The tags around a raw value, those around its call, around a block of calls, and around a message with it.

    `layout` are texts that count as white space between the tags: some servers write a line break as two characters.
    """

    value: TagPair = NO_PAIR
    call: TagPair = NO_PAIR
    block: TagPair = NO_PAIR
    message: TagPair = NO_PAIR
    layout: tuple[str, ...] = ()

    def without_layout(self) -> CallTags:
        return CallTags(self.value, self.call, self.block, self.message) if self.layout else self

    @property
    def outer(self) -> tuple[TagPair, ...]:
        """The tags that end a call."""
        return tuple(pair for pair in (self.call, self.block, self.message) if pair.ends)

    @property
    def pairs(self) -> tuple[TagPair, ...]:
        return (self.value, *self.outer) if self.value.ends else self.outer


NO_TAGS = CallTags()


class Marks:
    """A set of marks, prepared for searching. Where several match, the longest counts."""

    __slots__ = ("_by_first", "_few", "_first", "_starts", "find_start")

    def __init__(self, marks: tuple[str, ...]) -> None:
        self._by_first: dict[str, list[str]] = {}  # the marks with each first character, the longest first
        for mark in sorted(set(marks), key=len, reverse=True):
            self._by_first.setdefault(mark[0], []).append(mark)
        firsts = sorted(self._by_first)
        self._first = firsts[0] if len(firsts) == 1 else ""
        self._few = (firsts[0], firsts[len(firsts) // 2], firsts[-1]) if 0 < len(firsts) <= 3 else None
        pattern = _starts(marks)
        self._starts = None if self._first else pattern
        self.find_start: FindStart = pattern.search

    def find(self, text: str, position: int, is_over: bool, limit: int) -> tuple[int, str]:
        """Returns the position of the first mark, and the mark.

        If there is none, returns the position of a suffix that may become one, and "". Only marks that begin before
        `limit` are found.
        """
        end = min(len(text), limit)
        while True:
            if self._starts is None:
                position = text.find(self._first, position, end)
            else:
                position = match.start() if (match := self._starts.search(text, position, end)) else -1
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
        return self._starts is not None and self._starts.search(text) is None

    def match(self, text: str, position: int, is_over: bool) -> str | None:
        """Returns the mark at a position; "" if more text is needed to decide, None if there is no mark."""
        rest = len(text) - position
        if not rest:
            return None if is_over or not self._by_first else ""
        for mark in self._by_first.get(text[position], ()):
            if len(mark) <= rest:
                if text.startswith(mark, position):
                    return mark
            elif not is_over and mark.startswith(text[position:]):
                return ""
        return None


def is_half_word(start: re.Match[str]) -> bool:
    """Whether `find_start` found only the first letters of a mark, at the end of the text."""
    return start.lastgroup == "half"


def _starts(marks: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern for the places where a mark may begin.

    A mark is found by its first character, unless that is a letter, which prose has in nearly every word: then by the
    whole mark, or by the first letters of it at the end of the text.
    """
    signs = "".join(sorted({mark[0] for mark in marks if not mark[0].isalpha()}))
    words = sorted({mark for mark in marks if mark[0].isalpha()})
    patterns = [f"[{re.escape(signs)}]"] if signs else []
    if words:
        patterns += [*map(re.escape, words), rf"(?P<half>{'|'.join(map(_half, words))})\Z"]
    return re.compile("|".join(patterns) or r"(?!)")


def _half(word: str) -> str:
    """A pattern for the first letters of a word."""
    return re.escape(word[0]) + (f"(?:{_half(word[1:])})?" if len(word) > 2 else "")


@lru_cache(maxsize=1024)  # bounded: some marks contain names that models write
def marks_of(*marks: str) -> Marks:
    """Returns the marks, prepared once per set."""
    return Marks(marks)
