"""`Reader`: parses a text into answer, reasoning and calls, in one dialect or in several."""

from __future__ import annotations

import sys
from functools import lru_cache

from msgspec import Struct

from penstock.calls.numbering import Numbering
from penstock.dialects.dialect import END_TOKENS, THINK, Dialects
from penstock.dialects.reading.held_text import MAX_HELD
from penstock.dialects.reading.marks import FindStart, Marks, marks_of
from penstock.dialects.reading.output import Output
from penstock.dialects.reading.recovery import give_up
from penstock.dialects.reading.source import Mismatch, Reading, Source
from penstock.dialects.reading.unconfirmed import AMBIGUOUS
from penstock.events import Reasoning, StreamChunk, Text

_CONTROL = ("<|", "<｜", "]<]", "[TOOL_CALLS]")  # how control tokens begin; they are markup even in code

STRIKE, STRIKE_END = "<s>", "</s>"
"""Tags of HTML; the second is also an end token."""
KEPT_TABLES = 64
"""For how many sets of dialects and tools the marks are kept; some marks contain the names of tools."""


class Reader:
    """Parses the text of a source. Text is emitted at once, except for a suffix that could begin a mark."""

    def __init__(self, source: Source, dialects: Dialects, *, splits_reasoning: bool, starts_inside: bool) -> None:
        source.splits_reasoning = splits_reasoning
        self._source = source
        self._events = source.output.events
        self._dialects = dialects.rows
        self._starts_inside = starts_inside
        self._marks = DialectMarks(mark_table(dialects, tuple(source.tools.names), source.only_declared))
        self._strikes = 0  # how many `<s>` are open
        self._reading = self.read()

    def feed(self, text: str) -> list[StreamChunk]:
        """Parses a piece of text, and returns the events that it completes."""
        source = self._source
        source.push(text)
        if source.markup is not None:
            source.markup.add(text)
        if source.recording is not None:
            source.recording.add(text)
        next(self._reading, None)
        events = self._events.copy()  # as `Output.take` does, without a method call per piece
        self._events.clear()
        return events

    def close(self, *, is_cut: bool = False) -> list[StreamChunk]:
        """Ends the text, and returns the events that were held back. `is_cut`: the model did not finish its text."""
        self._source.is_over = True
        self._source.is_cut = is_cut
        next(self._reading, None)
        if is_cut:
            self._source.output.fail("cut", "the text was cut off before it was clear where the call ends")
        else:
            self._source.output.confirm()
        return self._source.output.take()

    @property
    def is_in_call(self) -> bool:
        """Whether a call, or the block around calls, is open."""
        return self._source.is_in_block

    @property
    def flows(self) -> bool:
        """Whether nothing is held back, and no call is open or waits for what follows it."""
        source = self._source
        return source.is_read and source.output.unconfirmed is None

    @property
    def find_start(self) -> FindStart:
        """Finds where a mark may begin in a text; if it is None, the text is emitted as it is while it `flows`.

        The text may be reasoning, so the marks that end reasoning count.
        """
        return self._marks.everywhere().find_start

    @property
    def held_back(self) -> str:
        """The end of the text that may begin a mark; empty within a call."""
        return "" if self.is_in_call else self._source.unread_text

    def read(self) -> Reading[None]:
        """Reads the whole text."""
        yield from self._start()
        marks = self._marks
        while mark := (yield from self._source.flow(self._source.output.add, marks.all())):
            if self._source.is_structured and self._source.output.json.is_in_string:
                self._source.output.add(mark)
            elif mark in marks.ends:
                yield from self._end_token(mark)
            elif self._is_in_code(mark):
                self._add_code(mark)
            elif mark in marks.opens:
                yield from self._block(mark)
            elif mark in marks.missing:
                marks.set_missing(marks.missing - {mark})
                self._drop_end(mark, is_direct=False)
            elif mark in marks.think:
                yield from self._think_block(mark)
                yield from self._begin_inside()
            else:
                self._source.output.drop(mark)

    def _end_token(self, mark: str) -> Reading[None]:
        """Reads end tokens. They are removed at the end of the text; elsewhere, and after `<s>`, they are text."""
        source, text, spaces = self._source, "", ""
        if mark == STRIKE or (mark == STRIKE_END and self._strikes):
            self._strikes += 1 if mark == STRIKE else -1
            source.output.add(mark)
            return
        while mark:
            text += spaces + mark
            spaces = yield from source.space()
            mark = yield from source.accept(*END_TOKENS)
        if (yield from source.peek()):
            source.output.add(text)
            source.unread(spaces)

    def _is_in_code(self, mark: str) -> bool:
        """Returns whether the mark is quoted in code. A line break as a mark ends code, but not a fenced block."""
        code = self._source.output.code
        if mark in self._marks.control:
            return False
        return code.is_in_fence if mark[0] in "\r\n" else code.is_in_code

    def _is_in_code_of_reasoning(self, mark: str) -> Reading[bool]:
        """Returns whether a mark in reasoning is quoted in code, for certain: models often leave code open there."""
        if not self._is_in_code(mark):
            return False
        is_last = yield from self._source.sees("\n", "\r")
        return self._source.output.code.surely_contains(is_last=is_last)

    def _add_code(self, mark: str) -> None:
        self._source.output.add(mark)
        self._source.output.code.add_mark()

    def _start(self) -> Reading[None]:
        """Reads the start of the text, if the prompt ended with an opening mark."""
        source = self._source
        if self._starts_inside:
            yield from source.accept_spaced(*self._marks.think)
            yield from self._reason(tuple(self._marks.think.values()))
        elif not source.only_declared and (yield from source.accept_spaced(*self._marks.think.values())):
            yield from source.space()  # the end of reasoning that the server removed
        yield from self._begin_inside()

    def _begin_inside(self) -> Reading[None]:
        """Reads a block without its opening mark, which was in the prompt, if there is no answer text yet."""
        if not self._source.output.has_answer and self._marks.inside:
            yield from self._block("")

    def _think_block(self, mark: str) -> Reading[None]:
        """Reads reasoning between marks. If it is not separated it stays text, unless it is empty."""
        source = self._source
        closer = self._marks.think[mark]
        if source.splits_reasoning:
            yield from self._reason((closer,))
            return
        if source.only_declared:  # calls in reasoning are not rescued
            source.output.add(mark)
            source.output.add((yield from source.flow(source.output.add, marks_of(closer))))
            source.output.code.end_code()
            return
        source.hold(mark)
        if (yield from source.accept_spaced(closer)):
            source.drop()
            yield from source.space()
        else:
            source.release()
            yield from self._reason((closer,))

    def _reason(self, closers: tuple[str, ...]) -> Reading[None]:
        """Reads reasoning up to one of its closing marks. A call in reasoning that is never closed is a call.

        A call is therefore held back until it is known which it is. If the text was cut, that is not known. Reasoning
        that is not separated is text, and so is its closing mark.
        """
        source = self._source
        if source.splits_reasoning:
            source.output.kind = Reasoning
        marks = marks_of(*closers, *filter(None, self._marks.opens))
        while mark := (yield from source.flow(source.output.add, marks)):
            if mark in closers:
                yield from self._close_reasoning(mark)
                return
            if (yield from self._is_in_code_of_reasoning(mark)):
                self._add_code(mark)
                continue
            text, is_call = yield from self._try_block(mark, marks_of(*closers))
            if is_call:
                text, is_open = yield from self._rest_of_reasoning(text, marks_of(*closers))
                if is_open:
                    source.unread(text)
                    break
            source.output.add(text)
        self._end_reasoning()

    def _close_reasoning(self, mark: str) -> Reading[None]:
        if self._source.splits_reasoning:
            self._end_reasoning()
            yield from self._source.space()
        else:
            self._source.output.add(mark)
            self._end_reasoning()

    def _end_reasoning(self) -> None:
        self._source.output.kind = Text
        self._source.output.code.end_code()

    def _try_block(self, mark: str, closers: Marks) -> Reading[tuple[str, bool]]:
        """Reads a block without output; returns its text up to a closing mark, and whether it is a call."""
        source, missing = self._source, self._marks.missing
        state = source.output, source.ended.provenance, source.call_count
        recording = source.record(mark)
        source.output, source.ended.provenance = Output(Numbering("")), None
        block, is_call, tail = self._block(mark), False, recording.last
        while True:
            try:
                next(block)
            except StopIteration as end:
                is_call = end.value
                break
            position, closer = closers.find(tail, 0, False, sys.maxsize)
            if recording.size > MAX_HELD or closer:
                block.close()
                break
            yield
            tail = tail[position:] + recording.last
        text, source.recording = recording.text(source.unread_size), None
        source.call = None
        self._marks.set_missing(missing)
        source.drop()
        source.output, source.ended.provenance, source.call_count = state
        position, closer = closers.find(text, 0, True, sys.maxsize)
        source.unread(text[position:])
        return mark + text[:position], is_call and not closer

    def _rest_of_reasoning(self, text: str, closers: Marks) -> Reading[tuple[str, bool]]:
        """Reads reasoning after a call; returns its text from the call on, and whether it was never closed."""
        source, pieces, size = self._source, [text], len(text)
        while size <= MAX_HELD:
            piece, mark = source.take(closers)
            pieces.append(piece)
            size += len(piece)
            if mark or source.is_over:
                source.unread(mark)
                return "".join(pieces), not mark and not source.is_cut
            yield
        return "".join(pieces), False

    def _block(self, mark: str) -> Reading[bool]:
        """Reads what follows an opening mark, in the first dialect that fits; returns whether there was a call."""
        source = self._source
        names = self._marks.opens[mark] if mark else self._marks.inside
        calls, source.last_closer = source.call_count, ""
        for name in names:
            source.hold(mark)
            source.dialect, source.tags = name, self._dialects[name].tags
            source.is_enclosed = any(mark in pair.starts for pair in source.tags.outer)
            source.call_ends = (*self._dialects[name].closes, *([mark] if len(mark) > 1 else []))
            try:
                yield from self._dialects[name].block(source, mark)
            except Mismatch as why:
                if source.call is not None:
                    source.last_closer = yield from give_up(source, why)
                    source.drop()
                    break
                if source.call_count > calls or name == names[-1]:
                    source.release()
                    break
                source.rewind()
                yield from source.accept(mark) if mark else ()
            else:
                if source.call_count > calls:
                    source.drop_ends()
                source.drop()
                break
        if source.call_count > calls:
            yield from self._close(self._dialects[source.dialect].closes)
        return source.call_count > calls

    def _close(self, closes: tuple[str, ...]) -> Reading[None]:
        """Removes closing marks that follow a call. If there is none, one may still come after some text."""
        while True:
            spaces = yield from self._source.space()
            mark = yield from self._source.accept(*closes)
            if not mark and (yield from self._is_half_end(closes)):
                mark = self._source.rest()
            if not mark:
                self._source.unread(spaces)
                break
            self._source.last_closer = mark
            self._drop_end(mark, spaces)
        if self._source.last_closer not in closes:
            self._marks.set_missing(self._marks.missing.union(closes))

    def _is_half_end(self, closes: tuple[str, ...]) -> Reading[bool]:
        """Returns whether the text ends with half of a closing mark, and the last one of the block has not come yet."""
        source = self._source
        is_closed = bool(source.tags.outer) and source.last_closer in source.tags.outer[-1].ends
        return not is_closed and bool((yield from source.peek())) and (yield from source.ends_with(*closes))

    def _drop_end(self, mark: str, spaces: str = "", *, is_direct: bool = True) -> None:
        """Drops a closing mark that follows a call, directly or after text; it may show that the call is ambiguous."""
        output, unconfirmed = self._source.output, self._source.output.unconfirmed
        if unconfirmed is not None and unconfirmed.is_stray(mark, is_direct=is_direct):
            output.fail("ambiguous", AMBIGUOUS)
        self._source.ended.add_ends(output, spaces + mark)


