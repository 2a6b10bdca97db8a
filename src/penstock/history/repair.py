"""A history that every provider takes, made of one that was interrupted, mixed up or pieced together.

What is missing is told as missing: a call whose result is not there gets one that says so, instead of a made-up one.
What has no place becomes text that says where it comes from. What was done is said, change by change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from penstock.events import Opaque, Text, ToolCall, ToolCallInvalid
from penstock.history.check import read, why_not_taken
from penstock.history.rules import is_empty
from penstock.history.states import belongs
from penstock.messages import File, Image, Message, Part, ToolResult, joined, last_block, tool_results, user
from penstock.pairing import Pair, Pairing, Place
from penstock.providers import Provider, find_provider
from penstock.requests.history import ALLOWED
from penstock.requests.media import noted

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

    With a `provider`, media that it does not take are replaced by a text that says so.
    """
    row = None if provider is None else find_provider(provider)[1]
    mender = _Mender(row)
    history = read(messages)
    mended = mender.parts(history.messages, takes_blank=history.is_ours)
    mended = mender.results(mender.ids(mended, is_ours=history.is_ours))
    return Repaired(mender.media(mender.roles(mended)), mender.changes)


class _Mender:
    """Mends one thing after the other, and notes what it did."""

    def __init__(self, provider: Provider | None) -> None:
        self.changes: list[str] = []
        self._provider = provider

    # Parts.

    def parts(self, messages: list[Message], *, takes_blank: bool) -> list[Message]:
        """The messages without parts that are out of place or say nothing."""
        mended: list[Message] = []
        for at, message in enumerate(messages):
            where = f"messages[{at}]"
            mended.append(self._telling(self._placed(message, where), where, takes_blank=takes_blank))
        return mended

    def _placed(self, message: Message, where: str) -> Message:
        """The message without what has no place in it; results find theirs later."""
        role = "user" if message.role == "tool" else message.role
        kept: list[Part] = []
        for part in message.parts:
            if message.role == "tool" and isinstance(part, ALLOWED["user"]) and not isinstance(part, ToolResult):
                self._note(where, f"gave a {type(part).__name__} that stood among results to the user")
            if not isinstance(part, (*ALLOWED[role], ToolResult)):
                self._note(where, f"left out a {type(part).__name__}, which has no place in a message of the {role}")
            elif isinstance(part, Opaque) and not belongs(part, message):
                self._note(where, f"left out the {part.kind} of {part.wire}, which was on a part of another kind")
            else:
                kept.append(part)
        return Message(role, tuple(kept))

    def _telling(self, message: Message, where: str, *, takes_blank: bool) -> Message:
        """The message without parts that say nothing."""
        kept = tuple(part for part in message.parts if not is_empty(part, message, takes_blank=takes_blank))
        if not kept:
            self._note(where, "left out an empty message")
        elif len(kept) < len(message.parts):
            self._note(where, "left out empty parts")
        return Message(message.role, kept)

    # Ids, and what belongs together.

    def ids(self, messages: list[Message], *, is_ours: bool) -> list[Message]:
        """The messages with an id on every call, none of which comes twice; results go with their calls."""
        used: set[str] = set()
        renamed: dict[Place, Part] = {}
        for pairs in Pairing(messages).of:
            if is_ours:  # ids are made unique when they are sent, as long as they are in a turn
                used.clear()
            for pair in pairs:
                renamed |= self._identified(pair, used)
        return [
            Message(message.role, tuple(renamed.get((at, number), part) for number, part in enumerate(message.parts)))
            for at, message in enumerate(messages)
        ]

    def _identified(self, pair: Pair, used: set[str]) -> dict[Place, Part]:
        """The call and its results with an id that no other has, if theirs is none."""
        id = _free(pair.call.id or "call", used)
        used.add(id)
        if id == pair.call.id:
            return {}
        self._note(_at(pair.place), f"gave the call of {pair.call.name!r} the id {id!r}, as its own was not unique")
        results: dict[Place, Part] = {place: replace(result, call_id=id) for place, result in pair.results}
        return {pair.place: replace(pair.call, id=id), **results}

    def results(self, messages: list[Message]) -> list[Message]:
        """The messages with the results of each turn directly after it: one for each call, in their order."""
        pairing = Pairing(messages)
        mended: list[Message] = []
        for at, message in enumerate(messages):
            said = tuple(part for part in message.parts if not isinstance(part, ToolResult))
            mended.append(Message(message.role, self._whole(pairing.of[at], said)))
            mended.append(tool_results(*(self._answer(pair) for pair in pairing.of[at])))
            mended.append(user(*(self._told(place, result) for place, result in pairing.orphans[at])))
            self._note_order(at, pairing.of[at])
        return mended

    def _whole(self, pairs: list[Pair], parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """The parts, with calls that were answered as if they were whole written as whole ones."""
        answered = {id(pair.call): pair for pair in pairs if pair.answer and not pair.answer.is_error}
        return tuple(
            self._as_whole(part) if isinstance(part, ToolCallInvalid) and id(part) in answered else part
            for part in parts
        )

    def _as_whole(self, call: ToolCallInvalid) -> ToolCall:
        arguments = {"input": call.arguments_raw} if call.kind == "custom" else call.repaired or {}
        self._note(call.id, "wrote the malformed arguments of the call as what was probably meant, as it has a result")
        return ToolCall(call.id, call.name, arguments, kind=call.kind, block=call.block)

    def _answer(self, pair: Pair) -> ToolResult:
        call, answer = pair.call, pair.answer
        if answer is None:
            words = NOT_RUN if isinstance(call, ToolCallInvalid) else NO_RESULT
            self._note(_at(pair.place), f"gave the call {call.id!r} a result that says that there is none")
            return ToolResult(call.id, call.name, (Text(0, words),), is_error=True)
        if len(pair.results) > 1:
            self._note(_at(pair.place), f"kept the last of {len(pair.results)} results of the call {call.id!r}")
        if answer.name != call.name and answer.name:
            self._note(_at(pair.results[-1][0]), f"named the result {call.name!r}, as its call is")
        return replace(answer, name=call.name)

    def _note_order(self, at: int, pairs: list[Pair]) -> None:
        places = [pair.results[-1][0] for pair in pairs if pair.results]
        wanted = [(at + 1, number) for number in range(len(places))]
        if places != wanted:
            self._note(f"messages[{at}]", "put the results of its calls directly after it, in their order")

    def _told(self, place: Place, result: ToolResult) -> str:
        self._note(_at(place), f"wrote the result {result.call_id!r}, whose call is not there, as text")
        name = result.name or "a tool"
        return f"(A result of {name}, whose call is not part of this history: {result.text})"

    # Roles.

    def roles(self, messages: list[Message]) -> list[Message]:
        """The messages without empty ones; neighbours of one role are one; the user begins."""
        mended: list[Message] = []
        for message in messages:
            if not message.parts:
                continue
            if mended and mended[-1].role == message.role and message.role in ("user", "assistant"):
                self._note("messages", f"put two messages of the {message.role} that followed each other into one")
                mended[-1] = joined(mended[-1], message)
            else:
                mended.append(message)
        first = next((at for at, message in enumerate(mended) if message.role != "system"), None)
        if first is not None and mended[first].role == "assistant":
            self._note("messages", "began with a note in the user's place, as the assistant's message came first")
            mended.insert(first, user(BEFORE))
        return mended

    # Media.

    def media(self, messages: list[Message]) -> list[Message]:
        """The messages without media that the provider does not take."""
        provider = self._provider
        if provider is None:
            return messages
        return [self._seen(message, provider) for message in messages]

    def _seen(self, message: Message, provider: Provider) -> Message:
        free = last_block(message) + 1
        parts = [self._shown(part, message, provider, free + number) for number, part in enumerate(message.parts)]
        return Message(message.role, tuple(parts))

    def _shown(self, part: Part, message: Message, provider: Provider, block: int) -> Part:
        why = why_not_taken(part, message, provider)
        if not isinstance(part, Image | File) or not why:
            return part
        self._note("messages", f"replaced what the provider does not take by a note: {why}")
        return replace(noted(part), block=block)

    def _note(self, where: str, what: str) -> None:
        self.changes.append(f"{where}: {what}")


def _free(id: str, used: set[str]) -> str:
    made, times = id, 1
    while made in used:
        times += 1
        made = f"{id}_{times}"
    return made


def _at(place: Place) -> str:
    return f"messages[{place[0]}].parts[{place[1]}]"
