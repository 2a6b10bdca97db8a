"""The narrow shape of Chat Completions frames, which nearly all of them have."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from penstock.wires.openai_chat.fragments import Fragment
from penstock.wires.openai_chat.routing import Label
from penstock.wires.shared.decode_response.indexes import Index


class Delta(Struct, gc=False, forbid_unknown_fields=True):
    """What a chunk adds. Fields of type None are null on most chunks; another value takes the loose path."""

    role: str | None = None
    content: str | None = None
    tool_calls: list[Fragment] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    channel: str | None = None
    token_id: int | None = None
    function_call: None = None
    annotations: None = None
    audio: None = None
    images: None = None
    reasoning_text: None = None
    reasoning_opaque: None = None
    thinking_blocks: None = None


class Choice(Struct, gc=False):
    index: Index = 0
    delta: Delta | None = None
    finish_reason: str | None = None
    message: None = None
    text: None = None
    usage: None = None
    error: None = None


class Chunk(Struct, gc=False):
    choices: list[Choice] = []
    usage: dict[str, Any] | None = None
    error: None = None
    errors: None = None
    error_message: None = None
    error_msg: None = None
    error_code: None = None
    base_resp: None = None
    detail: None = None
    x_groq: None = None
    citations: None = None


def argument_pieces(chunks: list[Chunk], start: int, choice: int, label: Label | None) -> list[str]:
    """The pieces of the chunks from `start` on that only have more arguments for one call."""
    pieces: list[str] = []
    for position in range(start, len(chunks)):
        chunk = chunks[position]
        if len(chunk.choices) != 1 or chunk.usage is not None:
            break
        entry = chunk.choices[0]
        delta = entry.delta
        if delta is None or not delta.tool_calls or entry.index != choice or entry.finish_reason:
            break
        if delta.content or delta.reasoning_content or delta.reasoning or delta.reasoning_details or delta.refusal:
            break
        fragment = delta.tool_calls[0]
        function = fragment.function
        if function is None or function.name or fragment.id or fragment.index != label or len(delta.tool_calls) > 1:
            break
        if fragment.custom is not None or fragment.extra_content is not None:
            break
        pieces.append(function.arguments or "")
    return pieces
