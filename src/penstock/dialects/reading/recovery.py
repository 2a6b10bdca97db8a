"""What a dialect does about a call that is not as it should be, and how it keeps a guess from running."""

from __future__ import annotations

import re

from msgspec import Struct

from penstock.dialects.reading.cursor import Mismatch, Reading, Result, TextEnded
from penstock.dialects.reading.marks import marks_of
from penstock.dialects.reading.raw_values import Ends, Sink, Writer, told
from penstock.dialects.reading.source import Source
from penstock.dialects.reading.text_call import TextCall

_STRUCTURE = marks_of(*"()[]{}'\"\\")

MAX_SKIPPED = 1024
"""How many characters of a broken call are skipped to find its end."""


# -- broken calls --------------------------------------------------------------------------------------------------


def give_up(source: Source, why: Mismatch) -> None:
    """The open call is broken; nothing is held now."""
    assert source.call is not None
    source.call.fail("malformed", str(why))
    source.call = None
    source.drop()


def expected(source: Source, marks: tuple[str, ...], *named: str) -> Reading[str]:
    """The mark that must stand next. Of all that may, a message has the few that are named."""
    try:
        return (yield from source.expect(*marks))
    except TextEnded:
        raise TextEnded(f"the text ended where {' or '.join(map(repr, named))} was expected") from None
    except Mismatch:
        raise Mismatch(f"expected {' or '.join(map(repr, named))}") from None


def header(
    source: Source, call: TextCall, start: str, reading: Reading[Result], ends: tuple[str, ...] = (">",)
) -> Reading[Result]:
    """A tag of an open call, which is held. If the call breaks there, all of the tag is in it, from its start on."""
    try:
        found = yield from reading
    except Mismatch:
        source.rewind()
        call.add((yield from source.accept(start)))
        ended_by = yield from source.flow(call.add, marks_of(*ends, "<", "\n"))
        if ended_by in ends:
            call.add(ended_by)
        else:
            source.unread(ended_by)
        raise
    source.drop()
    return found


def rest_of_call(source: Source, call: TextCall, depth: int, quote: str = "") -> Reading[None]:
    """What is left of a broken call, up to the bracket that closes it, or so much of it as may be skipped."""
    left = MAX_SKIPPED
    while depth and left:
        text, mark = source.take(_STRUCTURE, left)
        source.unread(text[left:])
        read = text[:left] + mark
        call.add(read)
        left -= len(read)
        if not mark:
            if source.is_over:
                return
            if left:
                yield
        elif mark == "\\":
            call.add((yield from source.accept("'", '"', "\\")))
        elif quote or mark in ("'", '"'):
            quote = "" if mark == quote else quote or mark
        else:
            depth += 1 if mark in "([{" else -1


# -- values between tags -------------------------------------------------------------------------------------------

MAX_INDENT = 256
"""How long a line break and the blanks behind it may be, before a tag that counts as the first in its line."""

_IN_TAG = re.compile(r"[^<>\n]*")
_BLANKS = " \t\r"
_LINE_START = frozenset(_BLANKS + "\n")

Expected = tuple[str, ...] | re.Pattern[str]
"""One of some marks, or a text that a pattern matches character by character."""


class ValueEnds(Struct, frozen=True):
    """How a raw value between tags may end. Marks stand with what must follow them, white space aside.

    It ends at one of its `own` end tags, or if that was left out at one of the `call_ends`, or at the tag of a key that
    is awaited: `keys` says which. A value may show another call, which is in it with all its tags: one of the `calls`,
    and then each of `call_starts`. `blocks` and `block_ends` are the tags around calls.
    """

    own: Ends
    call_ends: Ends
    keys: KeyTags
    calls: tuple[str, ...]
    call_starts: tuple[Expected, ...]
    blocks: Ends = {}
    block_ends: tuple[str, ...] = ()


