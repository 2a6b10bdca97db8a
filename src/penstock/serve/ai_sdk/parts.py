"""Values of UI messages: outputs of tools, token counts, reasons for an end, and parts of user messages."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.events import Text, Usage
from penstock.messages import File, Image, Message, ToolResult
from penstock.run.events import EndReason
from penstock.serve.public_events import public_result

_FINISH: dict[EndReason, str] = {"answered": "stop", "length": "length", "refused": "content-filter"}


def finish_reason(reason: EndReason) -> str:
    """The reason for the end of a run, in the words of the AI SDK."""
    return _FINISH.get(reason, "other")


def usage_of(usage: Usage) -> dict[str, int]:
    """Token counts under the names of the AI SDK."""
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
        "cachedInputTokens": usage.cached_tokens,
        "reasoningTokens": usage.reasoning_tokens,
    }


def output_of(result: ToolResult) -> Any:
    """What a tool returned, as the model reads it; an object or an array as such, not as its text."""
    public = public_result(result)
    if media := public.get("media"):
        return {"text": public["text"], "media": media}
    text: str = public["text"]
    if text.lstrip()[:1] in ("{", "["):
        try:
            return msgspec.json.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
    return text


def user_parts(message: Message) -> list[dict[str, Any]]:
    """The parts of a user message."""
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text):
            parts.append({"type": "text", "text": part.text})
        elif isinstance(part, Image | File):
            name = {"filename": part.name} if isinstance(part, File) and part.name else {}
            parts.append({"type": "file", "url": part.url, "mediaType": part.media_type, **name})
    return parts
