"""Which part a vendor's state belongs to: it goes back on that part, or the vendor refuses it."""

from __future__ import annotations

from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.messages import FIELDS, MESSAGE, Message
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
    ("gemini", "thought_signature"): _PARTS,
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
SIGNATURES = frozenset({"signature", "redactedContent", "thought_signature"})
"""The states with which vendors sign what a model thought."""


def misplaced_states(message: Message) -> set[int]:
    """The numbers of the states that are not on a part of the kind that they belong to, nor on none.

    A state may be on none: a thought can be a signature alone.
    """
    worn: dict[int, list[object]] = {}
    for part in message.parts:
        if isinstance(part, _PARTS):
            worn.setdefault(part.block, []).append(part)
    return {
        number
        for number, part in enumerate(message.parts)
        if isinstance(part, Opaque) and not _belongs(part, worn.get(part.block, []))
    }


def _belongs(state: Opaque, worn: list[object]) -> bool:
    if not isinstance(state.data, dict) and state.kind not in _PLAIN.get(state.wire, ()):
        return False
    if state.kind == FIELDS and "signature" in state.data:  # of something that is not signed
        return False
    kinds = _BELONGS.get((state.wire, state.kind), _PARTS)
    return not worn or any(isinstance(part, kinds) for part in worn)


def empty_parts(message: Message, *, takes_blank: bool = True) -> set[int]:
    """The numbers of the texts and thoughts that say nothing, and carry no state that is more than a mark on them.

    White space says something where it is taken.
    """
    stateful = {part.block for part in message.parts if isinstance(part, Opaque) and part.kind not in (FIELDS, MESSAGE)}
    return {
        number
        for number, part in enumerate(message.parts)
        if isinstance(part, Text | Reasoning | Refusal)
        and part.block not in stateful
        and not (part.text if takes_blank else part.text.strip())
    }


def item_id(state: Opaque) -> str:
    """The id of an item of Responses, which may come once; empty if it has none, or is something else."""
    is_item = state.wire == "openai-responses" and isinstance(state.data, dict)
    return str(state.data.get("id") or "") if is_item else ""


def wearers(wire: str) -> frozenset[str]:
    """The providers that speak a wire."""
    return frozenset(name for name, provider in PROVIDERS.items() if provider.wire == wire)
