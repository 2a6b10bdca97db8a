"""Encodes replies as the bytes that a provider sends, streamed or whole; one module per wire."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from penstock.errors import UnknownWireError
from penstock.testing.reply import Drop, Reply
from penstock.testing.request import ReceivedRequest
from penstock.testing.wires.reply_encoder import ReplyEncoder, SendAction

REPLY_ENCODERS = {
    "anthropic": "AnthropicEncoder",
    "bedrock": "BedrockEncoder",
    "cohere": "CohereEncoder",
    "gemini": "GeminiEncoder",
    "mistral": "MistralEncoder",
    "ollama": "OllamaEncoder",
    "openai-chat": "OpenAIChatEncoder",
    "openai-responses": "OpenAIResponsesEncoder",
}
"""The wires and their encoder classes. Mistral has its own variant of openai-chat."""


def find_reply_encoder(wire: str) -> type[ReplyEncoder]:
    """The encoder class of a wire."""
    if wire not in REPLY_ENCODERS:
        raise UnknownWireError(wire, REPLY_ENCODERS)
    module: Any = import_module(f"penstock.testing.wires.{wire.replace('-', '_')}.play")
    encoder: type[ReplyEncoder] = getattr(module, REPLY_ENCODERS[wire])
    return encoder


def frames(wire: str, reply: Reply, is_streaming: bool = True, request: ReceivedRequest | None = None) -> list[bytes]:
    """The body of the response that the provider would send, one entry per frame, without pauses.

    `request` is the request, of which providers repeat some fields.
    """
    encoder = find_reply_encoder(wire)(reply, request or ReceivedRequest(wire))
    if is_streaming:
        return [action for action in encoder.stream() if isinstance(action, bytes)]
    body = encoder.body()
    is_dropped = any(isinstance(part, Drop) for part in reply.parts)
    return [body[: len(body) // 2] if is_dropped else body]


__all__ = ["REPLY_ENCODERS", "ReplyEncoder", "SendAction", "find_reply_encoder", "frames"]