class KeyTags(Struct, frozen=True):
    """The tags of keys: how they begin and end, and the pattern of a key within them.

    They end a value where they begin a line, if the tool has the key and the call not yet. Of an unknown tool
    (`awaited` is None) any key counts. Tags that are tokens end it wherever they stand, whatever the key.
    """

    begin: tuple[str, ...]
    end: tuple[str, ...]
    key: re.Pattern[str]
    awaited: frozenset[str] | None
    is_token: bool = False


def awaited(call: TextCall) -> frozenset[str] | None:
    """The keys that the tool has and the call not yet; None if nobody knows which the tool has."""
    known = call.schema.keys
    return frozenset(known) - call.keys if known else None


def tagged_value(source: Source, call: TextCall, write: Writer, ends: ValueEnds) -> Reading[str]:
    """A raw value of a call; returns the mark that ended it. If that is a guess, the call will not be whole."""
    text = ValueText(source, ends)
    mark = yield from told(call, write, text.read)
    guess = f"where the value of {call.argument!r} ends is a guess, as {{}}: end it with {next(iter(ends.own))!r}"
    if mark in ends.keys.begin:
        call.doubt(guess.format("the next one begins in it"), is_plain=not text.is_guess)
    elif text.is_guess:
        call.doubt(guess.format("it has tags in it"))
    for key in text.mentioned:
        call.mention(key, guess.format(f"the tag of {key!r} is in it and nowhere else"))
    return mark


class ValueText:
    """Reads the raw text of a value, to the mark that ends it."""

    def __init__(self, source: Source, ends: ValueEnds) -> None:
        self._source = source
        self._ends = ends
        self._marks = {**ends.own, **ends.call_ends}
        self._calls = 0  # that the value shows and that are open
        self._blocks = 0
        self._has_ended = False  # whether the block of the call has ended in the value
        self._has_tags = False  # whether there was a tag of a parameter in it, not counting those in calls
        self._has_call_tags = False  # whether there was one in the calls that are open
        self.is_guess = False  # whether the value may as well end elsewhere
        self.mentioned: dict[str, None] = {}  # the keys of the tool that have tags in it, not counting those in calls

    def read(self, sink: Sink) -> Reading[str]:
        ends, source, lines = self._ends, self._source, Lines(sink)
        begin = ends.keys.begin
        marks = marks_of(*self._marks, *begin, *ends.calls, *ends.blocks, *ends.block_ends)
        while True:
            text, mark = source.take(marks)
            if not text:
                pass
            elif lines.kept or (text[-1] in _LINE_START and (lines.is_blank or "\n" in text or "\r" in text)):
                lines.add(text)
            else:  # as in most pieces: no call for each
                lines.is_blank = False
                sink(text)
            if not mark and not source.is_over:
                yield
            elif mark in begin:
                if (yield from self._is_next_key(is_first=lines.is_blank)):
                    lines.end()
                    return mark
                lines.add_tag(mark)
            elif mark:
                lines.flush()
                if (yield from self._is_end(mark)):
                    return mark
                lines.add_tag(mark)
            else:
                lines.flush()
                raise TextEnded("the text ended inside a value")

    def _is_next_key(self, *, is_first: bool) -> Reading[bool]:
        """Whether the value ends at a key's tag, which is the first in its line or not. If not, it is a mention."""
        keys = self._ends.keys
        if self._calls:
            return False
        key = yield from self._key()
        if key and (keys.is_token or (is_first and (keys.awaited is None or key in keys.awaited))):
            self.is_guess = self._has_tags
            return True
        self._has_tags = True
        if keys.awaited and key in keys.awaited:
            self.mentioned[key] = None
        return False

    def _key(self) -> Reading[str]:
        """The key in the tag that was just begun, the empty string if it is no whole tag; nothing is read."""
        source, keys = self._source, self._ends.keys
        spaces = yield from source.space()
        inner = yield from source.match(_IN_TAG)
        more = yield from source.space()
        end = yield from source.accept(*keys.end)
        source.unread(spaces + inner + more + end)
        found = keys.key.search(inner) if end else None
        return found[found.lastindex or 0] if found else ""

    def _is_end(self, mark: str) -> Reading[bool]:
        ends = self._ends
        if mark in ends.calls:
            self._calls += yield from self._stands(*ends.call_starts)  # else it is only mentioned
        elif mark in ends.blocks:
            yield from self._block(mark)
        elif mark in ends.block_ends:
            self._has_ended = self._has_ended or not self._blocks
            self._blocks -= bool(self._blocks)
        elif self._calls:
            return (yield from self._is_end_in_call(mark))
        elif (yield from self._follows(mark)):
            self.is_guess = self._has_tags and mark not in ends.own
            return True
        else:
            self._has_tags = self._has_tags or mark not in ends.call_ends
        return False

    def _is_end_in_call(self, mark: str) -> Reading[bool]:
        """Whether the value ends though a call that it shows has not: it does if the block of its own call ends."""
        ends = self._ends
        if mark in ends.call_ends:
            self._calls -= 1
            self._has_call_tags = self._has_call_tags and self._calls > 0
        elif mark in ends.own:
            if (
                ends.block_ends
                and not self._blocks
                and (yield from self._stands(tuple(ends.call_ends), ends.block_ends))
            ):
                self.is_guess = self._has_call_tags
                return True
            self._has_call_tags = True
        return False

    def _block(self, mark: str) -> Reading[None]:
        """Another block. If the block of this call has ended, that one is not in the value."""
        if (yield from self._stands(self._ends.blocks[mark])):
            if self._has_ended:
                self._source.refuse(mark, "the block ended within a value, and another one began")
            self._blocks += 1

    def _follows(self, mark: str) -> Reading[bool]:
        """Whether what must follow the mark does, or may: a text that was not cut may end within it."""
        after = self._marks[mark]
        if not after or (yield from self._stands(after)):
            return True
        if not self._source.is_over or self._source.is_cut:
            return False
        spaces = yield from self._source.space()
        rest = self._source.rest()
        self._source.unread(spaces + rest)
        return any(one.startswith(rest) for one in after)

    def _stands(self, *expected: Expected) -> Reading[bool]:
        """Whether such marks and texts stand next, in this order, white space aside; nothing is read."""
        source, read, found = self._source, "", ""
        for one in expected:
            read += yield from source.space()
            found = yield from source.match(one) if isinstance(one, re.Pattern) else source.accept(*one)
            read += found
            if not found:
                break
        source.unread(read)
        return bool(found)


