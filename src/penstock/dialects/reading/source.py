"""The text that has arrived, and the few ways in which a dialect may read it.

A dialect is a generator: it reads, and where the text ends too early it yields, to go on when more has come. What it
reads is held until it is known to be a call; if it proves to be none (`Mismatch`), what was held comes out as text. So
a dialect is straight-line code that says what it expects, and nothing is ever shown twice or lost.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator
from typing import TypeVar

from penstock.calls.numbering import Numbering
from penstock.dialects.reading import held
from penstock.dialects.reading.held import Held
from penstock.dialects.reading.marks import Marks, marks_of
from penstock.dialects.reading.output import Teller
from penstock.dialects.reading.schema import Tools
from penstock.dialects.reading.text_call import TextCall
from penstock.jsontext.scan import ValueScanner

Result = TypeVar("Result")
Reading = Generator[None, None, Result]
"""Reads on as text comes: it yields to ask for more, and returns what it read."""

MAX_HEADER = 4096
"""How long what stands between two marks of a header may be: a name, an id, an attribute."""

_SPACE = re.compile(r"\s*")


class Mismatch(Exception):
    """What came does not fit: held text is no call, an open call is broken."""


class Over(Mismatch):
    """The text ended where more was needed."""


class Source(Teller):
    """Reads the arriving text for a dialect, and tells what it found."""

    __slots__ = (
        "_at",
        "_held",
        "_text",
        "call",
        "calls",
        "closed_by",
        "dialect",
        "ends",
        "is_cut",
        "is_over",
        "is_strict",
        "reasoning",
        "tools",
    )

    def __init__(self, tools: Tools, blocks: Numbering, *, is_strict: bool = False) -> None:
        super().__init__(blocks)
        self.tools = tools
        self.is_strict = is_strict  # only declared tools are called
        self.is_over = False
        self.is_cut = False  # whether the text was over before the model had ended it
        self.reasoning = False  # whether reasoning is to be told apart from the answer
        self.dialect = ""
        self.ends: tuple[str, ...] = ()  # the marks that show that a call of the dialect is over
        self.call: TextCall | None = None  # the call that is being written
        self.calls = 0  # how many there have been, broken ones too
        self.closed_by = ""  # the closing mark that was read last
        self._text = ""
        self._at = 0
        self._held: Held | None = None

    def push(self, text: str) -> None:
        """More text has come."""
        self._text = self._text[self._at :] + text if self._at < len(self._text) else text
        self._at = 0

    # -- what it is ------------------------------------------------------------------------------------------------

    def begin(self, name: str, id: str = "") -> TextCall:
        """The name of a call is known: from here on it is a call, whole or broken."""
        name = name.strip()
        if not name or (self.is_strict and name not in self.tools):
            raise Mismatch(f"{name!r} is not a tool")
        self.drop()
        self.line.survive()
        self.calls += 1
        self.call = self.new_call(name, id, f"text:{self.dialect}", self.tools.schema(name))
        return self.call

    def end(self) -> None:
        """The call has ended; what follows is held again until it is known what it is."""
        if self.call is not None:
            self.call.seal()
            self.call = None
        self.hold()

    def hold(self, mark: str = "") -> None:
        """From here on, keep what is read."""
        self._held = Held(mark)

    def release(self) -> None:
        """What was held is text."""
        if self._held is not None:
            self.tell(self._held.text())
        self.drop()

    def drop(self) -> None:
        """What was held was markup."""
        self._held = None

    def rewind(self) -> None:
        """Read again what was held."""
        text = "" if self._held is None else self._held.text()
        self.drop()
        self.unread(text)

    def rest(self) -> str:
        """All that has come and was not read; it counts as read now."""
        return self._take(len(self._text))

    # -- reading ---------------------------------------------------------------------------------------------------

    def take(self, marks: Marks, most: int = sys.maxsize) -> tuple[str, str]:
        """The text up to the next mark, and the mark; or the text that can be no part of one, and the empty string.

        A mark is looked for in the next characters only, so many of them.
        """
        text, start = self._text, self._at
        if not start and self._held is None and marks.cannot_begin_in(text):
            self._at = len(text)
            return text, ""
        at, mark = marks.find(text, start, self.is_over, start + most)
        self._at = at + len(mark)
        if self._held is not None:
            self._keep(text[start : self._at])
        return text[start:at], mark

    def ahead(self, *marks: str) -> Reading[str]:
        """The mark that stands next, which is read; the empty string if there is none."""
        looked_for = marks_of(*marks)
        while (mark := looked_for.match(self._text, self._at, self.is_over)) == "":
            yield
        return self._take(self._at + len(mark)) if mark else ""

    def sees(self, *marks: str) -> Reading[bool]:
        """Whether one of the marks stands next; nothing is read."""
        looked_for = marks_of(*marks)
        while (mark := looked_for.match(self._text, self._at, self.is_over)) == "":
            yield
        return mark is not None

    def expect(self, *marks: str) -> Reading[str]:
        """The mark that must stand next."""
        mark = yield from self.ahead(*marks)
        if not mark and self.is_over and any(one.startswith(self._text[self._at :]) for one in marks):
            raise Over(f"the text ended where {' or '.join(map(repr, marks))} was expected")
        return mark or self.fail(f"expected {' or '.join(map(repr, marks))}")

    def space(self) -> Reading[str]:
        """The white space that stands next."""
        spaces = ""
        while True:
            end = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches the empty string
            spaces += self._take(min(end, self._at + MAX_HEADER - len(spaces)))
            if self._at < len(self._text) or self.is_over or len(spaces) == MAX_HEADER:
                return spaces
            yield

    def close(self, *marks: str) -> Reading[str]:
        """The mark that stands next, white space before it aside; if there is none, nothing is read."""
        spaces = yield from self.space()
        mark = yield from self.ahead(*marks)
        if mark:
            self.closed_by = mark
        else:
            self.unread(spaces)
        return mark

    def peek(self) -> Reading[str]:
        """The next character, which is not read; the empty string at the end."""
        while self._at == len(self._text):
            if self.is_over:
                return ""
            yield
        return self._text[self._at]

    def upto(self, *marks: str) -> Reading[tuple[str, str]]:
        """A short text, and the mark that ends it."""
        looked_for, pieces, size = marks_of(*marks), [], 0
        while True:
            piece, mark = self.take(looked_for, MAX_HEADER + 1 - size)
            pieces.append(piece)
            if (size := size + len(piece)) > MAX_HEADER:
                self.unread(piece[MAX_HEADER - size :] + mark)
                self.fail(f"expected {' or '.join(map(repr, marks))} sooner")
            if mark:
                return "".join(pieces), mark
            yield from self.more()

    def match(self, pattern: re.Pattern[str]) -> Reading[str]:
        """The short text that the pattern matches here; it goes on as long as it matches all that has come."""
        text = ""
        while True:
            found = pattern.match(self._text, self._at)
            text += self._take(min(found.end(), self._at + MAX_HEADER - len(text))) if found else ""
            if self._at < len(self._text) or self.is_over or len(text) == MAX_HEADER:
                return text
            yield

    def flow(self, sink: Callable[[str], None], marks: Marks) -> Reading[str]:
        """Give the text to `sink` as it comes, up to a mark, which is returned; the empty string at the end."""
        while True:
            text, mark = self.take(marks)
            if text:
                sink(text)
            if mark or self.is_over:
                return mark
            yield

    def value(self, sink: Callable[[str], None]) -> Reading[None]:
        """A JSON value, given to `sink` piece by piece as it comes."""
        scan = ValueScanner().feed
        while (end := scan(self._text, self._at)) < 0:
            if self._at < len(self._text):
                sink(self._take(len(self._text)))
            if self.is_over:
                raise Over("the text ended inside a JSON value")
            yield
        sink(self._take(end))

    def json(self) -> Reading[str]:
        """The text of a JSON value."""
        pieces: list[str] = []
        yield from self.value(pieces.append)
        return "".join(pieces)

    def more(self) -> Reading[None]:
        """Wait for more text, which must come."""
        if self.is_over:
            raise Over("the text ended")
        yield

    def fail(self, expected: str) -> str:
        """What comes next does not fit. It is not shown: how much of it has come depends on the cuts."""
        if self._at == len(self._text) and self.is_over:
            raise Over(f"{expected}, and the text ended")
        raise Mismatch(expected)

    def refuse(self, word: str, expected: str) -> str:
        """What was just read is not what it should be; it is there to be read again."""
        self.unread(word)
        return self.fail(expected)

    def _take(self, end: int) -> str:
        piece = self._text[self._at : end]
        self._at = end
        if self._held is not None and piece:
            self._keep(piece)
        return piece

    def _keep(self, piece: str) -> None:
        assert self._held is not None
        room = self._held.room
        self._held.add(piece[:room])
        if len(piece) > room:
            self._at -= len(piece) - room
            raise Mismatch(f"held back more than MAX_HELD ({held.MAX_HELD} characters)")

    def unread(self, text: str) -> None:
        """The text that was just read comes next again."""
        before = self._at - len(text)
        if before >= 0 and self._text.startswith(text, before):
            self._at = before
        else:  # part of it came in an earlier piece
            self._text, self._at = text + self._text[self._at :], 0
        if self._held is not None:
            self._held.give_back(len(text))
