"""Replies to bytes, one module a wire: what the provider would send, streamed or whole."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from penstock.errors import UnknownWireError
from penstock.testing.reply import Drop, Reply
from penstock.testing.request import Asked
from penstock.testing.wires.player_base import Beat, Encoder

ENCODERS = {
    "anthropic": "Anthropic",
    "bedrock": "Bedrock",
    "cohere": "Cohere",
    "gemini": "Gemini",
    "mistral": "Mistral",
    "ollama": "Ollama",
    "openai-chat": "OpenAIChat",
    "openai-responses": "OpenAIResponses",
}
"""The wires by name, and the class of each, in the module of that name. Mistral speaks a flavour of openai-chat."""


def find_encoder(wire: str) -> type[Encoder]:
    """The encoder of this name."""
    if wire not in ENCODERS:
        raise UnknownWireError(wire, ENCODERS)
    module: Any = import_module(f"penstock.testing.wires.{wire.replace('-', '_')}.play")
    encoder: type[Encoder] = getattr(module, ENCODERS[wire])
    return encoder


def frames(wire: str, reply: Reply, is_streaming: bool = True, asked: Asked | None = None) -> list[bytes]:
    """The response's body, a frame an entry: what the provider would send. Pauses are left out.

    `asked` is the request that is answered, for what a provider repeats of it.
    """
    encoder = find_encoder(wire)(reply, asked or Asked(wire))
    if is_streaming:
        return [beat for beat in encoder.stream() if isinstance(beat, bytes)]
    body = encoder.body()
    is_dropped = any(isinstance(part, Drop) for part in reply.parts)
    return [body[: len(body) // 2] if is_dropped else body]


__all__ = ["ENCODERS", "Beat", "Encoder", "find_encoder", "frames"]
