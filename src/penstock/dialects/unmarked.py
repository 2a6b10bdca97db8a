"""Forms of calls without marks, in the text of a model with native calls: where they are calls, and where text.

A JSON object, a code fence, a Python call and an element with the name of a tool are also what a model writes to show a
call, to offer one or to warn of one. Such a form is a call only where nobody could mean anything else. `READINGS` is
the table; docs/healing.md has it, written by `python -m tests.reference_tables`.

The forms are read twice: without effect as they arrive, and again when the end of the text has shown that they are
calls. Until then they are held back; more than MAX_HELD characters are text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.dialects.doubtful_words import doubtful_words

if TYPE_CHECKING:
    from penstock.dialects.reading.ended_calls import EndedCalls
    from penstock.dialects.reading.output import Output
    from penstock.dialects.reading.source import Reading, Source

MAX_BEFORE = 2000
"""How many characters of text may stand before a call without marks."""

Unsettled = Callable[[str, str], None]
"""Is called for a form without marks that stays text: the name of its tool, and why."""

NOT_ALONE = "it is not on lines of its own"
FOLLOWED = "something follows it"
BROKEN = "it is not whole"
TOO_LONG = "it is too long"
AFTER_OTHER = "another call before it stays text"
NO_PARAGRAPH = "more than one paragraph stands before it"
QUESTION = "a question stands before it"
NO_END = "the text before it does not end with `.`, `:` or `…`"

READINGS = (
    (
        "the form is the last thing of the message, on lines of its own; at most white space and end tokens follow",
        "call",
    ),
    ("several forms in a row, with only white space, `,` or `;` between them", "parallel calls"),
    ("words, numbers or list marks between forms", "text, all of them"),
    ("text, a native call or reasoning after the form", "text"),
    ("nothing before the form", "call"),
    ("one paragraph before it that ends with `.`, `:` or `…`", "call"),
    ("a second paragraph, a list, a heading, a table, a quote or code before it", "text"),
    ("a question mark before it", "text"),
    ("a word of the table below before it", "text"),
    (f"more than {MAX_BEFORE:,} characters before it", "text"),
    ("another form before it that stayed text", "text"),
    ("the form in a sentence, in a list, in quotes, in backticks or in other code", "text"),
    ("the form in reasoning", "reasoning"),
    ("a form that is not whole, or a response that was cut", "text, also what follows it"),
)
"""Where a form without marks stands, and what it is."""


_ENDS = (".", ":", "…", "。", "：")
_QUESTIONS = re.compile("[?¿؟⁇⸮]")
_STRUCTURE = re.compile(r"\n[ \t]*\n|```|~~~|^[ \t]*(?:[-+*•>#|]|\d{1,9}[.)])(?=\s)", re.MULTILINE)
"""What one paragraph does not have: blank lines, code fences, and the marks of lists, quotes, headings and tables."""


def why_text(before: str) -> str:
    """Why a form without marks stays text after this text; "" if it is a call."""
    text = before.strip()
    if not text:
        return ""
    if len(before) > MAX_BEFORE or _STRUCTURE.search(text):
        return NO_PARAGRAPH
    text = unicodedata.normalize("NFKC", text).replace("\u2019", "'").casefold()
    if _QUESTIONS.search(text):
        return QUESTION
    if word := doubtful_words().search(text):
        return f"{word[0].strip()!r} stands before it"
    return "" if before.rstrip().rstrip("*_").rstrip().endswith(_ENDS) else NO_END


class TextBefore:
    """The text of a message so far, up to a little more than MAX_BEFORE, and whether a form in it stayed text."""

    __slots__ = ("has_form", "text")

    def __init__(self) -> None:
        self.text = ""
        self.has_form = False


class UnmarkedForms:
    """A run of forms without marks. They are read without effect first, and as calls if `is_final`.

    `why` says why they stay text. `is_broken`: one of them is malformed, so that nobody knows where it ends.
    """

    __slots__ = ("_name", "_start", "_state", "is_broken", "is_final", "why")

    def __init__(self) -> None:
        self.is_final = False
        self.is_broken = False
        self.why = ""
        self._name = ""  # the tool of the first one
        self._start = ""  # how the first one begins, up to where its call does
        self._state: tuple[Output, EndedCalls, int] | None = None  # the state of the source, while it is read on trial

    @property
    def is_suspended(self) -> bool:
        """Whether a call was found, and is read without effect."""
        return self._state is not None

    def admit(self, source: Source, name: str) -> bool:
        """Whether a call may begin here; its text so far is held. The first one suspends all effects of the source."""
        if self.is_final or self._state is not None:
            return True
        self._name, before = name, source.output.before
        if before.has_form:
            self.why = AFTER_OTHER
        else:
            self.why = why_text(before.text) if source.output.is_at_line_start else NOT_ALONE
        if self.why:
            self.note(source)
            return False
        pieces: list[str] = []
        source.add_held(pieces.append)
        self._start = "".join(pieces)
        self._state = source.output, source.ended, source.call_count
        source.record(self._start)
        source.output, source.ended = source.output.blank(), source.ended.blank()
        return True

    def fail(self, why: str, *, is_broken: bool = False) -> None:
        """Records that the forms stay text, and why."""
        self.why, self.is_broken = why, is_broken

    def note(self, source: Source) -> None:
        """Reports that the forms stay text; then all others in the message do."""
        source.output.before.has_form = True
        if source.unsettled is not None:
            source.unsettled(self._name, self.why)

    def resume(self, source: Source) -> str:
        """Restores the effects of the source; returns the text of the forms."""
        assert self._state is not None
        assert source.recording is not None
        text = self._start + source.recording.text(source.unread_size)
        source.drop()
        source.recording = source.call = None
        source.output, source.ended, source.call_count = self._state
        self._state = None
        return text


def admits(source: Source, name: str) -> bool:
    """Whether a call of this tool may begin here. A form without marks may have to stay text."""
    return source.forms is None or source.forms.admit(source, name)


def next_form(source: Source, opens: tuple[str, ...], ends: tuple[str, ...]) -> Reading[tuple[str, str]]:
    """Reads what may stand after a form, and the mark of the next one; returns both.

    That is white space, end marks, and before another form `,` or `;`. If none comes, the separator is not read.
    """
    text = yield from spaces(source)
    while end := (yield from source.accept(*ends)):
        text += end + (yield from spaces(source))
    separator = yield from source.accept(",", ";")
    separator += (yield from spaces(source)) if separator else ""
    mark = yield from source.accept(*opens)
    if not mark:
        source.unread(separator)
    return text + (separator if mark else ""), mark


def spaces(source: Source) -> Reading[str]:
    """Reads all white space that comes next."""
    text = ""
    while piece := (yield from source.space()):
        text += piece
    return text
