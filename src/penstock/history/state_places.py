"""Which part vendor state belongs to: it must go back on that part, or the vendor refuses it."""

from __future__ import annotations

from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.messages import PART_FIELDS, Message
from penstock.wires import find_facts
from penstock.wires.shared.facts import StateFacts
from penstock.wires.shared.states import facts_of, is_well_formed

_CALL = (ToolCall, ToolCallInvalid)
_TEXT = (Text, Refusal)
_ANY = (Reasoning, *_TEXT, *_CALL)
_PARTS: dict[str, tuple[type, ...]] = {
    "any": _ANY,
    "reasoning": (Reasoning,),
    "text": _TEXT,
    "call": _CALL,
}


def misplaced_states(message: Message) -> set[int]:
    """The numbers of the states that are on a part of the wrong kind, or are not of their own type.

    State without a part is in place: reasoning can be a signature alone.
    """
    parts: dict[int, list[object]] = {}
    for part in message.parts:
        if isinstance(part, _ANY):
            parts.setdefault(part.block, []).append(part)
    return {
        number
        for number, part in enumerate(message.parts)
        if isinstance(part, Opaque) and not _is_in_place(part, parts.get(part.block, []))
    }


def _is_in_place(state: Opaque, parts: list[object]) -> bool:
    facts = _facts_of(state)
    if not is_well_formed(state, find_facts(state.wire)):
        return False
    if state.kind == PART_FIELDS and "signature" in state.data:  # of a part that has no signature
        return False
    return not parts or any(isinstance(part, _PARTS[facts.on]) for part in parts)


def signed_blocks(message: Message) -> set[int]:
    """The blocks with a signature on them."""
    return {part.block for part in message.parts if isinstance(part, Opaque) and _facts_of(part).is_signature}


def item_id(state: Opaque) -> str:
    """The id of an item, which may occur once in a history; empty if the state is not an item with an id."""
    field = find_facts(state.wire).item_id
    return str(state.data.get(field) or "") if field and isinstance(state.data, dict) else ""


def _facts_of(state: Opaque) -> StateFacts:
    return facts_of(state, find_facts(state.wire))
