"""Reads a whole text: which of it is the answer, which is reasoning, and which are calls."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.dialects.dialect import THINK, Dialect
from penstock.dialects.reading.cursor import Mismatch, Reading, TextEnded
from penstock.dialects.reading.marks import Marks, marks_of
from penstock.dialects.reading.source import Source
from penstock.events import Reasoning, StreamChunk, Text

_CONTROL = ("<|", "<｜", "]<]", "[TOOL_CALLS]")  # how control tokens begin, which nobody writes in code


class Reader:
    """Goes through a source with one dialect or several. Text flows on at once, but for what may begin a mark."""

    def __init__(self, source: Source, dialects: Mapping[str, Dialect], *, reasoning: bool, inside: bool) -> None:
        self._source = source
        self._events = source.output.events
        source.splits_reasoning = reasoning
        self._dialects = dialects
        self._inside = inside
        self._reading = self.read()
        self._opens = _by_mark(source, dialects)
        self._think = dict(pair for row in dialects.values() for pair in (THINK if source.only_declared else row.think))
        self._tokens = () if source.only_declared else tuple(mark for mark in self._opens if mark.startswith(_CONTROL))
        self._loose: set[str] = set()  # closing marks of a block that was left without one
        self._markup = {token for dialect in dialects.values() for token in dialect.tokens if not source.only_declared}

    def feed(self, text: str) -> list[StreamChunk]:
        """What this piece completes."""
        source = self._source
        source.push(text)
        next(self._reading, None)
        events = self._events.copy()  # as `Output.take` does, without a call for each piece
        self._events.clear()
        return events

    def close(self, *, is_cut: bool = False) -> list[StreamChunk]:
        """What was still held back; `is_cut` says that the model had not ended its text."""
        self._source.is_over = True
        self._source.is_cut = is_cut
        next(self._reading, None)
        return self._source.output.take()

    def read(self) -> Reading[None]:
        """The whole text."""
        yield from self._start()
        while mark := (yield from self._source.flow(self._source.output.add, self._marks())):
            if self._is_in_code(mark):
                self._tell_code(mark)
            elif mark in self._opens:
                yield from self._block(mark)
            elif mark in self._loose:
                self._loose.discard(mark)
            elif mark in self._think:
                yield from self._think_block(mark)
                yield from self._begin_inside()

    def _marks(self) -> Marks:
        return marks_of(*self._opens, *self._think, *self._markup, *self._loose)

    def _is_in_code(self, mark: str) -> bool:
        """Whether the mark is talk about calls. A mark that is a line break ends code, unless that is in a fence."""
        line = self._source.output.code
        if mark in self._tokens:
            return False
        return line.is_in_fence if mark[0] in "\r\n" else line.is_in_code

    def _is_talk_in_thoughts(self, mark: str) -> Reading[bool]:
        """Whether the mark stands in code within reasoning; there it must be plain, as code is often left open."""
        if not self._is_in_code(mark):
            return False
        is_last = yield from self._source.sees("\n", "\r")
        return self._source.output.code.surely_holds(is_last=is_last)

    def _tell_code(self, mark: str) -> None:
        self._source.output.add(mark)
        self._source.output.code.go_on()

    def _start(self) -> Reading[None]:
        """What may stand at the very beginning, because its opening mark was in the prompt."""
        source = self._source
        if self._inside:
            yield from source.accept_spaced(*self._think)
            yield from self._reason(tuple(self._think.values()))
        elif not source.only_declared and (yield from source.accept_spaced(*self._think.values())):
            yield from source.space()  # that was the end of reasoning that was left out
        yield from self._begin_inside()

    def _begin_inside(self) -> Reading[None]:
        """A block whose opening mark was in the prompt, as long as nothing of the answer has come."""
        if not self._source.output.has_answer and any(row.begins_inside for row in self._dialects.values()):
            yield from self._block("")

    def _think_block(self, mark: str) -> Reading[None]:
        """Reasoning between marks. If it is not asked for it stays text, unless there is nothing between the marks."""
        source = self._source
        closer = self._think[mark]
        if source.splits_reasoning:
            yield from self._reason((closer,))
            return
        if source.only_declared:  # what is said in there is no call
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

    def _reason(self, closers: tuple[str, ...]) -> Reading[None]:
        source = self._source
        source.output.kind = Reasoning
        ending = [name for name, dialect in self._dialects.items() if dialect.call_ends_reasoning]
        opens = [mark for mark, names in self._opens.items() if mark and set(names) & set(ending)]
        while mark := (yield from source.flow(source.output.add, marks_of(*closers, *opens))):
            if mark in closers:
                source.output.kind = Text
                source.output.code.end_code()
                yield from source.space()
                return
            if (yield from self._is_talk_in_thoughts(mark)):
                self._tell_code(mark)
            elif (yield from self._block(mark)):
                break
        source.output.kind = Text
        source.output.code.end_code()

    def _block(self, mark: str) -> Reading[bool]:
        """What follows an opening mark, in the first dialect that it fits; whether there was a call."""
        source = self._source
        names = self._opens[mark] if mark else [name for name, row in self._dialects.items() if row.begins_inside]
        calls, source.last_closer = source.call_count, ""
        for name in names:
            source.hold(mark)
            source.dialect = name
            source.call_ends = (*self._dialects[name].closes, *([mark] if len(mark) > 1 else []))
            try:
                yield from self._dialects[name].block(source, mark)
            except Mismatch as why:
                if source.call is not None:
                    self._break_off(why)
                    break
                if source.call_count > calls or name == names[-1]:
                    source.release()
                    break
                source.rewind()
                yield from source.accept(mark) if mark else ()
            else:
                source.drop()
                break
        if source.call_count > calls:
            yield from self._close(self._dialects[source.dialect].closes)
        return source.call_count > calls

    def _close(self, closes: tuple[str, ...]) -> Reading[None]:
        """After calls: closing marks that follow at once; if none has come, one may still come after some text."""
        while (yield from self._source.accept_spaced(*closes)):
            pass
        if self._source.last_closer not in closes:
            self._loose.update(closes)

    def _break_off(self, why: Mismatch) -> None:
        source = self._source
        assert source.call is not None
        if isinstance(why, TextEnded):
            left = source.rest()
            source.call.fail("cut", f"{why}, after {left!r}" if left else str(why))
        else:
            source.call.fail("malformed", str(why))
        source.call = None
        source.drop()


def _by_mark(source: Source, dialects: Mapping[str, Dialect]) -> dict[str, list[str]]:
    """The dialects that a mark may open, in order."""
    found: dict[str, list[str]] = {}
    for name, dialect in dialects.items():
        for mark in dialect.opening_marks(source.tools):
            found.setdefault(mark, []).append(name)
    return found
