"""Estimates of token counts, for servers that send none. They are marked in logs and headers as estimates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from penstock.declarations import ToolDeclaration
from penstock.events import Reasoning, Refusal, Text, ToolCall
from penstock.messages import File, Image, Message, Part, ToolResult

CHARACTERS = 4
"""How many characters make a token of ordinary text."""
MESSAGE = 4
"""How many tokens a message has besides its content."""
MEDIA = 1_000
"""How many tokens an image or a file has."""


def tokens_of(characters: int) -> int:
    """The tokens of a text with this many characters."""
    return -(-characters // CHARACTERS)


def estimate_input(messages: Sequence[Message], tools: Iterable[ToolDeclaration]) -> int:
    """The tokens of a request: its messages with calls and results, and its tools with their schemas."""
    size = sum(_size(part) for message in messages for part in message.parts)
    for tool in tools:
        size += len(tool.name) + len(tool.description or "") + len(msgspec.json.encode(tool.parameters or {}))
    return tokens_of(size) + MESSAGE * len(messages)


def _size(part: Part) -> int:
    """How many characters a part stands for."""
    match part:
        case Text() | Reasoning() | Refusal():
            return len(part.text)
        case ToolCall():
            return len(part.name) + len(part.arguments_raw)
        case ToolResult():
            return sum(map(_size, part.content))
        case Image() | File():
            return MEDIA * CHARACTERS
        case _:
            return 0
