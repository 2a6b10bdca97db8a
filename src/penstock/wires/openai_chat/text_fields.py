"""Text in fields of any shape: a string in most, a number or a list of parts in some (QUIRKS 67, 68)."""

from __future__ import annotations

import json
import re
from typing import Any

from penstock.wires.openai_chat.reasoning_fields import TEXT_FIELDS
from penstock.wires.shared.decode_response.loose import is_empty

_FIELDS = ("content", "refusal", *TEXT_FIELDS)
_NUMBER = re.compile(rb'"(?:%s)"\s*:\s*[0-9-]' % "|".join(_FIELDS).encode())
_TEXT_KEYS = ("text", "summary", "content", "thinking", "reasoning")
_IGNORED = ("type", "index", "id", "closed")


def text_in(value: Any) -> tuple[str, Any]:
    """Returns the text of a field and what else is in it, None if nothing. A boolean is not text."""
    if not isinstance(value, list):
        return _text_in(value)
    pairs = [_text_in(item) for item in value]
    return "".join(text for text, _ in pairs), [rest for _, rest in pairs if rest is not None] or None


def _text_in(value: Any) -> tuple[str, Any]:
    match value:
        case str():
            return value, None
        case None | False:
            return "", None
        case int() | float() if value is not True:
            return json.dumps(value), None
        case dict():
            key = next((key for key in _TEXT_KEYS if isinstance(value.get(key), str)), None)
            return value[key] if key else "", unread_fields(value, key)
    return "", value


def unread_fields(part: dict[Any, Any], *read: str | None) -> Any:
    """The fields of a part that were not read and carry meaning; None if there are none."""
    unread = {key: value for key, value in part.items() if key not in read and not is_empty(value)}
    return unread if unread.keys() - _IGNORED else None


def may_have_numbers(payload: bytes) -> bool:
    """Whether a frame may have a number in a text field."""
    return _NUMBER.search(payload) is not None


def restore_numbers(choices: list[Any], payload: bytes) -> None:
    """Replaces numbers in text fields by their digits as the server wrote them (QUIRKS 67)."""
    text = payload.decode("utf-8", "replace")
    spelled: Any = json.loads(text, strict=False, parse_int=str, parse_float=str).get("choices")
    for choice, spelled_choice in zip(choices, spelled or [], strict=False):
        for place in ("delta", "message"):
            if isinstance(choice, dict) and isinstance(choice.get(place), dict):
                _restore(choice[place], spelled_choice[place])


def _restore(fields: dict[str, Any], spelled: dict[str, Any]) -> None:
    for key in _FIELDS:
        if isinstance(fields.get(key), int | float) and isinstance(spelled.get(key), str):
            fields[key] = spelled[key]
