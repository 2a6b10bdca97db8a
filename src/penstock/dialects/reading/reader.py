"""`Reader`: parses a text into answer, reasoning and calls, in one dialect or in several."""

from __future__ import annotations

import sys

from penstock.calls.numbering import Numbering, ResponseLimit
from penstock.dialects.dialect import END_TOKENS, Dialects
from penstock.dialects.mark_table import STRIKE, STRIKE_END, DialectMarks, mark_table
from penstock.dialects.reading.held_text import MAX_HELD
from penstock.dialects.reading.marks import FindStart, Marks, marks_of
from penstock.dialects.reading.output import Output
from penstock.dialects.reading.recovery import give_up
from penstock.dialects.reading.source import Mismatch, Reading, Source
from penstock.dialects.reading.unconfirmed import AMBIGUOUS
from penstock.dialects.unmarked import BROKEN, FOLLOWED, TOO_LONG, UnmarkedForms, next_form
from penstock.events import Error, Reasoning, StreamChunk, Text

_AFTER_FORM = ("}", "]", "</tool_call>", "</tool_calls>", "</function>", *END_TOKENS)


class Reader:
    """Parses the text of a source. Text is emitted at once, except for a suffix that could begin a mark."""

    def __init__(self, source: Source, dialects: Dialects, *, splits_reasoning: bool, starts_inside: bool) -> None:
        source.splits_reasoning = splits_reasoning
        self._source = source
        self._events = source.output.events
        self._dialects = dialects.rows
        self._starts_inside = starts_inside
        table = mark_table(dialects, tuple(source.tools.names), source.only_declared)
        self._marks = DialectMarks(table, has_unmarked=source.unsettled is not None)
        self._strikes = 0  # how many `<s>` are open
        self.is_stopped = False  # it has too many calls: what follows is not read
        self._is_last = True  # whether nothing follows the text in its message; known at its end
        self._reading = self.read()

    def feed(self, text: str) -> list[StreamChunk]:
        """Parses a piece of text, and returns the events that it completes."""
        if self.is_stopped:
            return []
        source = self._source
        source.push(text)
        if source.markup is not None:
            source.markup.add(text)
        if source.recording is not None:
            source.recording.add(text)
        try:
            next(self._reading, None)
        except ResponseLimit as limit:
            return self._stop(limit)
        events = self._events.copy()  # as `Output.take` does, without a method call per piece
        self._events.clear()
        return events

    def _stop(self, limit: ResponseLimit) -> list[StreamChunk]:
        """Ends the text, whatever follows: it has more calls than a response may have."""
        self.is_stopped = True
        source = self._source
        source.output.fail("cut", "the response was ended before it was clear where the call ends")
        return [*source.output.take(), Error(limit.message, limit.code)]

    def close(self, *, is_cut: bool = False, is_last: bool = True) -> list[StreamChunk]:
        """Ends the text, and returns the events that were held back.

        `is_cut`: the model did not finish its text. `is_last`: nothing follows it in its message.
        """
        if self.is_stopped:
            return []
        self._source.is_over = True
        self._source.is_cut = is_cut
        self._is_last = is_last
        try:
            next(self._reading, None)
        except ResponseLimit as limit:
            return self._stop(limit)
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
        return source.is_read and source.output.unconfirmed is None and source.forms is None and not self.is_stopped

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
            elif mark in marks.unmarked:
                yield from self._unmarked(mark)
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
            source.output.before.text = ""
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
        marks = marks_of(*closers, *(mark for mark in self._marks.opens if mark and mark not in self._marks.unmarked))
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
            held = source.hold(mark)
            source.dialect, source.tags = name, self._dialects[name].tags
            source.is_enclosed = any(mark in pair.starts for pair in source.tags.outer)
            source.call_ends = (*self._dialects[name].closes, *([mark] if len(mark) > 1 else []))
            try:
                yield from self._dialects[name].block(source, mark)
            except Mismatch as why:
                has_call = source.call is not None or source.call_count > calls
                if has_call and source.forms is not None and source.forms.is_suspended:
                    source.forms.fail(BROKEN, is_broken=True)
                    return True
                if source.call is not None:
                    source.last_closer = yield from give_up(source, why)
                    source.drop()
                    break
                if source.call_count > calls or name == names[-1] or not source.is_held(held):
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
        source.tags = source.tags.without_layout()
        return source.call_count > calls

    def _unmarked(self, mark: str) -> Reading[None]:
        """Reads forms without marks: without effect until the end of the text shows that they are calls."""
        source, forms = self._source, UnmarkedForms()
        source.forms, reading = forms, self._forms(mark, forms)
        for _ in reading:
            if forms.is_suspended and source.recording is not None and source.recording.size > MAX_HELD:
                forms.fail(TOO_LONG)
                break
            yield
        reading.close()
        if forms.is_suspended:
            text = forms.resume(source)
            if forms.why:
                forms.note(source)
                source.output.add(text)
                yield from source.flow(source.output.add, marks_of()) if forms.is_broken else ()
            else:
                forms.is_final = True
                source.unread(text)
                yield from self._forms((yield from source.accept(mark)), forms)
        source.forms = None

    def _forms(self, mark: str, forms: UnmarkedForms) -> Reading[None]:
        """Reads forms without marks, as long as one follows the other."""
        source = self._source
        while (yield from self._block(mark)) and not forms.why:
            after, mark = yield from next_form(source, self._marks.unmarked, _AFTER_FORM)
            if forms.is_final and (mark or after.strip()):
                source.ended.add_ends(source.output, after)
            elif forms.is_final:
                source.unread(after)
            if mark:
                continue
            if (yield from source.peek()) or source.is_cut or not self._is_last:
                forms.fail(FOLLOWED)
            return
        if forms.is_suspended and not forms.why:
            forms.fail(FOLLOWED)

    def _close(self, closes: tuple[str, ...]) -> Reading[None]:
        """Removes closing marks that follow a call. If there is none, one may still come after some text."""
        while True:
            spaces = yield from self._source.space()
            mark = yield from self._source.accept(*closes)
            if not mark and (yield from self._is_half_end(closes)):
                mark = self._source.rest()
            if not mark:
                yield from self._unread_space(spaces)
                break
            self._source.last_closer = mark
            self._drop_end(mark, spaces)
        if self._source.last_closer not in closes:
            self._marks.set_missing(self._marks.missing.union(closes))

    def _unread_space(self, spaces: str) -> Reading[None]:
        """Steps back over white space after a block; a line break written as `\\n` is dropped before another block."""
        source = self._source
        dialect = self._dialects[source.dialect]
        is_layout = any(mark in spaces for mark in dialect.tags.layout)
        if is_layout and (yield from source.sees(*dialect.opening_marks(source.tools.names))):
            for mark in dialect.tags.layout:
                spaces = spaces.replace(mark, "")
        source.unread(spaces)

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
