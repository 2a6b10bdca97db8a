"""What people already hold, as the JSON that came over the wire: parsed dicts, and the objects of the vendors' SDKs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import UsageError

# What the SDKs' helper streams derive from the frames they also pass on.
_DERIVED = ("content.delta", "content.done", "refusal.delta", "refusal.done", "logprobs.", "tool_calls.function.")


def payload_of(item: Any) -> bytes | None:
    """The frame that the object stands for; None if it only repeats what others say."""
    value = as_mapping(item)
    if value is None:
        raise UsageError(
            f"cannot decode an object of type {type(item).__name__}: give bytes, dicts, or a vendor's SDK objects"
        )
    match value:
        case {"type": str(kind)} if kind.startswith(_DERIVED):
            return None
        case {"type": "chunk", "chunk": chunk}:  # openai's `chat.completions.stream`
            return payload_of(chunk)
        case {"data": data, **rest} if not rest and as_mapping(data) is not None:  # mistralai wraps each chunk
            return payload_of(data)
    try:
        return msgspec.json.encode(value, enc_hook=_as_plain)
    except UnicodeEncodeError:  # half a character (QUIRKS 50): escaped, it can go on to where it is mended
        return json.dumps(value, default=_as_plain).encode()


def as_mapping(item: Any) -> Mapping[str, Any] | None:
    """The object's fields as the provider named them, without those that the SDK made up; None if it has none."""
    if isinstance(item, Mapping):
        return item
    if hasattr(item, "model_dump"):  # pydantic: all the vendors' SDKs of today
        dumped: Mapping[str, Any] = item.model_dump(by_alias=True, exclude_unset=True, warnings=False)
        return dumped
    if hasattr(item, "to_dict"):
        return as_mapping(item.to_dict())
    fields = getattr(item, "__dict__", None)
    return {key: value for key, value in fields.items() if not key.startswith("_")} if fields else None


def _as_plain(item: Any) -> Any:
    value = as_mapping(item)
    return str(item) if value is None else value
