"""A history that every provider takes, made of one that was interrupted, mixed up or pieced together.

What is missing is told as missing: a call whose result is not there gets one that says so, instead of a made-up one.
What has no place becomes text that says where it comes from. What was done is said, change by change.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from penstock.events import Opaque, Text, ToolCallInvalid
from penstock.history.check import problems_of, why_not_taken
from penstock.history.rules import History
from penstock.history.states import empty_parts, item_id, misplaced_states
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
from penstock.pairing import Pair, Pairing, Place
from penstock.providers import Provider, find_provider
from penstock.requests.history import ALLOWED
from penstock.requests.media import noted
from penstock.shapes import read

NO_RESULT = "There is no result: the run was interrupted before the tool had ended, so it may have had an effect."
NOT_RUN = "Not run: the call was cut off or malformed."
BEFORE = "(What was said before is not part of this history.)"


class Repaired(list[Message]):
    """A history that was mended; `changes` says what was done, where, in words."""

    def __init__(self, messages: Iterable[Message], changes: list[str]) -> None:
        super().__init__(messages)
        self.changes = changes


def repair(messages: Any, provider: str | None = None) -> Repaired:
    """The history, mended: `check` finds nothing in it, and its `changes` say what was done.

    One in which there is nothing to find stays as it is. With a `provider`, media that it does not take are replaced by
    a text that says so.
    """
    history = History(read(messages))
    if not problems_of(history, provider):
        return Repaired(history.messages, [])
    mender = _Mender(history, None if provider is None else find_provider(provider)[1])
    return Repaired(mender.mend(), mender.changes)


class _Mender:
    """Mends one thing after the other, and notes what it did."""

    def __init__(self, history: History, provider: Provider | None) -> None:
        self.changes: list[str] = []
        self._history = history
        self._provider = provider
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
        for part in message.parts:
            if isinstance(part, (*ALLOWED[role], ToolResult)):
                kept.append(part)
            else:
                self._note(at, f"left out a {type(part).__name__}, which has no place in a message of the {role}")
            if message.role == "tool" and isinstance(part, Text | Image | File):
                self._note(at, f"gave a {type(part).__name__} that stood among results to the user")
        strange = misplaced_states(Message(role, tuple(kept)))
        return Message(
            role, tuple(part for number, part in enumerate(kept) if not self._drops(at, part, number in strange))
        )

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
        """The messages with an id on every call, none of which comes twice; results go with their calls."""
        free = _FreeIds()
        changed: dict[Place, Part] = {}
        for pairs in Pairing(messages).of:
            if self._history.is_ours:  # from turn to turn, ids are told apart when they are sent
                free = _FreeIds()
            for pair in pairs:
                id = free.take(pair.call.id or "call")
                if id != pair.call.id:
                    self._note(pair.place[0], f"gave a call of {pair.call.name!r} the id {id!r}, which no other has")
                    changed[pair.place] = replace(pair.call, id=id)
                    changed |= {place: replace(result, call_id=id) for place, result in pair.results}
        return [
            Message(message.role, tuple(changed.get((at, number), part) for number, part in enumerate(message.parts)))
            for at, message in enumerate(messages)
        ]

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
        told = f"(A result of {result.name or 'a tool'}, whose call is not part of this history: {result.text})"
        return [told, *(part for part in result.content if not isinstance(part, Text))]

    # Roles, and what cannot be shown.

    def _take_turns(self, messages: list[Message]) -> list[Message]:
        """The messages without empty ones; neighbours of one role are one; the user begins."""
        mended: list[Message] = []
        for role, group in groupby((message for message in messages if message.parts), key=lambda one: one.role):
            several = list(group)
            if len(several) > 1 and role in ("user", "assistant"):
                self._note(None, f"put {len(several)} messages of the {role} that followed each other into one")
                several = [joined(*(self._nameless(message) for message in several))]
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
        if self._provider is None:
            return message
        free = last_block(message) + 1
        parts = [self._shown(part, message, self._provider, free + number) for number, part in enumerate(message.parts)]
        return Message(message.role, tuple(parts))

    def _shown(self, part: Part, message: Message, provider: Provider, block: int) -> Part:
        why = why_not_taken(part, message, provider.wire, provider.quirks)
        if not isinstance(part, Image | File) or not why:
            return part
        self._note(None, f"replaced what the provider does not take by a note: {why}")
        return replace(noted(part), block=block)


class _FreeIds:
    """Ids, none of which comes twice."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def take(self, id: str) -> str:
        """This id, or one like it that was not taken yet."""
        made = id
        while made in self._times:
            self._times[id] += 1
            made = f"{id}_{self._times[id]}"
        self._times[made] = 1
        return made
