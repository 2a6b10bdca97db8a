"""Reads JSON of an unexpected shape: takes what fits, and leaves the rest for the caller to report."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from penstock.jsontext.portable import as_json_value

T = TypeVar("T")

_ARGUMENTS = (b'"arguments"', b'"input"', b'"partial_json"')
_OBJECT = re.compile(rb"\s*:\s*\{")


def is_empty(value: Any) -> bool:
    """Whether a field has no content at any depth."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending.extend(item.values())
        elif item is not None and item != "" and item != []:
            return False
    return True


def take(fields: dict[str, Any], key: str, kind: type[T]) -> T | None:
    """Removes and returns a field if it has this type; else leaves it in place and returns None."""
    value = fields.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return None
    del fields[key]
    return value


def items(value: Any) -> list[Any]:
    """The items of a list; a single item may come without the list (QUIRKS 26)."""
    return value if isinstance(value, list) else [] if value is None else [value]


def whole_number(value: Any) -> Any:
    """A count as an int; some SDKs return counts as floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def text_of(arguments: Raw) -> str:
    """Arguments as they were sent; if they are a JSON string, its text (QUIRKS 35)."""
    text = bytes(arguments).decode("utf-8", "replace")
    if text.startswith('"'):
        try:
            return msgspec.json.decode(text, type=str)
        except msgspec.MsgspecError:
            return text
    return text


def arguments_text(value: Any) -> str:
    """Arguments as text; other values are encoded as JSON (QUIRKS 35)."""
    return value if isinstance(value, str) else text_of(raw_of(value))


def raw_of(value: Any) -> Raw:
    """Encodes a value as JSON. NaN becomes text that is not JSON, so that the arguments are reported as malformed."""
    if value is None:
        return Raw()
    try:
        if _has_repeated_keys(value):
            return Raw(_spelled(value).encode())
        return Raw(json.dumps(as_json_value(value), ensure_ascii=False, separators=(",", ":")).encode())
    except RecursionError:
        return Raw(b"nested too deeply")


def has_object_arguments(payload: bytes) -> bool:
    """Whether a frame seems to have arguments that are an object where others send text (QUIRKS 35)."""
    for name in _ARGUMENTS:
        position = payload.find(name)
        while position >= 0:
            position += len(name)
            if _OBJECT.match(payload, position):
                return True
            position = payload.find(name, position)
    return False


class RepeatedKeys(dict[str, Any]):
    """An object that has a key twice; `pairs` are all its fields, so that arguments keep the fault."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def keep_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these fields, for `object_pairs_hook`."""
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else RepeatedKeys(pairs)


def _has_repeated_keys(value: Any) -> bool:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, RepeatedKeys):
            return True
        if isinstance(item, dict | list):
            pending.extend(item.values() if isinstance(item, dict) else item)
    return False


def _spelled(value: Any) -> str:
    """A value as JSON, with the keys that an object has twice."""
    if isinstance(value, dict):
        pairs = value.pairs if isinstance(value, RepeatedKeys) else value.items()
        return f"{{{','.join(f'{_spelled(key)}:{_spelled(field)}' for key, field in pairs)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_spelled, value))}]"
    return json.dumps(as_json_value(value), ensure_ascii=False)
