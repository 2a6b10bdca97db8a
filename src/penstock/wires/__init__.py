"""Frames to events, one module a wire."""

from penstock.errors import UnknownWireError
from penstock.wires.openai_chat import OpenAIChat
from penstock.wires.wire import Wire

WIRES: dict[str, type[Wire]] = {wire.name: wire for wire in (OpenAIChat,)}
"""The wires by name."""

ALIASES = {"mistral": "openai-chat"}
"""Names under which people look for a wire that is known by another."""


def find_wire(name: str) -> type[Wire]:
    """The wire of this name."""
    try:
        return WIRES[ALIASES.get(name, name)]
    except (KeyError, TypeError):
        raise UnknownWireError(name, WIRES) from None


__all__ = ["ALIASES", "WIRES", "Wire", "find_wire"]
