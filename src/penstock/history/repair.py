"""A history that every provider takes, made of one that was interrupted, mixed up or pieced together.

What is missing is told as missing: a call whose result is not there gets one that says so, instead of a made-up one.
What has no place becomes text that says where it comes from. What was done is said, change by change.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from penstock.calls.numbering import UniqueIds
from penstock.events import Opaque, Text, ToolCallInvalid
from penstock.history.check import name_for, problems_of, why_not_taken, wire_to
from penstock.history.repaired import Repaired, reading_of
from penstock.history.rules import History
from penstock.history.state_places import empty_parts, item_id, misplaced_states
from penstock.messages import (
    MESSAGE,
    Content,
    File,
    Image,
    Message,
    Part,
    ToolResult,
    joined,
    last_block,
    tool_results,
    user,
)
from penstock.providers import find_provider
from penstock.wires.shared.foreign_blocks import words_of
from penstock.wires.shared.media import noted
from penstock.wires.shared.pairing import Pair, Pairing, Place
from penstock.wires.shared.settle import ALLOWED

NO_RESULT = "There is no result: the run was interrupted before the tool had ended, so it may have had an effect."
NOT_RUN = "Not run: the call was cut off or malformed."
BEFORE = "(What was said before is not part of this history.)"


def repair(messages: Any, provider: str | None = None) -> Repaired:
    """The history, mended: `check` finds nothing in it, and its `changes` say what was done.

    One in which there is nothing to find stays as it is. With a `provider`, media that it does not take are replaced by
    a text that says so, and calls are given names that it takes.
    """
    reading = reading_of(messages)
    history = History(reading)
    mended, changes = history.messages, list[str]()
    if problems_of(history, provider):
        mender = _Mender(history, provider)
        mended, changes = mender.mend(), mender.changes
    return Repaired(mended, changes, wire=reading.wire, is_continued=reading.is_continued)


class _Mender:
    """Mends one thing after the other, and notes what it did."""

    def __init__(self, history: History, provider: str | None) -> None:
        self.changes: list[str] = []
        self._history = history
        self._target = None if provider is None else _Target(history, provider)
        self._items: set[str] = set()  # the ids of items that are there already

    def mend(self) -> list[Message]:
        mended = [self._clear(at, message) for at, message in enumerate(self._history.messages)]
        mended = self._place_results(self._tell_apart(mended))
        return [self._without_media(message) for message in self._take_turns(mended)]

    def _note(self, where: int | None, what: str) -> None:
        place = "messages" if where is None else self._history.where(where)
        self.changes.append(f"{place}: {what}")

    # Parts.

    def _clear(self, at: int, message: Message) -> Message:
        """The message without what is out of place or says nothing; results find their place later."""
        placed = self._in_place(at, message)
        empty = empty_parts(placed, takes_blank=self._history.is_ours)
        gone = {part.block for number, part in enumerate(placed.parts) if number in empty and isinstance(part, Text)}
        kept = [
            part
            for number, part in enumerate(placed.parts)
            if number not in empty and not (isinstance(part, Opaque) and part.block in gone)
        ]
        if not kept:
            self._note(at, "left out an empty message")
        elif empty:
            self._note(at, "left out empty parts")
        return Message(placed.role, tuple(kept))

    def _in_place(self, at: int, message: Message) -> Message:
        role = "user" if message.role == "tool" else message.role  # what is no result in it is the user's
        kept: list[Part] = []
        for part in self._paired(at, message):
            if isinstance(part, (*ALLOWED[role], ToolResult)):
                kept.append(part)
            else:
                self._note(at, f"left out a {type(part).__name__}, which has no place in a message of the {role}")
            if message.role == "tool" and isinstance(part, Text | Image | File | Opaque):
                self._note(at, f"gave a {type(part).__name__} that stood among results to the user")
        strange = misplaced_states(Message(role, tuple(kept)))
        return Message(
            role, tuple(part for number, part in enumerate(kept) if not self._drops(at, part, number in strange))
        )

    def _paired(self, at: int, message: Message) -> Iterable[Part]:
        """The parts without calls of a vendor's own tools that have no result; results that have no call are told."""
        hosted = self._history.hosted
        for number, part in enumerate(message.parts):
            place = at, number
            if place in hosted.calls:
                self._note(at, f"left out the {hosted.calls[place].kind}, whose result never came")
            elif place in hosted.results and not self._history.is_continued:
                result = hosted.results[place]
                self._note(at, f"wrote the {result.kind}, whose call is not there, as text")
                yield Text(result.block, _told(result.kind, words_of(result.data)))
            elif place not in hosted.callers:
                yield part

    def _drops(self, at: int, part: Part, is_misplaced: bool) -> bool:
        """Whether a part is a vendor's state that is misplaced, or an item that was there before."""
        if not isinstance(part, Opaque):
            return False
        if is_misplaced:
            self._note(at, f"left out the {part.kind} of {part.wire}, which was on a part of another kind")
            return True
        id = item_id(part)
        if id in self._items:
            self._note(at, f"left out the item {id!r}, which was there before")
            return True
        self._items |= {id} if id else set()
        return False

    # Calls and results.

    def _tell_apart(self, messages: list[Message]) -> list[Message]:
        """The messages with an id on every call, none of which comes twice, and a name that the provider takes.

        Results go with their calls.
        """
        free = UniqueIds()
        changed: dict[Place, Part] = {}
        for pairs in Pairing(messages).of:
            if self._history.is_ours:  # from turn to turn, ids are told apart when they are sent
                free = UniqueIds()
            for pair in pairs:
                id, name = free.take(pair.call.id or "call"), self._name(pair)
                if id != pair.call.id:
                    self._note(pair.place[0], f"gave a call of {pair.call.name!r} the id {id!r}, which no other has")
                if (id, name) != (pair.call.id, pair.call.name):
                    changed[pair.place] = replace(pair.call, id=id, name=name)
                    changed |= {
                        place: replace(result, call_id=id, name=name if result.name == pair.call.name else result.name)
                        for place, result in pair.results
                    }
        return [
            Message(message.role, tuple(changed.get((at, number), part) for number, part in enumerate(message.parts)))
            for at, message in enumerate(messages)
        ]

    def _name(self, pair: Pair) -> str:
        """The name of a call; in a history of ours, it is fitted when it is sent."""
        if self._target is None or self._history.is_ours:
            return pair.call.name
        name = self._target.name_for(pair.call.name)
        if name != pair.call.name:
            self._note(pair.place[0], f"named the call {pair.call.id!r} {name!r}: declare its tool under that name too")
        return name

    def _place_results(self, messages: list[Message]) -> list[Message]:
        """The messages with the results of each turn directly after it: one for each call, in their order."""
        pairing = Pairing(messages)
        mended: list[Message] = []
        for at, message in enumerate(messages):
            mended.append(Message(message.role, tuple(self._said(message, pairing.of[at]))))
            mended.append(tool_results(*(self._answer(pair) for pair in pairing.of[at])))
            orphans = [result for _, result in pairing.orphans[at]]
            if self._history.is_continued:
                mended.append(tool_results(*orphans))
            else:
                mended.append(user(*(content for result in orphans for content in self._told(at, result))))
            self._note_order(at, pairing.of[at])
        return mended

    def _said(self, message: Message, pairs: list[Pair]) -> Iterable[Part]:
        """What was said besides results; a malformed call that has a good result is written as a whole one."""
        by_number = {pair.place[1]: pair for pair in pairs}
        for number, part in enumerate(message.parts):
            pair = by_number.get(number)
            if isinstance(part, ToolCallInvalid) and pair and pair.answer and not pair.answer.is_error:
                self._note(
                    pair.place[0], f"wrote the arguments of the call {part.id!r}, which are no JSON, as an object"
                )
                yield pair.whole
            elif not isinstance(part, ToolResult):
                yield part

    def _answer(self, pair: Pair) -> ToolResult:
        at, call, answer = pair.place[0], pair.call, pair.answer
        if answer is None:
            self._note(at, f"gave the call {call.id!r} a result that says that there is none")
            words = NOT_RUN if isinstance(call, ToolCallInvalid) else NO_RESULT
            return ToolResult(call.id, call.name, (Text(0, words),), is_error=True)
        if len(pair.results) > 1:
            self._note(at, f"kept one of {len(pair.results)} results of the call {call.id!r}")
        if answer.name not in (call.name, ""):
            self._note(at, f"named the result of the call {call.id!r} after its call, {call.name!r}")
        return replace(answer, name=call.name)

    def _note_order(self, at: int, pairs: list[Pair]) -> None:
        places = [pair.answer_place for pair in pairs if pair.answer_place is not None]
        if places != [(at + 1, number) for number in range(len(places))]:
            self._note(at, "put the results of its calls directly after it, in their order")

    def _told(self, at: int, result: ToolResult) -> list[Content]:
        """A result without a call, as what the user shows."""
        self._note(at, f"wrote the result {result.call_id!r}, whose call is not there, as what the user says")
        told = _told(f"A result of {result.name or 'a tool'}", result.text)
        return [told, *(part for part in result.content if not isinstance(part, Text))]

    # Roles, and what cannot be shown.

    def _take_turns(self, messages: list[Message]) -> list[Message]:
        """The messages without empty ones; neighbours of one role are one; the user begins."""
        mended: list[Message] = []
        for role, group in groupby((message for message in messages if message.parts), key=lambda one: one.role):
            several = list(group)
            if len(several) > 1 and role in ("user", "assistant"):
                self._note(None, f"put {len(several)} messages of the {role} that followed each other into one")
                several = [joined(*_apart(self._nameless(message) for message in several))]
            mended += several
        first = next((at for at, message in enumerate(mended) if message.role != "system"), None)
        if first is not None and mended[first].role == "assistant":
            self._note(None, "began with a note in the user's place, as the assistant's message came first")
            mended.insert(first, user(BEFORE))
        return mended

    def _nameless(self, message: Message) -> Message:
        """The message without what its vendor said beside it, which does not hold for those that it is joined with."""
        kept = tuple(part for part in message.parts if not (isinstance(part, Opaque) and part.kind == MESSAGE))
        if len(kept) < len(message.parts):
            self._note(None, "left out fields beside a message (a name, say) that was put together with another")
        return Message(message.role, kept)

    def _without_media(self, message: Message) -> Message:
        if self._target is None:
            return message
        free = last_block(message) + 1
        parts = [self._shown(part, message, self._target, free + number) for number, part in enumerate(message.parts)]
        return Message(message.role, tuple(parts))

    def _shown(self, part: Part, message: Message, target: _Target, block: int) -> Part:
        why = target.why_not(part, message)
        if not isinstance(part, Image | File) or not why:
            return part
        self._note(None, f"replaced what the provider does not take by a note: {why}")
        return replace(noted(part), block=block)


def _told(what: str, words: str) -> str:
    return f"({what}, whose call is not part of this history: {words})"


def _apart(messages: Iterable[Message]) -> Iterable[Message]:
    """The messages, with a blank line where the words of one would run into those of the one before."""
    is_said = False
    for message in messages:
        first = next((part for part in message.parts if isinstance(part, Text)), None)
        if is_said and first is not None:
            spaced = replace(first, text=f"\n\n{first.text}")
            yield Message(message.role, tuple(spaced if part is first else part for part in message.parts))
        else:
            yield message
        is_said = is_said or first is not None


class _Target:
    """The provider that a history is mended for, and the wire on which it goes there."""

    def __init__(self, history: History, provider: str) -> None:
        self._name, row = find_provider(provider)
        self._wire = wire_to(self._name, row, history)
        self._quirks = row.quirks

    def name_for(self, tool: str) -> str:
        """A tool's name as the provider takes it."""
        return name_for(tool, self._name, self._wire)

    def why_not(self, part: Part, message: Message) -> str:
        """Why the provider does not take a picture or a file; empty if it does."""
        return why_not_taken(part, message, self._wire, self._quirks)
