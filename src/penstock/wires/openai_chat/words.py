"""Words in fields of any shape: a string in most, a number or a list of parts in some (QUIRKS 67, 68)."""

from __future__ import annotations

import json
import re
from typing import Any

from penstock.wires.shared.loose import is_empty

SOURCES = ("reasoning_content", "reasoning", "thinking", "thought")
"""The fields in which reasoning comes, in the order in which they count (QUIRKS 81, 82)."""
_FIELDS = ("content", "refusal", *SOURCES)
_NUMBER = re.compile(rb'"(?:%s)"\s*:\s*[0-9-]' % "|".join(_FIELDS).encode())
_KEYS = ("text", "summary", "content", "thinking", "reasoning")
_NOISE = ("type", "index", "id", "closed")


def words_of(value: Any) -> tuple[str, Any]:
    """The words that a field holds, and what is left of it, None if nothing. A truth value is not a word."""
    if not isinstance(value, list):
        return _words(value)
    pairs = [_words(item) for item in value]
    return "".join(words for words, _ in pairs), [left for _, left in pairs if left is not None] or None


def _words(value: Any) -> tuple[str, Any]:
    match value:
        case str():
            return value, None
        case None | False:
            return "", None
        case int() | float() if value is not True:
            return json.dumps(value), None
        case dict():
            key = next((key for key in _KEYS if isinstance(value.get(key), str)), None)
            return value[key] if key else "", left_of(value, key)
    return "", value


def left_of(part: dict[Any, Any], *read: str | None) -> Any:
    """What a part says beside the fields that were read and those that mean nothing; None if that is nothing."""
    left = {key: value for key, value in part.items() if key not in read and not is_empty(value)}
    return left if left.keys() - _NOISE else None


def has_number(payload: bytes) -> bool:
    """Whether a frame may hold a number where words should be."""
    return _NUMBER.search(payload) is not None


def respell(choices: list[Any], payload: bytes) -> None:
    """Words that are a number keep its digits as they were spelled (QUIRKS 67)."""
    text = payload.decode("utf-8", "replace")
    twins: Any = json.loads(text, strict=False, parse_int=str, parse_float=str).get("choices")
    for choice, twin in zip(choices, twins or [], strict=False):
        for place in ("delta", "message"):
            if isinstance(choice, dict) and isinstance(choice.get(place), dict):
                _respell(choice[place], twin[place])


def _respell(fields: dict[str, Any], spelled: dict[str, Any]) -> None:
    for key in _FIELDS:
        if isinstance(fields.get(key), int | float) and isinstance(spelled.get(key), str):
            fields[key] = spelled[key]
