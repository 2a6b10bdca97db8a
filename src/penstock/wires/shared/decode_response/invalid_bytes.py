"""Frames with bytes that are not UTF-8: harmless in a text, a hole in a call, a name or a key.

SSE says that such bytes are replaced by U+FFFD. In a text that is one wrong character. In arguments it makes another
call of the one that the model wrote, in a name another tool, and in a key it hides a field.
"""

from __future__ import annotations

import json
import re
from typing import Any

from penstock.jsontext.scan import is_too_deep
from penstock.wires.shared.decode_response.loose_frames import UNREADABLE

_INVALID = re.compile("[\udc80-\udcff]")  # how `surrogateescape` decodes bytes that are not UTF-8
_CALLS = frozenset({
    "arguments", "args", "custom", "function", "functionCall", "function_call", "input", "parameters", "partialArgs",
    "partial_json", "toolUse", "tool_calls", "tool_use",
})  # fmt: skip
"""The keys below which everything belongs to a call."""
_NAMES = frozenset({
    "call_id", "cot_id", "data", "encrypted_content", "finishReason", "finish_reason", "id", "item_id", "model", "name",
    "object", "reasoning_opaque", "role", "signature", "status", "stopReason", "stop_reason", "thoughtSignature",
    "toolUseId", "tool_call_id", "type",
})  # fmt: skip
"""The keys of names, ids and state that goes back: a replaced byte makes another one of it."""
_CALL_EVENT = re.compile(r"arguments|input|code")  # in the type of an event whose `delta` is a piece of a call


def with_replaced_bytes(payload: bytes, event: str) -> bytes | None:
    """The frame with its invalid bytes replaced; None if one of them is in a call, a name or a key."""
    text = payload.decode("utf-8", "surrogateescape")
    if is_too_deep(text):
        return None
    try:
        value = json.loads(text, strict=False, object_pairs_hook=_pairs)
    except UNREADABLE:
        return None
    if not isinstance(value, list) or _CALL_EVENT.search(event + _type_of(value)) or _is_hole(value):
        return None
    return payload.decode("utf-8", "replace").encode()


def _pairs(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """An object as its pairs, so that no key hides another one of the same name."""
    return pairs


def _type_of(pairs: list[tuple[str, Any]]) -> str:
    return "".join(value for key, value in pairs if key == "type" and isinstance(value, str))


def _is_hole(pairs: list[Any]) -> bool:
    """Whether an invalid byte is in a place where it changes more than a text."""
    pending: list[tuple[str, Any, bool]] = [("", pairs, False)]
    while pending:
        key, value, is_call = pending.pop()
        is_call = is_call or key in _CALLS
        match value:
            case str():
                if (is_call or key in _NAMES) and _INVALID.search(value):
                    return True
            case list():
                for item in value:
                    if isinstance(item, tuple):
                        if _INVALID.search(item[0]):
                            return True
                        pending.append((*item, is_call))
                    else:
                        pending.append((key, item, is_call))
            case _:
                pass
    return False