class Lines:
    """Passes a text on, all but the line break and the blanks at its end: if a tag ends it there, they are layout."""

    __slots__ = ("_sink", "is_blank", "kept")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.kept = ""
        self.is_blank = True  # whether its last line has only blanks so far

    def add(self, text: str) -> None:
        if text[-1] not in _LINE_START:
            self.flush()
            self.is_blank = False
            self._sink(text)
        else:
            self._add_start(self.kept + text)

    def _add_start(self, text: str) -> None:
        """A text that may end with the start of a line."""
        full = text.rstrip(_BLANKS)
        end = len(text) - text.endswith("\r")  # it may be half a line break
        if full.endswith("\n"):
            self.is_blank = True
            end = len(full) - (2 if full.endswith("\r\n") else 1)
        elif full:
            self.is_blank = False
        elif self.is_blank:
            end = 0
        if len(text) - end > MAX_INDENT:
            self.is_blank = False
            end = len(text)
        self.kept = text[end:]
        if end:
            self._sink(text[:end])

    def add_tag(self, tag: str) -> None:
        self.flush()
        self._sink(tag)
        self.is_blank = False

    def flush(self) -> None:
        """What was kept is part of the text."""
        if self.kept:
            self._sink(self.kept)
            self.kept = ""

    def end(self) -> None:
        """The text ends at a tag."""
        if not self.is_blank:
            self.flush()
