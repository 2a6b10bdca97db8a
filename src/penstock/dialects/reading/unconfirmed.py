"""Calls with raw values that have ended, and the text after them, which confirms them or shows that they go on.

A raw value may contain the end tags of its own call: a model writes a file in which these tags are explained. The call
seems to end there, and the rest of the value seems to be text. Its real end tags then come without their start tags.

| what follows the call | what happens |
|---|---|
| the end of the text | the call is confirmed |
| another call, with nothing but white space between them | the call is confirmed |
| text, or text and another call | the text is emitted at once; the call is confirmed at the end of the text |
| an end tag without its start tag, in the text, in code or in reasoning | the call is `ambiguous` |
| the end tag of a value, directly after the call | the call is `ambiguous` |
| another call of any kind, after text | it waits, too: it may be part of the value |
| another end tag, directly after the call | dropped: models repeat end tags |
| the end of a text that was cut | the call is `cut`: an end tag may have been on its way |
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from penstock.dialects.reading.marks import Marks, marks_of
from penstock.events import Fault

if TYPE_CHECKING:
    from penstock.dialects.reading.text_call import TextCall

MAX_UNCONFIRMED = 256
"""How many calls may wait for the end of the text; further ones are invalid."""


class TagPair(Struct, frozen=True):
    """The start tags and the end tags of one thing, in all spellings. A start tag may lack its end: `<parameter=`."""

    starts: tuple[str, ...]
    ends: tuple[str, ...]


class RawTags(Struct, frozen=True):
    """The tags around a raw value: the value's own, its call's, and the block's."""

    value: TagPair
    call: TagPair
    block: TagPair = TagPair((), ())

    @property
    def pairs(self) -> tuple[TagPair, ...]:
        return self.value, self.call, self.block


NO_TAGS = RawTags(TagPair((), ()), TagPair((), ()))
"""The tags of a call without raw values, which waits only for the calls before it."""


class EndedCall(Struct):
    """A call that has ended and is not confirmed: its arguments, and the text that the model wrote for it."""

    call: TextCall
    tags: RawTags
    arguments: dict[str, Any]
    markup: list[str]


class Unconfirmed:
    """The calls that are not confirmed, in order; `restore` puts the text of a call that failed in its place."""

    __slots__ = ("_calls", "_carry", "_depths", "_has_text", "_marks", "_pairs", "_restore")

    def __init__(self, restore: Callable[[str], None]) -> None:
        self._calls: list[EndedCall] = []
        self._restore = restore
        self._has_text = False  # whether there was text after one of the calls
        self._carry = ""  # the end of the text so far that may begin a tag
        self._pairs: dict[str, TagPair] = {}  # by tag
        self._depths: dict[TagPair, int] = {}  # how many start tags in the text have no end tag yet
        self._marks: Marks = marks_of()

    def add(self, ended: EndedCall) -> None:
        """Adds a call that has just ended."""
        if len(self._calls) == MAX_UNCONFIRMED:
            ended.call.fail("too_large", f"more than MAX_UNCONFIRMED ({MAX_UNCONFIRMED}) calls with text between them")
            return
        ended.call.close(ended.arguments)
        self._calls.append(ended)
        for pair in ended.tags.pairs:
            self._depths.setdefault(pair, 0)
            self._pairs |= dict.fromkeys((*pair.starts, *pair.ends), pair)
        self._marks = marks_of(*self._pairs)

    def add_markup(self, markup: str) -> None:
        """Adds end tags that were dropped to the text of the last call."""
        self._calls[-1].markup.append(markup)

    @property
    def is_followed(self) -> bool:
        """Whether the calls are followed by text: then only the end of the text confirms them."""
        return self._has_text

    def is_stray(self, mark: str, *, is_direct: bool) -> bool:
        """Whether an end tag directly after the calls, or after text, can only belong to one of their values."""
        tags = [ended.tags for ended in self._calls]
        return any(mark in raw.value.ends or (not is_direct and mark in raw.call.ends) for raw in tags)

    def find_end(self, text: str) -> int:
        """Reads text that follows; returns the position after an end tag without its start tag, 0 if there is none."""
        self._has_text = self._has_text or not text.isspace()
        carried = len(self._carry)
        text, position = self._carry + text, 0
        while True:
            position, mark = self._marks.find(text, position, False, sys.maxsize)
            if not mark:
                self._carry = text[position:]
                return 0
            position += len(mark)
            pair = self._pairs[mark]
            if mark in pair.starts:
                self._depths[pair] += 1
            elif self._depths[pair]:
                self._depths[pair] -= 1
            else:
                return position - carried

    def confirm(self) -> None:
        """Emits the calls: what follows shows that they have ended."""
        for ended in self._calls:
            ended.call.confirm(ended.arguments)

    def fail(self, why: Fault, message: str) -> None:
        """Ends the calls as invalid."""
        for ended in self._calls:
            ended.call.fail(why, message)
            self._restore("".join(ended.markup))