class MarkTable(Struct, frozen=True, eq=False):
    """The marks of dialects that are read together. Where only declared tools are called, control tokens stay text.

    - `opens`: the dialects that each opening mark may open, in order. `control`: opening marks that are control tokens.
    - `think`: the marks around reasoning. `ends`: tokens to strip at the end of the text.
    - `always`: all of these, and the control tokens to strip.
    - `inside`: the dialects whose blocks may begin in the prompt.
    """

    opens: dict[str, list[str]]
    control: tuple[str, ...]
    think: dict[str, str]
    ends: tuple[str, ...]
    always: tuple[str, ...]
    inside: list[str]


@lru_cache(maxsize=KEPT_TABLES)
def mark_table(dialects: Dialects, tool_names: tuple[str, ...], only_declared: bool) -> MarkTable:
    """Returns the marks of the dialects, prepared once per set of tools: a server reads many texts with the same."""
    rows = dialects.rows.values()
    opens: dict[str, list[str]] = {}
    for name, dialect in dialects.rows.items():
        for mark in dialect.opening_marks(tool_names):
            opens.setdefault(mark, []).append(name)
    think = dict(pair for row in rows for pair in (THINK if only_declared else row.think))
    tokens = () if only_declared else tuple(dict.fromkeys(token for row in rows for token in row.tokens))
    own = {*opens, *think, *tokens}
    ends = () if only_declared else tuple(mark for mark in (*END_TOKENS, STRIKE) if mark not in own)
    return MarkTable(
        opens=opens,
        control=() if only_declared else tuple(mark for mark in opens if mark.startswith(_CONTROL)),
        think=think,
        ends=ends,
        always=(*own, *ends),
        inside=[name for name, row in dialects.rows.items() if row.begins_inside],
    )


class DialectMarks:
    """The marks of one text: those of the table, and the closing marks that are still `missing`.

    These did not follow their call; they are removed when they come.
    """

    def __init__(self, table: MarkTable) -> None:
        self.opens, self.control, self.inside = table.opens, table.control, table.inside
        self.think, self.ends = table.think, table.ends
        self._always = table.always
        self.set_missing(frozenset())

    def set_missing(self, missing: frozenset[str]) -> None:
        self.missing = missing
        self._all: Marks | None = None
        self._everywhere: Marks | None = None

    def all(self) -> Marks:
        """The marks of a text outside of reasoning."""
        self._all = self._all or marks_of(*self._always, *self.missing)
        return self._all

    def everywhere(self) -> Marks:
        """The marks of a text that may be reasoning, which ends with a mark."""
        self._everywhere = self._everywhere or marks_of(*self._always, *self.missing, *self.think.values())
        return self._everywhere
