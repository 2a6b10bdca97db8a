"""Repairs an interrupted, reordered or merged history, so that every provider accepts it.

Nothing is made up: a call without a result gets one that says so. A part that is out of place becomes text that says
where it comes from. Every change is noted.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from penstock.calls.numbering import UniqueIds
from penstock.events import Opaque, Text, ToolCall, ToolCallInvalid
from penstock.history.provider_rules import Target, find_problems
from penstock.history.read import Reading, read
from penstock.history.rules import CheckedHistory
from penstock.history.state_places import item_id, misplaced_states
from penstock.messages import (
    MESSAGE_FIELDS,
    PART_FIELDS,
    Content,
    File,
    Image,
    Message,
    Part,
    ToolResult,
    join_messages,
    last_block,
    tool_results,
    user,
)
from penstock.providers import ProviderName
from penstock.sentences import CUT_OR_MALFORMED, NO_RESULT
from penstock.wires import all_facts
from penstock.wires.shared.encode_request.foreign_blocks import block_text
from penstock.wires.shared.encode_request.history_steps import ALLOWED, HistorySteps
from penstock.wires.shared.encode_request.media import media_note
from penstock.wires.shared.encode_request.pairing import CallResults

BEFORE = "(Earlier messages are not part of this history.)"


class Repaired(list[Message]):
    """A repaired history; `changes` describes each change and its place.

    `wire` is the shape of the history before, if it was of one shape, and `is_continued` says that it continues a
    history that the provider keeps: `check` needs both.
    """

    def __init__(
        self, messages: Iterable[Message], changes: list[str], *, wire: str = "", is_continued: bool = False
    ) -> None:
        super().__init__(messages)
        self.changes = changes
        self.wire = wire
        self.is_continued = is_continued


def read_again(messages: Any) -> Reading:
    """A history as `read` reads it; a repaired history keeps its original `wire` and `is_continued`."""
    reading = read(messages)
    if isinstance(messages, Repaired):
        return replace(reading, wire=messages.wire, is_continued=messages.is_continued)
    return reading


def repair(messages: Any, provider: ProviderName | None = None) -> Repaired:
    """The history without the problems that `check` finds; `changes` describes each repair.

    A history without problems stays as it is. With a `provider`, media that it does not accept are replaced by a text
    that says so, and calls get names that it accepts.
    """
    reading = read_again(messages)
    history = CheckedHistory(reading)
    repaired, changes = history.messages, list[str]()
    if find_problems(history, provider):
        steps = _RepairSteps(history, provider)
        repaired, changes = steps.repair(), steps.changes
    return Repaired(repaired, changes, wire=reading.wire, is_continued=reading.is_continued)


class _RepairSteps(HistorySteps):
    """The steps of encoding a request, and some more; each change is noted."""

    def __init__(self, history: CheckedHistory, provider: str | None) -> None:
        super().__init__(all_facts())
        self.changes: list[str] = []
        self._history = history
        self._target = None if provider is None else Target.of(history, provider)
        self._free_ids = UniqueIds()
        self._turn = -1

    def repair(self) -> list[Message]:
        messages = self.finish_hosted_calls(self._history.messages)
        messages = self._remove_misplaced(messages)
        messages = self.remove_empty_parts(
            messages, takes_blank=self._history.is_ours, marks=(PART_FIELDS, MESSAGE_FIELDS)
        )
        messages = self.place_results(messages)
        messages = self._alternate_roles(messages)
        return [self._without_refused_media(message) for message in messages]

    def note(self, index: int | None, change: str) -> None:
        place = "messages" if index is None else self._history.where(index)
        self.changes.append(f"{place}: {change}")

    # Parts.

    def hosted_orphan(self, index: int, message: Message, result: Opaque) -> Part:
        if self._history.is_continued:
            return result
        self.note(index, f"wrote the {result.kind}, which has no call, as text")
        return Text(result.block, _orphan_text(result.kind, block_text(result.data)))

    def _remove_misplaced(self, messages: list[Message]) -> list[Message]:
        """Leave out parts that their message may not hold, misplaced vendor state and repeated items."""
        items: set[str] = set()
        return [self._in_place(index, message, items) for index, message in enumerate(messages)]

    def _in_place(self, index: int, message: Message, items: set[str]) -> Message:
        role = "user" if message.role == "tool" else message.role  # its other parts become the user's
        kept: list[Part] = []
        for part in message.parts:
            if isinstance(part, (*ALLOWED[role], ToolResult)):
                kept.append(part)
            else:
                self.note(
                    index, f"left out a {type(part).__name__}, which is not allowed in a message of the role {role}"
                )
            if message.role == "tool" and isinstance(part, Text | Image | File | Opaque):
                self.note(index, f"moved a {type(part).__name__} from a tool message to the user")
        fitting = replace(message, role=role, parts=tuple(kept))
        misplaced = misplaced_states(fitting)
        parts = [part for number, part in enumerate(kept) if not self._drops(index, part, number in misplaced, items)]
        return replace(fitting, parts=tuple(parts))

    def _drops(self, index: int, part: Part, is_misplaced: bool, items: set[str]) -> bool:
        """Whether a part is misplaced vendor state, or an item that occurred before."""
        if not isinstance(part, Opaque):
            return False
        if is_misplaced:
            self.note(index, f"left out the {part.kind} of {part.wire}, which was on a part of another kind")
            return True
        id = item_id(part)
        if id in items:
            self.note(index, f"left out the item {id!r}, which occurred before")
            return True
        items |= {id} if id else set()
        return False

    # Calls and results.

    def fit_call(self, pair: CallResults) -> tuple[str, str]:
        """The unique id and the name of a call; in our own messages, the id is unique within its turn."""
        index, call = pair.place[0], pair.call
        if self._history.is_ours and index != self._turn:
            self._free_ids, self._turn = UniqueIds(), index
        id = self._free_ids.take(call.id or "call")
        if id != call.id:
            self.note(index, f"gave a call of {call.name!r} the unique id {id!r}")
        return id, self._name(index, call)

    def _name(self, index: int, call: ToolCall | ToolCallInvalid) -> str:
        """The name of a call as the provider accepts it; in our own messages, encoders fit the names."""
        if self._target is None or self._history.is_ours:
            return call.name
        name = self._target.fit_name(call.name)
        if name != call.name:
            self.note(index, f"named the call {call.id!r} {name!r}: declare its tool under that name too")
        return name

    def call(self, pair: CallResults) -> ToolCall | ToolCallInvalid:
        """The call as a valid one, if it succeeded; in our own messages, repaired calls stay as they are."""
        if isinstance(pair.call, ToolCall) or pair.result is None or pair.result.is_error:
            return pair.call
        if self._history.is_ours and pair.is_repaired:  # with which it is sent
            return pair.call
        what = f"wrote the arguments of the call {pair.call.id!r}, which are not JSON, as an object"
        self.note(pair.place[0], what)
        return pair.valid_call

    def result(self, pair: CallResults) -> ToolResult:
        index, call, result = pair.place[0], pair.call, pair.result
        if result is None:
            self.note(index, f"gave the call {call.id!r} an error as its result, as it has none")
            text = CUT_OR_MALFORMED if isinstance(call, ToolCallInvalid) else NO_RESULT
            return ToolResult(call.id, call.name, (Text(0, text),), is_error=True)
        if len(pair.results) > 1:
            self.note(index, f"kept one of {len(pair.results)} results of the call {call.id!r}")
        if result.name not in (call.name, ""):
            self.note(index, f"named the result of the call {call.id!r} after its call, {call.name!r}")
        return replace(result, name=call.name)

    def results(self, index: int, pairs: list[CallResults]) -> Message:
        message = super().results(index, pairs)
        places = [pair.result_place for pair in pairs if pair.result_place is not None]
        if places != [(index + 1, number) for number in range(len(places))]:
            self.note(index, "put the results of its calls directly after it, in their order")
        return message

    def orphans(self, index: int, results: list[ToolResult]) -> Message:
        """Results without a call, as text of the user."""
        if self._history.is_continued:
            return tool_results(*results)
        return user(*(content for result in results for content in self._orphan(index, result)))

    def _orphan(self, index: int, result: ToolResult) -> list[Content]:
        self.note(index, f"wrote the result {result.call_id!r}, which has no call, as text of the user")
        text = _orphan_text(f"A result of {result.name or 'a tool'}", result.text)
        return [text, *(part for part in result.content if not isinstance(part, Text))]

    # Roles and media.

    def _alternate_roles(self, messages: list[Message]) -> list[Message]:
        """Join neighbours of one role, leave out empty messages, let the user begin."""
        joint: list[Message] = []
        for role, group in groupby(
            (message for message in messages if message.parts), key=lambda message: message.role
        ):
            neighbours = list(group)
            if len(neighbours) > 1 and role in ("user", "assistant"):
                self.note(None, f"joined {len(neighbours)} consecutive {role} messages")
                neighbours = [join_messages(*_separated(self._without_fields(message) for message in neighbours))]
            joint += neighbours
        first = next((index for index, message in enumerate(joint) if message.role != "system"), None)
        if first is not None and joint[first].role == "assistant":
            self.note(None, "added a user message at the beginning, as the assistant came first")
            joint.insert(first, user(BEFORE))
        return joint

    def _without_fields(self, message: Message) -> Message:
        """The message without its vendor's fields, which are not true of the messages that it is joined with."""
        kept = tuple(part for part in message.parts if not (isinstance(part, Opaque) and part.kind == MESSAGE_FIELDS))
        if len(kept) < len(message.parts):
            self.note(None, "left out the fields of a message (a name, for example) that was joined with another")
        return replace(message, parts=kept)

    def _without_refused_media(self, message: Message) -> Message:
        if self._target is None:
            return message
        parts: list[Part] = []
        for number, part in enumerate(message.parts):
            refusal = self._target.refusal(part, message)
            if isinstance(part, Image | File) and refusal:
                self.note(None, f"replaced media that the provider does not accept by a note: {refusal}")
                parts.append(replace(media_note(part), block=last_block(message) + 1 + number))
            else:
                parts.append(part)
        return replace(message, parts=tuple(parts))


def _orphan_text(what: str, text: str) -> str:
    return f"({what}, whose call is not part of this history: {text})"


def _separated(messages: Iterable[Message]) -> Iterable[Message]:
    """The messages, with a blank line before each text that follows the text of another message."""
    has_text = False
    for message in messages:
        first = next((part for part in message.parts if isinstance(part, Text)), None)
        if has_text and first is not None:
            spaced = replace(first, text=f"\n\n{first.text}")
            yield replace(message, parts=tuple(spaced if part is first else part for part in message.parts))
        else:
            yield message
        has_text = has_text or first is not None
