"""Vendor state that providers refuse, as damaged streams and stored histories may hold it: it is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.messages import Message, Part
from penstock.wires.shared.facts import StateFacts, WireFacts

_PARTS: dict[str, tuple[type, ...]] = {
    "any": (Reasoning, Text, Refusal, ToolCall, ToolCallInvalid),
    "reasoning": (Reasoning,),
    "text": (Text, Refusal),
    "call": (ToolCall, ToolCallInvalid),
}
"""The parts that each kind of state may be on."""
_TYPES: dict[str, type] = {"object": dict, "list": list, "text": str, "any": object}


def facts_of(state: Opaque, facts: WireFacts | None) -> StateFacts:
    """The facts about this kind of state; the default ones if there are none."""
    known = facts.states if facts else ()
    return next((kind for kind in known if kind.kind == state.kind), StateFacts(state.kind))


def is_well_formed(state: Opaque, facts: WireFacts | None) -> bool:
    """Whether the data of a state is of its type."""
    return isinstance(state.data, _TYPES[facts_of(state, facts).data])


def parts_by_block(message: Message) -> dict[int, list[Part]]:
    """The parts of a message that state can be on, by block."""
    parts: dict[int, list[Part]] = {}
    for part in message.parts:
        if isinstance(part, Reasoning | Text | Refusal | ToolCall | ToolCallInvalid):
            parts.setdefault(part.block, []).append(part)
    return parts


def is_in_place(state: Opaque, parts: Sequence[Part], facts: WireFacts | None) -> bool:
    """Whether a state is on a part of its kind; `parts`: the parts of its block.

    State without a part is in place: reasoning can be a signature alone.
    """
    kinds = _PARTS[facts_of(state, facts).on]
    return not parts or any(isinstance(part, kinds) for part in parts)


def item_id_of(state: Opaque, facts: WireFacts | None) -> str:
    """The id of an item, which may occur once in a history; empty if the state is not an item with an id."""
    field = facts.item_id if facts else ""
    return str(state.data.get(field) or "") if field and isinstance(state.data, dict) else ""


def without_malformed(message: Message, facts: Mapping[str, WireFacts]) -> Message:
    """The message without malformed state of these wires; the same object if it has none."""
    return _without(message, lambda state: state.wire in facts and not is_well_formed(state, facts[state.wire]))


def without_unsendable(messages: Iterable[Message], facts: WireFacts) -> list[Message]:
    """The messages without the state of this wire that its provider would refuse, as a damaged stream may leave it.

    That is malformed state, state on a part of another kind, and an item that occurred before.
    """
    items = ItemIds()
    return [_without_refused(message, facts, items) for message in messages]


class ItemIds:
    """Finds items of a history that occur again. The parts of one item follow each other in a message."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._last = ""

    def next_message(self) -> None:
        """The next message begins."""
        self._last = ""

    def is_repeated(self, id: str) -> bool:
        """Whether the item with this id ended before; an empty id belongs to no item."""
        if not id:
            return False
        is_repeated = id in self._seen and id != self._last
        self._seen.add(id)
        self._last = id
        return is_repeated


def _without_refused(message: Message, facts: WireFacts, items: ItemIds) -> Message:
    parts = parts_by_block(message)
    items.next_message()

    def is_refused(state: Opaque) -> bool:
        if state.wire != facts.wire:
            return False
        if not is_well_formed(state, facts) or not is_in_place(state, parts.get(state.block, ()), facts):
            return True
        return items.is_repeated(item_id_of(state, facts))

    return _without(message, is_refused)


def _without(message: Message, is_refused: Callable[[Opaque], bool]) -> Message:
    """The message without some of its state; the same object if it has none of that."""
    refused = {number for number, part in enumerate(message.parts) if isinstance(part, Opaque) and is_refused(part)}
    if not refused:
        return message
    return replace(message, parts=tuple(part for number, part in enumerate(message.parts) if number not in refused))
