"""Which part a vendor's state belongs to: it goes back on that part, or the vendor refuses it."""

from __future__ import annotations

from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.messages import Message
from penstock.providers import PROVIDERS

_CALL = (ToolCall, ToolCallInvalid)
_WORDS = (Text, Refusal)
_PARTS = (Reasoning, *_WORDS, *_CALL)

_BELONGS: dict[tuple[str, str], tuple[type, ...]] = {
    ("anthropic", "signature"): (Reasoning,),
    ("anthropic", "citations"): _WORDS,
    ("anthropic", "caller"): _CALL,
    ("anthropic", "toolset_name"): _CALL,
    ("bedrock", "signature"): (Reasoning,),
    ("bedrock", "redactedContent"): (Reasoning,),
    ("bedrock", "citations"): _WORDS,
    ("gemini", "id"): _CALL,
    ("gemini", "thought_signature"): (Reasoning, *_WORDS, *_CALL),
    ("openai-chat", "extra_content"): _CALL,
    ("openai-chat", "reasoning_details"): (Reasoning,),
    ("openai-responses", "message"): _WORDS,
    ("openai-responses", "function_call"): _CALL,
    ("openai-responses", "custom_tool_call"): _CALL,
    ("openai-responses", "reasoning"): (Reasoning,),
}
"""What kind of part a state may be on. One that is not named here is a part of its own."""
_PLAIN = {
    "anthropic": ("signature", "citations", "toolset_name", "container"),
    "bedrock": ("signature", "redactedContent", "citations"),
    "cohere": ("tool_plan",),
    "gemini": ("thought_signature", "id", "continuationToken"),
    "ollama": ("context",),
    "openai-chat": ("reasoning_details", "reasoning_fields"),
}
"""States that are text or a list; all others are the object that the vendor sent."""


def belongs(state: Opaque, message: Message) -> bool:
    """Whether a state is on a part of the kind that it belongs to, or on none: a thought may be a state alone."""
    if not isinstance(state.data, dict) and state.kind not in _PLAIN.get(state.wire, ()):
        return False
    kinds = _BELONGS.get((state.wire, state.kind), _PARTS)
    worn = [part for part in message.parts if isinstance(part, _PARTS) and part.block == state.block]
    return not worn or any(isinstance(part, kinds) for part in worn)


def wearers(wire: str) -> frozenset[str]:
    """The providers that speak a wire."""
    return frozenset(name for name, provider in PROVIDERS.items() if provider.wire == wire)
