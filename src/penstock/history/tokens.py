"""Estimates of tokens, without a tokenizer."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.content import Media
from penstock.events import Opaque, ToolCall, ToolCallInvalid
from penstock.jsontext.values import canonical_json
from penstock.messages import Message, Part, ToolResult

PER_TOKEN = 4
"""How many characters are counted as one token, which is about right for English text."""
PER_MESSAGE = 4
"""How many tokens are counted for the form of a message."""
PER_MEDIA = 1000
"""How many tokens are counted for an image or a file."""


def estimate_tokens(messages: Iterable[Message]) -> int:
    """An estimate of the tokens of messages: a quarter of their characters, and 1,000 per image or file."""
    return sum(PER_MESSAGE + sum(map(_tokens_of, message.parts)) for message in messages)


def _tokens_of(part: Part) -> int:
    match part:
        case ToolResult():
            return sum(map(_tokens_of, part.content))
        case Media():
            return PER_MEDIA
        case ToolCall():
            return len(part.name + (part.arguments_raw or canonical_json(part.arguments))) // PER_TOKEN + 1
        case ToolCallInvalid():
            return len(part.arguments_raw) // PER_TOKEN + 1
        case Opaque():
            return len(part.data) // PER_TOKEN if isinstance(part.data, str) else 0
        case _:
            return len(part.text) // PER_TOKEN + 1
