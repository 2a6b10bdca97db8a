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
| a call after an `ambiguous` or malformed one | it waits for the end of the text: it may be part of the value |
| another call of any kind, after text | it waits, too: it may be part of the value |
| text, directly after a malformed call of a dialect without end tags | all calls after it are `ambiguous` |
| another end tag, directly after the call | dropped: models repeat end tags |
| the end of a text that was cut | the call is `cut`: an end tag may have been on its way |
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from penstock.dialects.reading.marks import CallTags, Marks, TagPair, marks_of
from penstock.events import AMBIGUOUS_CALL, Fault

if TYPE_CHECKING:
    from penstock.dialects.reading.text_call import TextCall

AMBIGUOUS = (
    "an end tag follows the call without its start tag, so a value may go on after the end tags in it; "
    "write the call again, without these tags in its values"
)
UNKNOWN_END = "it is unclear where the malformed call before this one ends; write both calls again"

MAX_UNCONFIRMED = 256
"""How many calls may wait for the end of the text; further ones are invalid."""


class EndedCall(Struct):
    """A call that has ended and is not confirmed: its arguments, and the text that the model wrote for it."""

    call: TextCall
    arguments: dict[str, Any]
    markup: list[str]


class Unconfirmed:
    """The calls that are not confirmed, in order, and the tags that may show that one of them goes on.

    If they are `handed_over` at their end tags, nothing waits; where a call turns out to go on, that is an `Error`.
    `restore` puts the text of a call that failed in its place.
    """

    __slots__ = ("_calls", "_carry", "_depths", "_handed_over", "_is_lost", "_marks", "_may_go_on", "_pairs",
                 "_restore", "_tags", "is_followed")  # fmt: skip

    def __init__(self, restore: Callable[[str], None], *, handed_over: bool) -> None:
        self._calls: list[EndedCall] = []
        self._handed_over = handed_over
        self._restore = restore
        self.is_followed = False  # whether only the end of the text confirms the calls: text follows one of them
        self._may_go_on = False  # whether a malformed call without an end tag has just ended
        self._is_lost = False  # whether it went on: nobody knows where it ends
        self._carry = ""  # the end of the text so far that may begin a tag
        self._tags: dict[CallTags, None] = {}  # those of all calls so far
        self._pairs: dict[str, TagPair] = {}  # by tag
        self._depths: dict[TagPair, int] = {}  # how many start tags in the text have no end tag yet
        self._marks: Marks = marks_of()

    def add(self, ended: EndedCall) -> None:
        """Adds a call that has just ended."""
        if self._handed_over:
            ended.call.confirm(ended.arguments)
            if len(self._calls) < MAX_UNCONFIRMED:
                self._calls.append(ended)
            return
        if len(self._calls) == MAX_UNCONFIRMED:
            ended.call.fail("too_large", f"more than MAX_UNCONFIRMED ({MAX_UNCONFIRMED}) calls with text between them")
            return
        ended.call.close(ended.arguments)
        self._calls.append(ended)

    def watch(self, tags: CallTags, *, is_certain: bool) -> None:
        """Looks for these tags in the text from here on; `is_certain` if the call that ends here is valid."""
        self.is_followed = self.is_followed or not is_certain
        self._may_go_on = not is_certain and not tags.pairs
        self._tags[tags] = None
        for pair in tags.pairs:
            self._depths.setdefault(pair, 0)
            self._pairs |= dict.fromkeys((*pair.starts, *pair.ends), pair)
        self._marks = marks_of(*self._pairs)

    def add_markup(self, markup: str) -> None:
        """Adds end tags that were dropped to the text of the last call."""
        if self._calls:
            self._calls[-1].markup.append(markup)

    def is_stray(self, mark: str, *, is_direct: bool) -> bool:
        """Whether an end tag directly after a call, or after text, can only belong to a value."""
        return any(mark in tags.value.ends or (not is_direct and mark in tags.call.ends) for tags in self._tags)

    def find_end(self, text: str) -> int:
        """Reads text that follows; returns the position after an end tag without its start tag, 0 if there is none."""
        if not text.isspace():
            self.is_followed = True
            self._is_lost = self._is_lost or self._may_go_on
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
                self._carry = ""
                return position - carried

    def begin(self) -> bool:
        """Begins another call; returns whether it confirms the calls."""
        self._may_go_on = False
        return not self.is_followed

    def confirm(self) -> None:
        """Emits the calls: what follows shows that they have ended. It may still be part of a value, so it waits."""
        if self._is_lost:
            self.fail("ambiguous", UNKNOWN_END)
        calls, self._calls = self._calls, []
        for ended in calls if not self._handed_over else ():
            ended.call.confirm(ended.arguments)

    def fail(self, why: Fault, message: str) -> None:
        """Ends the calls as invalid; calls after them wait for the end of the text."""
        calls, self._calls, self.is_followed = self._calls, [], True
        for ended in calls:
            if not self._handed_over:
                ended.call.fail(why, message)
                self._restore("".join(ended.markup))
            elif why == "ambiguous":
                ended.call.report(AMBIGUOUS_CALL, message)
