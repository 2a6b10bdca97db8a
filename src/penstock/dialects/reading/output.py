"""The output of a reader: text and calls as events, each in a block of its own."""

from __future__ import annotations

import re

from penstock.calls.numbering import Numbering
from penstock.dialects.reading.code_spans import CodeSpans
from penstock.dialects.reading.schema import Schema
from penstock.dialects.reading.text_call import TextCall
from penstock.dialects.reading.unconfirmed import AMBIGUOUS, Unconfirmed
from penstock.dialects.unmarked import MAX_BEFORE, TextBefore
from penstock.events import Fault, Reasoning, StreamChunk, Text
from penstock.jsontext.scan import ValueScanner

_BEGINS_JSON = re.compile(r'\s*(?:\{\s*"|\[\s*[\[{"])')


class AnswerJSON:
    """Follows an answer that is JSON from its beginning. It `is_open` until the value ends, or is none."""

    __slots__ = ("_scanner", "_start", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self._start = ""  # the first bracket, while it is not clear whether the answer is JSON
        self._scanner: ValueScanner | None = None

    @property
    def is_in_string(self) -> bool:
        """Whether the text so far ends inside a string."""
        return self.is_open and self._scanner is not None and self._scanner.is_in_string

    def add(self, text: str) -> None:
        if self._scanner is None:
            visible = text.strip()
            if not visible or (not self._start and visible in ("{", "[")):
                self._start += visible
                return
            text = self._start + text
            self._scanner = ValueScanner()
            self.is_open = _BEGINS_JSON.match(text) is not None
        if self.is_open:
            self.is_open = self._scanner.feed(text) < 0


class Output:
    """Collects `events`. `kind` is the type of event that text becomes: `Text` or `Reasoning`."""

    __slots__ = ("_block", "_block_kind", "_numbering", "before", "code", "events", "has_answer", "json", "kind",
                 "unconfirmed")  # fmt: skip

    def __init__(self, numbering: Numbering) -> None:
        self.events: list[StreamChunk] = []
        self.kind: type[Text | Reasoning] = Text
        self.code = CodeSpans()  # the code spans of the text so far
        self.json = AnswerJSON()  # the answer as JSON, if it is that
        self.before = TextBefore()  # the text so far, which decides on calls without marks
        self.has_answer = False  # whether there was a call, or visible text other than white space
        self.unconfirmed: Unconfirmed | None = None  # the calls that wait for what follows them
        self._numbering = numbering
        self._block = -1
        self._block_kind: type[Text | Reasoning] | None = None

    def blank(self) -> Output:
        """Another output, for what is read without effect."""
        return Output(Numbering(""))

    @property
    def is_at_line_start(self) -> bool:
        """Whether text that is added here begins a line."""
        return self._block_kind is not self.kind or self.code.is_at_line_start

    def take(self) -> list[StreamChunk]:
        """Returns the events since the last time."""
        events = self.events.copy()
        self.events.clear()
        return events

    def add(self, text: str) -> None:
        """Adds text of the current kind."""
        if text and not (self.unconfirmed is not None and self._splits(text, self.unconfirmed)):
            if self._block_kind is not self.kind:
                self._block_kind, self._block = self.kind, self._numbering.new_block()
                self.code.restart()
            self.events.append(self.kind(self._block, text))
            self.code.add(text)
            if self.json.is_open and self.kind is Text:
                self.json.add(text)
            if self.kind is Text and len(self.before.text) <= MAX_BEFORE:
                self.before.text += text[: MAX_BEFORE + 1]
            if not self.has_answer:
                self.has_answer = self.kind is Text and not text.isspace()

    def _splits(self, text: str, unconfirmed: Unconfirmed) -> bool:
        """Whether an end tag in the text shows that calls are ambiguous; if so, the text is added with their end."""
        if not (end := unconfirmed.find_end(text)):
            return False
        self.unconfirmed = None
        self.add(text[:end])
        self.unconfirmed = unconfirmed
        self.fail("ambiguous", AMBIGUOUS)
        self.add(text[end:])
        return True

    def drop(self, token: str) -> None:
        """Drops a control token; it may be the end of a call that seems to have ended."""
        if self.unconfirmed is not None and self.unconfirmed.find_end(token):
            self.fail("ambiguous", AMBIGUOUS)

    def restore(self, markup: str) -> None:
        """Replaces the call that has just ended by its markup: it does not count as a call of the response."""
        self.events.pop()
        self._numbering.calls -= 1
        self.add(markup)

    def confirm(self) -> None:
        """Emits the calls that wait for what follows them."""
        if self.unconfirmed is not None:
            self.unconfirmed.confirm()

    def fail(self, why: Fault, message: str) -> None:
        """Ends the calls that wait for what follows them as invalid."""
        unconfirmed, self.unconfirmed = self.unconfirmed, None  # the text of the calls is not searched for tags
        if unconfirmed is not None:
            unconfirmed.fail(why, message)
            self.unconfirmed = unconfirmed

    def new_call(self, name: str, id: str, origin: str, schema: Schema) -> TextCall:
        """Starts a call, which is announced at once; text after it is another block."""
        self._block_kind, self.has_answer = None, True
        self.code.begin_call()
        number = self._numbering
        return TextCall(self.events, number.new_block(), number.unique_id(id), name, origin, schema)
