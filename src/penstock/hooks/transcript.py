"""A history as plain text, for a model that summarizes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.events import Refusal, Text, ToolCall, ToolCallInvalid
from penstock.jsontext.values import canonical_json
from penstock.messages import Message, ToolResult

MAX_PART = 2000
"""The characters of a text, a call or a result to be summarized; of a longer one the middle is left out."""
MAX_TRANSCRIPT = 400_000
"""The characters of a conversation to be summarized; of a longer one the middle is left out."""


def transcript(messages: Iterable[Message]) -> str:
    """The messages as text, one paragraph per part."""
    return _cut("\n\n".join(line for message in messages for line in _lines(message)), MAX_TRANSCRIPT)


def _lines(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text() | Refusal():
                yield f"{message.role}: {_cut(part.text, MAX_PART)}"
            case ToolCall():
                yield f"call of {part.name}: {_cut(canonical_json(part.arguments), MAX_PART)}"
            case ToolCallInvalid():
                yield f"invalid call of {part.name}: {_cut(part.arguments_raw, MAX_PART)}"
            case ToolResult():
                yield f"{'error' if part.is_error else 'result'} of {part.name}: {_cut(part.text, MAX_PART)}"
            case _:
                pass


def _cut(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]}"
