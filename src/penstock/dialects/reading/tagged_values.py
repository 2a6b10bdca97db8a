"""Raw values between tags, and where they end.

A raw value may contain anything, even the tags that surround it: a model writes a file in which these very tags are
explained, or it forgets an end tag. A call that depends on a guess is never executed.

| the model writes, within a value | what we do |
|---|---|
| the value's end tag, and after it a tag that may follow | the value ends |
| the value's end tag, and after it anything else | text of the value; a missing end tag later on is then a guess |
| the call's end tag, and after it what may follow a call | the value ends; a guess if there were tags in it |
| the tag of an argument that the call still lacks, first in its line | the value ends; invalid, with `repaired` |
| such a tag elsewhere in a line | text; invalid if that argument does not come later |
| the tag of any other argument | text of the value |
| the tag of any argument, where tags are control tokens | the value ends; invalid, with `repaired` |
| a call, from its opening tag to the first argument | text with all its tags, up to its own end tag |
| the same, and then the ends of value, call and block in a row | the value ends: the call in it was left open |
| an opening tag of a call that does not continue as one | text of the value |
| the end of the block | text of the value |
| the end of the block, and later another block with a call | malformed: the value was never closed |
| an end tag as the last thing in the text, not cut off | the value ends |
| nothing more | cut |

If the tag of the next argument ends a value, the line break and the indentation before it are layout and not part of
the value.
"""

from __future__ import annotations

import re

from msgspec import Struct

from penstock.dialects.reading.marks import CallTags, marks_of
from penstock.dialects.reading.raw_values import Ends, Sink, Writer, write_value
from penstock.dialects.reading.source import Reading, Source, TextEnded
from penstock.dialects.reading.text_call import TextCall

MAX_INDENT = 256
"""How long a line break and the blanks after it may be, before a tag that counts as the first in its line."""

_IN_TAG = re.compile(r"[^<>\n]*")
_BLANKS = " \t\r"
_LINE_START = frozenset(_BLANKS + "\n")

Expected = tuple[str, ...] | re.Pattern[str]
"""One of several marks, or a text that a pattern matches character by character."""


class ValueEnds(Struct, frozen=True):
    """The tags at which a raw value may end, or that it may contain. `Ends` maps a tag to what must follow it.

    `own` are the value's end tags, `call_ends` those of its call, and `keys` the tags of further arguments. A call
    within the value begins with one of `calls`, followed by each of `call_starts`. `blocks` and `block_ends` are the
    tags around calls. `tags` are all of these tags in pairs.
    """

    own: Ends
    call_ends: Ends
    keys: KeyTags
    calls: tuple[str, ...]
    call_starts: tuple[Expected, ...]
    tags: CallTags
    blocks: Ends = {}
    block_ends: tuple[str, ...] = ()


class KeyTags(Struct, frozen=True):
    """The tags with an argument's key: how they begin and end, and the pattern of the key in them.

    `awaited` are the keys that the tool has and the call lacks; None if the tool's keys are not known, so that any
    counts. Tags that are control tokens (`is_token`) end a value at any position and with any key.
    """

    begin: tuple[str, ...]
    end: tuple[str, ...]
    key: re.Pattern[str]
    awaited: frozenset[str] | None
    is_token: bool = False


def awaited(call: TextCall) -> frozenset[str] | None:
    """Returns the keys that the tool has and the call lacks; None if the tool's keys are not known."""
    known = call.schema.keys
    return frozenset(known) - call.keys if known else None


def tagged_value(source: Source, call: TextCall, write: Writer, ends: ValueEnds) -> Reading[str]:
    """Reads a raw value of a call, and returns the mark that ended it. If that is a guess, the call will be invalid."""
    text = ValueText(source, ends)
    call.raw_tags = ends.tags
    mark = yield from write_value(call, write, text.read)
    end_tag = next(iter(ends.own))

    def message(why: str) -> str:
        return f"it is unclear where the value of {call.argument!r} ends, because {why}: end it with {end_tag!r}"

    if mark in ends.keys.begin:
        call.doubt(message("the next argument begins in it"), is_unambiguous=not text.is_guess)
    elif text.is_guess:
        call.doubt(message("it contains tags"))
    for key in text.mentioned:
        call.mention(key, message(f"the tag of {key!r} occurs only in it"))
    return mark


class Nested:
    """The calls and blocks inside a value that are open."""

    __slots__ = ("blocks", "calls", "has_ended_block", "has_tags")

    def __init__(self) -> None:
        self.calls = 0
        self.blocks = 0
        self.has_ended_block = False  # whether the block around the value has ended inside it
        self.has_tags = False  # whether the open calls have end tags of values in them

    def end_call(self) -> None:
        self.calls -= 1
        self.has_tags = self.has_tags and self.calls > 0

    def end_block(self) -> None:
        self.has_ended_block = self.has_ended_block or not self.blocks
        self.blocks -= bool(self.blocks)


