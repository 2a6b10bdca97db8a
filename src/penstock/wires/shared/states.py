"""Vendor state that is not of its own type, as damaged streams and stored histories may hold: it is left out."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from penstock.events import Opaque
from penstock.messages import Message
from penstock.wires.shared.facts import StateFacts, WireFacts

_TYPES: dict[str, type] = {"object": dict, "list": list, "text": str, "any": object}


def facts_of(state: Opaque, facts: WireFacts | None) -> StateFacts:
    """The facts about this kind of state; the default ones if there are none."""
    known = facts.states if facts else ()
    return next((kind for kind in known if kind.kind == state.kind), StateFacts(state.kind))


def is_well_formed(state: Opaque, facts: WireFacts | None) -> bool:
    """Whether the data of a state is of its type."""
    return isinstance(state.data, _TYPES[facts_of(state, facts).data])


def without_malformed(message: Message, facts: Mapping[str, WireFacts]) -> Message:
    """The message without malformed state of these wires; the same object if it has none."""
    malformed = {
        number
        for number, part in enumerate(message.parts)
        if isinstance(part, Opaque) and part.wire in facts and not is_well_formed(part, facts[part.wire])
    }
    if not malformed:
        return message
    return replace(message, parts=tuple(part for number, part in enumerate(message.parts) if number not in malformed))
