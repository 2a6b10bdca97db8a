"""The part that vendor state belongs to: the vendor rejects state on any other part."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.events import Opaque
from penstock.messages import PART_FIELDS, Message, Part
from penstock.wires import find_facts
from penstock.wires.shared.encode_request.states import (
    facts_of,
    is_in_place,
    is_well_formed,
    item_id_of,
    parts_by_block,
)


def misplaced_states(message: Message) -> set[int]:
    """The indexes of states on a part of the wrong kind, or of the wrong type.

    State without a part is in place: reasoning can be a signature alone.
    """
    parts = parts_by_block(message)
    return {
        number
        for number, part in enumerate(message.parts)
        if isinstance(part, Opaque) and not _is_in_place(part, parts.get(part.block, []))
    }


def _is_in_place(state: Opaque, parts: Sequence[Part]) -> bool:
    facts = find_facts(state.wire)
    if not is_well_formed(state, facts):
        return False
    if state.kind == PART_FIELDS and "signature" in state.data:  # the part itself has no signature
        return False
    return is_in_place(state, parts, facts)


def signed_blocks(message: Message) -> set[int]:
    """The blocks with a signature on them."""
    states = [part for part in message.parts if isinstance(part, Opaque)]
    return {state.block for state in states if facts_of(state, find_facts(state.wire)).is_signature}


def item_id(state: Opaque) -> str:
    """The id of an item, which may occur once in a history; empty if the state is not an item with an id."""
    return item_id_of(state, find_facts(state.wire))