class ValueText:
    """Reads the text of a raw value up to the mark that ends it."""

    def __init__(self, source: Source, ends: ValueEnds) -> None:
        self._source = source
        self._ends = ends
        self._nested = Nested()
        self._has_tags = False  # whether there was a tag of an argument in it, outside of nested calls
        self.is_guess = False  # whether the value could also end elsewhere
        self.mentioned: dict[str, None] = {}  # the awaited keys with a tag in it, outside of nested calls

    def read(self, sink: Sink) -> Reading[str]:
        """Passes the text to `sink` as it arrives, and returns the mark that ends it."""
        ends, source, lines = self._ends, self._source, Lines(sink)
        marks = marks_of(*ends.own, *ends.call_ends, *ends.keys.begin, *ends.calls, *ends.blocks, *ends.block_ends)
        while True:
            text, mark = source.take(marks)
            if not text:
                pass
            elif lines.kept or (text[-1] in _LINE_START and (lines.is_blank or "\n" in text or "\r" in text)):
                lines.add(text)
            else:  # the usual case: without a method call per piece
                lines.is_blank = False
                sink(text)
            if not mark and not source.is_over:
                yield
            elif not mark:
                lines.flush()
                raise TextEnded("the text ended inside a value")
            elif (yield from self._ends_at(mark, lines)):
                return mark

    def _ends_at(self, mark: str, lines: Lines) -> Reading[bool]:
        """Returns whether the value ends at this mark; if not, the mark is part of its text."""
        if mark in self._ends.keys.begin:
            is_end = yield from self._is_next_key(is_first=lines.is_blank)
            if is_end:
                lines.end()
        else:
            lines.flush()
            is_end = yield from self._is_end(mark)
        if not is_end:
            lines.add_tag(mark)
        return is_end

    def _is_next_key(self, *, is_first: bool) -> Reading[bool]:
        """Returns whether the value ends at the tag of a key, which is the first in its line or not."""
        keys = self._ends.keys
        if self._nested.calls:
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
        """Returns the key in the tag that has just begun, "" if the tag is not complete; nothing is read."""
        source, keys = self._source, self._ends.keys
        spaces = yield from source.space()
        inner = yield from source.match(_IN_TAG)
        more = yield from source.space()
        end = yield from source.accept(*keys.end)
        source.unread(spaces + inner + more + end)
        match = keys.key.search(inner) if end else None
        return match[match.lastindex or 0] if match else ""

    def _is_end(self, mark: str) -> Reading[bool]:
        """Returns whether the value ends at a mark other than a key's."""
        ends, nested = self._ends, self._nested
        if mark in ends.calls:
            nested.calls += yield from self._comes(*ends.call_starts)  # else the tag is only mentioned
            return False
        if mark in ends.blocks:
            yield from self._open_block(mark)
            return False
        if mark in ends.block_ends:
            nested.end_block()
            return False
        if nested.calls:
            return (yield from self._is_end_in_call(mark))
        if (yield from self._is_followed(mark)):
            self.is_guess = self._has_tags and mark not in ends.own
            return True
        self._has_tags = self._has_tags or mark not in ends.call_ends
        return False

    def _is_end_in_call(self, mark: str) -> Reading[bool]:
        """Returns whether the value ends although a call in it is open: it does if the block around it ends too."""
        ends, nested = self._ends, self._nested
        if mark in ends.call_ends:
            nested.end_call()
            return False
        can_end = bool(ends.block_ends) and not nested.blocks
        if can_end and (yield from self._comes(tuple(ends.call_ends), ends.block_ends)):
            self.is_guess = nested.has_tags
            return True
        nested.has_tags = True
        return False

    def _open_block(self, mark: str) -> Reading[None]:
        """Counts a nested block. If the block around the value has ended, this one is not inside the value."""
        if (yield from self._comes(self._ends.blocks[mark])):
            if self._nested.has_ended_block:
                self._source.refuse(mark, "the block ended within a value, and another one began")
            self._nested.blocks += 1

    def _is_followed(self, mark: str) -> Reading[bool]:
        """Returns whether what must follow the mark does; a text that was not cut off may also end within it."""
        after = self._ends.call_ends[mark] if mark in self._ends.call_ends else self._ends.own[mark]
        if not after or (yield from self._comes(after)):
            return True
        if not self._source.is_over or self._source.is_cut:
            return False
        spaces = yield from self._source.space()
        rest = self._source.rest()
        self._source.unread(spaces + rest)
        return any(candidate.startswith(rest) for candidate in after)

    def _comes(self, *expected: Expected) -> Reading[bool]:
        """Returns whether these come next, in this order, with white space between them; nothing is read."""
        source, text, piece = self._source, "", ""
        for candidates in expected:
            text += yield from source.space()
            if isinstance(candidates, re.Pattern):
                piece = yield from source.match(candidates)
            else:
                piece = yield from source.accept(*candidates)
            text += piece
            if not piece:
                break
        source.unread(text)
        return bool(piece)


class Lines:
    """Passes text to a sink, but keeps back a line break and blanks at its end: before a tag they are layout."""

    __slots__ = ("_sink", "is_blank", "kept")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.kept = ""
        self.is_blank = True  # whether the last line has only blanks so far

    def add(self, text: str) -> None:
        if text[-1] not in _LINE_START:
            self.flush()
            self.is_blank = False
            self._sink(text)
        else:
            self._add_start(self.kept + text)

    def _add_start(self, text: str) -> None:
        """Adds text that may end with the start of a line."""
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
        """Passes on what was kept back: it is part of the text."""
        if self.kept:
            self._sink(self.kept)
            self.kept = ""

    def end(self) -> None:
        """Ends the text at a tag. What was kept back is layout if the tag is the first in its line."""
        if not self.is_blank:
            self.flush()
