"""Content of a run for spans: messages, arguments and results as JSON, in the form of the conventions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from penstock.content import File, Image
from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.jsontext.nearest import nearest_json
from penstock.messages import Message, Part, ToolResult

MAX_CONTENT = 64 * 1024
"""The characters of one attribute with content. Of a longer history, the last messages are kept."""

MAX_URL = 200
"""The characters of a URL; a longer one holds the data itself."""

_encode = msgspec.json.Encoder(enc_hook=nearest_json).encode


def as_json(value: Any) -> str:
    """A value as JSON, truncated."""
    try:
        text = _encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = _encode(nearest_json(value)).decode()
    return text if len(text) <= MAX_CONTENT else f"{text[:MAX_CONTENT]}…"


def input_messages(messages: Sequence[Message]) -> str:
    """The last messages of a history."""
    kept: list[str] = []
    size = 0
    for message in reversed(messages):
        text = as_json({"role": message.role, "parts": _parts(message.parts)})
        size += len(text)
        if kept and size > MAX_CONTENT:
            break
        kept.append(text)
    return f"[{','.join(reversed(kept))}]"


def output_messages(parts: Iterable[Part], reason: str) -> str:
    """The response of a model."""
    return as_json([{"role": "assistant", "parts": _parts(parts), "finish_reason": reason}])


def instructions(text: str) -> str:
    """The system prompt."""
    return as_json([{"type": "text", "content": text}])


def _parts(parts: Iterable[Part]) -> list[dict[str, Any]]:
    return [shown for part in parts if (shown := _part(part)) is not None]


def _part(part: Part) -> dict[str, Any] | None:
    match part:
        case Text() | Refusal():
            return {"type": "text", "content": part.text}
        case Reasoning():
            return {"type": "reasoning", "content": part.text}
        case ToolCall():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
        case ToolCallInvalid():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments_raw}
        case ToolResult():
            return {"type": "tool_call_response", "id": part.call_id, "response": part.text}
        case Image() | File():
            modality = "image" if isinstance(part, Image) else part.media_type.partition("/")[0]
            return {"type": "uri", "modality": modality, "mime_type": part.media_type, "uri": part.url[:MAX_URL]}
        case Opaque():
            return None
