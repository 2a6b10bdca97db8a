"""Chunks of models without tools in InvokeModelWithResponseStream: Llama, Titan, Mistral, Cohere, older Claude models.

| model | text | reason |
|---|---|---|
| Llama | `generation` | `stop_reason` |
| Titan | `outputText` | `completionReason` |
| Mistral, older models | `outputs[].text` | `outputs[].stop_reason` |
| Cohere Command | `text`, beside `is_finished` or `event_type` | `finish_reason` |
| Claude, older models | `completion` | `stop_reason` |

Models with tools are asked by Converse; calls in the chunks of Cohere's older chat are an error.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from penstock.events import FinishReason
from penstock.wires.bedrock.facts import METRICS
from penstock.wires.shared.decode_response.indexes import as_index

REASONS: Mapping[str, FinishReason] = {
    "stop": "stop", "length": "length", "COMPLETE": "stop", "MAX_TOKENS": "length", "ERROR": "error",
    "ERROR_TOXIC": "content_filter", "FINISH": "stop", "FINISHED": "stop", "LENGTH": "length",
    "STOP_CRITERIA_MET": "stop", "CONTENT_FILTERED": "content_filter",
}  # fmt: skip
"""The reasons of these models for the end."""
NO_CALLS = "this model was asked in a way in which its calls cannot be read; use Converse"
_TEXTS = {"generation": "stop_reason", "outputText": "completionReason", "completion": "stop_reason"}
_COHERE_EVENTS = (
    "stream-start", "text-generation", "tool-calls-generation", "citation-generation", "search-queries-generation",
    "search-results", "stream-end",
)  # fmt: skip
_COUNTS = (
    METRICS, "prompt_token_count", "generation_token_count", "inputTextTokenCount", "totalOutputTextTokenCount",
    "totalOutputTokenCount",
)  # fmt: skip
_IGNORED = ("index", "is_finished", "event_type", "stop", "response", "generation_id", "response_id", "p", *_COUNTS)


class InvokedText(Struct):
    """What a chunk says: pieces of text by choice, the reason for the end, counts, an error, and other fields."""

    pieces: list[tuple[int, str]]
    reason: str = ""
    counts: Mapping[str, Any] = {}
    error: str = ""
    rest: Mapping[str, Any] = {}


def read_text(value: Mapping[str, Any]) -> InvokedText | None:
    """The chunk of a model without tools; None if it is something else."""
    counts = value[METRICS] if isinstance(value.get(METRICS), dict) else {}
    field = next((field for field in _TEXTS if isinstance(value.get(field), str)), "")
    if field:
        return InvokedText([_piece(value, field)], _reason(value, _TEXTS[field]), counts, "", _rest(value, field))
    if isinstance(value.get("is_finished"), bool) or value.get("event_type") in _COHERE_EVENTS:
        error = NO_CALLS if value.get("event_type") == "tool-calls-generation" else ""
        pieces = [_piece(value, "text")] if isinstance(value.get("text"), str) else []
        return InvokedText(pieces, _reason(value, "finish_reason"), counts, error, _rest(value, "text"))
    match value.get("outputs"):
        case [{"text": str()}, *_] as outputs:
            texts = [output for output in outputs if isinstance(output, dict) and isinstance(output.get("text"), str)]
            reasons = [_reason(output, "stop_reason") for output in texts]
            pieces = [(choice, output["text"]) for choice, output in enumerate(texts)]
            return InvokedText(pieces, next(filter(None, reasons), ""), counts, "", _rest(value, "outputs"))
    return None


def _piece(value: Mapping[str, Any], field: str) -> tuple[int, str]:
    return as_index(value.get("index")) or 0, value[field]


def _reason(value: Mapping[str, Any], field: str) -> str:
    reason = value.get(field)
    return reason if isinstance(reason, str) else ""


def _rest(value: Mapping[str, Any], field: str) -> dict[str, Any]:
    known = (field, _TEXTS.get(field, "finish_reason"), *_IGNORED)
    return {key: inner for key, inner in value.items() if key not in known}


def chunk_of(data: str) -> bytes | None:
    """The event or text in a chunk; None if it is neither."""
    try:
        event = base64.b64decode(data, validate=True)
        event.decode()
    except (binascii.Error, ValueError):
        return None
    return event
