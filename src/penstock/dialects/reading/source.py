"""The source of a grammar: text that is still arriving, which it reads and may hold back, and the calls in that text.

A grammar is a generator. Where it needs text that has not arrived yet, it yields, and continues when more is there. So
a grammar is straight-line code that says what it expects, however the text is cut.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator
from typing import TypeVar

from penstock.calls.numbering import Numbering
from penstock.dialects.provenance import Provenance
from penstock.dialects.reading import held_text
from penstock.dialects.reading.ended_calls import EndedCalls
from penstock.dialects.reading.held_text import HeldText
from penstock.dialects.reading.marks import NO_TAGS, CallTags, Marks, marks_of
from penstock.dialects.reading.markup import Markup, Recording
from penstock.dialects.reading.output import Output
from penstock.dialects.reading.schema import Tools
from penstock.dialects.reading.text_call import TextCall
from penstock.dialects.unmarked import UnmarkedForms, Unsettled, admits
from penstock.events import Confirm, Fault, ToolCallInvalid
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


class Source:
    """What a grammar reads from, and reports its calls to. Its `output` collects the events.

    It is a position in the text that has arrived. While `_held` is set, everything that is read is also kept there (see
    `held_text`).
    """

    __slots__ = (
        "_held",
        "_position",
        "_text",
        "call",
        "call_count",
        "call_ends",
        "dialect",
        "ended",
        "forms",
        "is_cut",
        "is_enclosed",
        "is_over",
        "is_structured",
        "last_closer",
        "markup",
        "only_declared",
        "output",
        "recording",
        "splits_reasoning",
        "tags",
        "tools",
        "undeclared",
        "unsettled",
    )

    def __init__(
        self,
        tools: Tools,
        numbering: Numbering,
        *,
        only_declared: bool = False,
        provenance: Provenance | None = None,
        restores: Callable[[ToolCallInvalid], bool] | None = None,
        undeclared: Callable[[str], None] | None = None,
        unsettled: Unsettled | None = None,
        confirm: Confirm = "end",
        is_structured: bool = False,
    ) -> None:
        self._text = ""
        self._position = 0
        self._held: HeldText | None = None
        self.is_over = False  # whether all of the text has arrived
        self.is_cut = False  # whether the text ended before the model had finished it
        self.is_structured = is_structured  # whether the answer was asked for as JSON: its strings are not searched
        self.tools = tools
        self.output = Output(numbering)
        self.ended = EndedCalls(provenance, restores, confirm)
        self.only_declared = only_declared  # whether only declared tools are called
        self.markup = None if provenance is None else Markup()
        self.undeclared = undeclared  # is called with the name of a call that stays text, as nobody declared its tool
        self.unsettled = unsettled  # if not None, calls without marks count only as the last thing of a message
        self.forms: UnmarkedForms | None = None  # those that are read
        self.recording: Recording | None = None  # what is read of a call that may be reasoning, or text
        self.splits_reasoning = False  # whether reasoning is separated from the answer
        self.dialect = ""
        self.tags: CallTags = NO_TAGS  # the tags around its calls
        self.is_enclosed = False  # whether an end tag belongs to the opening mark
        self.call_ends: tuple[str, ...] = ()  # the marks that show that a call of the dialect is over
        self.call: TextCall | None = None  # the call that is open
        self.call_count = 0  # how many calls there have been, invalid ones too
        self.last_closer = ""  # the mark that `accept_spaced` read last

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
            raise TextEnded(f"the text ended where {_either(marks)} was expected")
        return mark or self.fail(f"expected {_either(marks)}")

    def space(self) -> Reading[str]:
        """Reads the white space that comes next, and what counts as white space in the dialect."""
        spaces = ""
        while True:
            end = _SPACE.match(self._text, self._position).end()  # type: ignore[union-attr]  # it matches the empty string
            spaces += self._take(min(end, self._position + max(0, MAX_HEADER - len(spaces))))
            if self._position < len(self._text) or self.is_over or len(spaces) >= MAX_HEADER:
                layout = self.tags.layout if len(spaces) < MAX_HEADER else ()
                mark = (yield from self.accept(*layout)) if layout else ""
                if not mark:
                    return spaces
                spaces += mark
            else:
                yield

    def peek(self) -> Reading[str]:
        """Returns the next character without reading it; "" at the end of the text."""
        while self._position == len(self._text):
            if self.is_over:
                return ""
            yield
        return self._text[self._position]

    def ends_with(self, *marks: str) -> Reading[bool]:
        """Returns whether nothing follows but the end of the text, or half of one of the marks and the end."""
        if not (yield from self.peek()):
            return True
        return self.is_over and any(mark.startswith(self.unread_text) for mark in marks)

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

    def accept_spaced(self, *marks: str) -> Reading[str]:
        """Reads white space and the mark after it; nothing if the mark is none of these."""
        spaces = yield from self.space()
        mark = yield from self.accept(*marks)
        if mark:
            self.last_closer = mark
        else:
            self.unread(spaces)
        return mark

    # -- calls -----------------------------------------------------------------------------------------------------

    def begin(self, name: str, id: str = "") -> TextCall:
        """Starts a call: what was held is its markup. From here on a mismatch makes the call invalid."""
        written = name.strip()
        name = self.tool_name(written)
        if not name:
            if written and self.undeclared is not None:
                self.undeclared(written)
            raise Mismatch(f"{written!r} is not a tool")
        if not admits(self, name):
            raise Mismatch("it stays text")
        self.drop()
        if self.output.unconfirmed is not None and self.output.unconfirmed.begin():
            self.output.confirm()
        self.call_count += 1
        self.call = self.output.new_call(name, id, f"text:{self.dialect}", self.tools.schema(name))
        return self.call

    def tool_name(self, name: str) -> str:
        """The name of the tool that is called by this name; "" if only declared tools are called, and it is none."""
        return self.tools.meant(name) if self.only_declared else name

    def end(self) -> None:
        """Ends the call, and holds what follows until it is known what it is."""
        if self.call is not None:
            call, self.call = self.call, None
            self.ended.add(call, self.output, self.tags, self.call_markup())
        self.hold()

    def end_invalid(self, why: Fault, message: str) -> None:
        """Ends the call as invalid."""
        if self.call is not None:
            call, self.call = self.call, None
            self.drop()
            call.fail(why, message)
            self.ended.add_invalid(self.output, self.tags, self.call_markup())
        self.hold()

    def call_markup(self) -> str:
        """The markup of the call that ends here; empty if it is not recorded."""
        return "" if self.markup is None else self.markup.take(self.unread_size)

    # -- held text (see `held_text`) -------------------------------------------------------------------------------

    def hold(self, mark: str = "", written: str = "") -> HeldText:
        """Holds back what is read from here on, and the mark before it; `written` is the mark with what was dropped."""
        self._held = held = HeldText(mark)
        if self.markup is not None and self.call is None:
            self.markup.begin(written or mark, self._text, self._position)
        return held

    def is_held(self, held: HeldText) -> bool:
        """Whether this is held still, from its mark on."""
        return self._held is held

    def release(self) -> None:
        """Emits what was held as text."""
        self.add_held(self.output.add)

    def add_held(self, sink: Callable[[str], None]) -> None:
        """Passes what was held to a sink."""
        if self._held is not None:
            sink(self._held.text())
        self.drop()

    def drop(self) -> None:
        """Discards what was held: it was markup."""
        self._held = None

    def drop_ends(self) -> None:
        """Discards the end tags after a call, unless the call has become text again."""
        if self._held is not None:
            self.ended.add_ends(self.output, self._held.text())
        self.drop()

    def record(self, mark: str) -> Recording:
        """Starts a recording of what is read from here on, after a mark."""
        self.recording = Recording()
        self.recording.begin(mark, self._text, self._position)
        return self.recording

    @property
    def is_in_block(self) -> bool:
        """Whether an opening mark was read, and not yet the end of its block."""
        return self.call is not None or self._held is not None

    @property
    def is_read(self) -> bool:
        """Whether everything that has arrived is read, and no block is open."""
        return self._position == len(self._text) and self.call is None and self._held is None

    @property
    def unread_text(self) -> str:
        """The text that has arrived and is not read yet."""
        return self._text[self._position :]

    @property
    def unread_size(self) -> int:
        """How much of the arrived text is not read yet."""
        return len(self._text) - self._position

    def rewind(self) -> None:
        """Puts back what was held, to be read again."""
        text = "" if self._held is None else self._held.text()
        self.drop()
        self.unread(text)

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


def _either(marks: tuple[str, ...]) -> str:
    """The marks in a message; control characters only if there is nothing else, as there are 32 of them."""
    return " or ".join(map(repr, [mark for mark in marks if mark >= " "] or marks))
