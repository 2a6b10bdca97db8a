"""The cursor: how a grammar reads text that is still arriving.

A grammar is a generator. Where it needs text that has not arrived yet, it yields, and continues when more is there. So
a grammar is straight-line code that says what it expects, however the text is cut.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator
from typing import TypeVar

from penstock.dialects.reading import held_text
from penstock.dialects.reading.held_text import HeldText
from penstock.dialects.reading.marks import Marks, marks_of
from penstock.jsontext.scan import ValueScanner

Result = TypeVar("Result")
Reading = Generator[None, None, Result]
"""A generator that yields to wait for more text, and returns what it read."""

MAX_HEADER = 4096
"""How many characters a name, an id or an attribute between two marks may have; a longer one does not match."""

_SPACE = re.compile(r"\s*")


class Mismatch(Exception):
    """The text does not fit the grammar: held text is not a call, an open call is malformed."""


class TextEnded(Mismatch):
    """The text ended where the grammar needed more."""


class Cursor:
    """A position in the arriving text.

    While `_held` is set, everything that is read is also kept there (see `held_text`).
    """

    __slots__ = ("_held", "_position", "_text", "is_cut", "is_over")

    def __init__(self) -> None:
        self._text = ""
        self._position = 0
        self._held: HeldText | None = None
        self.is_over = False  # whether all of the text has arrived
        self.is_cut = False  # whether the text ended before the model had finished it

    def push(self, text: str) -> None:
        """Adds text that has arrived."""
        self._text = self._text[self._position :] + text if self._position < len(self._text) else text
        self._position = 0

    # -- reading ---------------------------------------------------------------------------------------------------

    def take(self, marks: Marks, limit: int = sys.maxsize) -> tuple[str, str]:
        """Reads the text up to the next mark, and the mark; or the text that cannot be part of one, and "".

        Only marks that begin within the next `limit` characters are found.
        """
        text, start = self._text, self._position
        if not start and self._held is None and marks.cannot_begin_in(text):
            self._position = len(text)
            return text, ""
        position, mark = marks.find(text, start, self.is_over, start + limit)
        self._position = position + len(mark)
        if self._held is not None:
            self._keep(text[start : self._position])
        return text[start:position], mark

    def accept(self, *marks: str) -> Reading[str]:
        """Reads the mark that comes next; "" if none of them does."""
        candidates = marks_of(*marks)
        while (mark := candidates.match(self._text, self._position, self.is_over)) == "":
            yield
        return self._take(self._position + len(mark)) if mark else ""

    def sees(self, *marks: str) -> Reading[bool]:
        """Returns whether one of the marks comes next; nothing is read."""
        candidates = marks_of(*marks)
        while (mark := candidates.match(self._text, self._position, self.is_over)) == "":
            yield
        return mark is not None

    def expect(self, *marks: str) -> Reading[str]:
        """Reads the mark that must come next."""
        mark = yield from self.accept(*marks)
        if not mark and self.is_over and any(candidate.startswith(self._text[self._position :]) for candidate in marks):
            raise TextEnded(f"the text ended where {' or '.join(map(repr, marks))} was expected")
        return mark or self.fail(f"expected {' or '.join(map(repr, marks))}")

    def space(self) -> Reading[str]:
        """Reads the white space that comes next."""
        spaces = ""
        while True:
            end = _SPACE.match(self._text, self._position).end()  # type: ignore[union-attr]  # it matches the empty string
            spaces += self._take(min(end, self._position + MAX_HEADER - len(spaces)))
            if self._position < len(self._text) or self.is_over or len(spaces) == MAX_HEADER:
                return spaces
            yield

    def peek(self) -> Reading[str]:
        """Returns the next character without reading it; "" at the end of the text."""
        while self._position == len(self._text):
            if self.is_over:
                return ""
            yield
        return self._text[self._position]

    def upto(self, *marks: str) -> Reading[tuple[str, str]]:
        """Reads a text of at most MAX_HEADER characters, and the mark that ends it."""
        candidates, pieces, size = marks_of(*marks), [], 0
        while True:
            piece, mark = self.take(candidates, MAX_HEADER + 1 - size)
            pieces.append(piece)
            if (size := size + len(piece)) > MAX_HEADER:
                self.unread(piece[MAX_HEADER - size :] + mark)
                self.fail(f"expected {' or '.join(map(repr, marks))} sooner")
            if mark:
                return "".join(pieces), mark
            yield from self.more()

    def match(self, pattern: re.Pattern[str]) -> Reading[str]:
        """Reads at most MAX_HEADER characters that match; the pattern is matched again where new text arrives."""
        text = ""
        while True:
            match = pattern.match(self._text, self._position)
            text += self._take(min(match.end(), self._position + MAX_HEADER - len(text))) if match else ""
            if self._position < len(self._text) or self.is_over or len(text) == MAX_HEADER:
                return text
            yield

    def flow(self, sink: Callable[[str], None], marks: Marks) -> Reading[str]:
        """Passes the text to `sink` as it arrives, and returns the mark that ends it; "" at the end of the text."""
        while True:
            text, mark = self.take(marks)
            if text:
                sink(text)
            if mark or self.is_over:
                return mark
            yield

    def value(self, sink: Callable[[str], None]) -> Reading[None]:
        """Passes a JSON value to `sink` as it arrives."""
        scan = ValueScanner().feed
        while (end := scan(self._text, self._position)) < 0:
            if self._position < len(self._text):
                sink(self._take(len(self._text)))
            if self.is_over:
                raise TextEnded("the text ended inside a JSON value")
            yield
        sink(self._take(end))

    def rest(self) -> str:
        """Reads everything that has arrived."""
        return self._take(len(self._text))

    def unread(self, text: str) -> None:
        """Steps back over the text that was just read."""
        before = self._position - len(text)
        if before >= 0 and self._text.startswith(text, before):
            self._position = before
        else:  # part of it arrived in an earlier piece
            self._text, self._position = text + self._text[self._position :], 0
        if self._held is not None:
            self._held.give_back(len(text))

    # -- mismatches ------------------------------------------------------------------------------------------------

    def more(self) -> Reading[None]:
        """Waits for more text; it is a mismatch if there is none."""
        if self.is_over:
            raise TextEnded("the text ended")
        yield

    def fail(self, expected: str) -> str:
        """Raises a mismatch. The message does not quote what follows: how much of it is there depends on the cuts."""
        if self._position == len(self._text) and self.is_over:
            raise TextEnded(f"{expected}, and the text ended")
        raise Mismatch(expected)

    def refuse(self, word: str, expected: str) -> str:
        """Steps back over a word that was just read, and raises a mismatch."""
        self.unread(word)
        return self.fail(expected)

    def _take(self, end: int) -> str:
        piece = self._text[self._position : end]
        self._position = end
        if self._held is not None and piece:
            self._keep(piece)
        return piece

    def _keep(self, piece: str) -> None:
        assert self._held is not None
        if (excess := self._held.keep(piece)) > 0:
            self._position -= excess
            raise Mismatch(f"held back more than MAX_HELD ({held_text.MAX_HELD} characters)")
