"""Arguments inside another object: `{"arguments": {…}}`, or the whole call object as the arguments of its own call.

They have one reading if the tool has none of the keys of that object, and has all of the keys of the inner one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.calls.arguments import strict_object
from penstock.calls.tool_names import meant_tool
from penstock.dialects.reading.schema import Schema

WRAPPED = 182
"""The number of the quirk."""

_NAMES = ("name", "tool", "function", "tool_name")
_ARGUMENTS = ("arguments", "parameters", "input", "args")
_OTHERS = ("id", "type", "index", "call_id")
_KEYS = frozenset((*_NAMES, *_ARGUMENTS, *_OTHERS))


def wrapping_keys(schema: Schema | None) -> frozenset[str]:
    """The keys with which an object around the arguments of a tool may begin; none if its arguments are not known."""
    keys = schema.keys if schema is not None else []
    return _KEYS.difference(keys) if keys else frozenset()


def unwrapped(raw: str, tool: str, schema: Schema | None) -> str | None:
    """The JSON of the arguments inside another object; None if there is no such object."""
    keys = wrapping_keys(schema)
    fields = _fields(raw) if keys else {}
    if schema is None or not fields or not fields.keys() <= keys:
        return None
    inner = fields.get("function")
    if inner is not None and inner.startswith("{"):
        if not fields.keys() <= {"function", *_OTHERS}:
            return None
        fields = _fields(inner)
    names = [key for key in _NAMES if key in fields]
    found = [key for key in _ARGUMENTS if key in fields]
    if len(names) > 1 or len(found) != 1 or not fields.keys() <= _KEYS:
        return None
    if any(meant_tool(str(_value(fields[key])), (tool,)) != tool for key in names):
        return None
    value = fields[found[0]]
    text = str(_value(value)) if value.startswith('"') else value
    arguments = strict_object(text) if text.strip() else None
    return text if arguments is not None and arguments.keys() <= {*schema.keys} else None


def _fields(raw: str) -> dict[str, str]:
    """The fields of an object, each as it is written; none if it is no object, or has a key twice."""
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return {key: bytes(value).decode() for key, value in fields.items()} if strict_object(raw) is not None else {}


def _value(raw: str) -> Any:
    return msgspec.json.decode(raw)
