"""Frames to events, one module a wire; a wire is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.errors import UnknownWireError

if TYPE_CHECKING:
    from penstock.wires.shared.request import Encode
    from penstock.wires.shared.wire import Wire

WIRES = {
    "anthropic": "Anthropic",
    "bedrock": "Bedrock",
    "cohere": "Cohere",
    "gemini": "Gemini",
    "ollama": "Ollama",
    "openai-chat": "OpenAIChat",
    "openai-responses": "OpenAIResponses",
}
"""The wires by name, and the class of each, in the module of that name."""

ALIASES = {"mistral": "openai-chat"}
"""Names under which people look for a wire that is known by another."""


def find_wire(name: object) -> type[Wire]:
    """The wire of this name."""
    known = ALIASES.get(name, name) if isinstance(name, str) else ""
    if known not in WIRES:
        raise UnknownWireError(name, (*WIRES, *ALIASES))
    wire: type[Wire] = getattr(import_module(f"penstock.wires.{known.replace('-', '_')}.decode_response"), WIRES[known])
    return wire


def find_encoder(wire: str) -> Encode:
    """The function that encodes requests for a wire."""
    encode: Encode = import_module(f"penstock.wires.{wire.replace('-', '_')}.encode_request").encode
    return encode


__all__ = ["ALIASES", "WIRES", "find_encoder", "find_wire"]
