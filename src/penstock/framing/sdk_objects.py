"""Converts parsed dicts and the objects of the vendors' SDKs back into the JSON payload of a frame."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import UsageError

# Events that the SDKs' helper streams derive from the frames that they pass on as well.
DERIVED_EVENTS = ("content.delta", "content.done", "refusal.delta", "refusal.done", "logprobs.", "tool_calls.function.")


def payload_of(item: Any) -> bytes | None:
    """Returns the payload of the frame that the object represents; None if it only repeats other frames."""
    value = as_mapping(item)
    if value is None:
        raise UsageError(f"cannot decode an object of type {type(item).__name__}: pass bytes, dicts or SDK objects")
    match value:
        case {"type": str(kind)} if kind.startswith(DERIVED_EVENTS):
            return None
        case {"type": "chunk", "chunk": chunk}:  # openai's `chat.completions.stream`
            return payload_of(chunk)
        case {"data": data, **rest} if not rest and as_mapping(data) is not None:  # mistralai wraps each chunk
            return payload_of(data)
    try:
        return _encode(value)
    except (ValueError, RecursionError) as error:  # thousands of digits or levels: a frame that cannot be read
        return f"{{an object of type {type(item).__name__}: {error}".encode()


def _encode(value: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_as_builtin)
    except UnicodeEncodeError:  # a lone surrogate (QUIRKS 50): escaped here, joined by the wire
        return json.dumps(value, default=_as_builtin).encode()


def as_mapping(item: Any) -> Mapping[str, Any] | None:
    """Returns the object's fields under the provider's names, without those that the SDK added; None if it has none."""
    if isinstance(item, Mapping):
        return item
    if hasattr(item, "model_dump"):  # pydantic: all the vendors' SDKs of today
        dumped: Mapping[str, Any] = item.model_dump(by_alias=True, exclude_unset=True, warnings=False)
        return dumped
    if hasattr(item, "to_dict"):
        return as_mapping(item.to_dict())
    fields = getattr(item, "__dict__", None)
    return {key: value for key, value in fields.items() if not key.startswith("_")} if fields else None


def _as_builtin(item: Any) -> Any:
    value = as_mapping(item)
    return str(item) if value is None else value
