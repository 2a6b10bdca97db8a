"""What a call's arguments say: strictly, and, where that fails, what was probably meant.

A suggestion is labelled and never makes a call whole. It is sought at the end of the call only: any of these readings
would break good streams if it were tried while they come (QUIRKS 38).
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from penstock.events import Fault
from penstock.jsontext.partial import PartialJSON
from penstock.jsontext.portable import as_json_value
from penstock.jsontext.scan import MAX_DEPTH, is_too_deep

MAX_ARGUMENTS = 32 * 1024 * 1024
"""How many characters of arguments a call may have; what goes beyond is dropped, and the call is invalid."""

Diagnosis = tuple[Fault, str, dict[str, Any] | None]

_lenient = json.JSONDecoder(strict=False)


def strict_object(raw: str) -> dict[str, Any] | None:
    """The JSON object that the text strictly is; nothing at all, and `null`, are the empty one (QUIRKS 32-34)."""
    if raw.strip(" \t\r\n") in ("", "null"):
        return {}
    if is_too_deep(raw):  # where a parser gives up differs from one Python to the next
        return None
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def diagnose(raw: str, last_piece: str | None) -> Diagnosis:
    """Why the text is no strict JSON object, and the object that was probably meant, if that is plain.

    `last_piece` is given if every piece began with the one before it.
    """
    text = raw.strip()
    if is_too_deep(text):
        return "malformed", f"the arguments are nested deeper than MAX_DEPTH ({MAX_DEPTH})", None
    try:
        value, end = _lenient.raw_decode(text)
    except ValueError as error:
        return _cumulative(raw, last_piece) or _cut(text) or ("malformed", f"the arguments are not JSON: {error}", None)
    except RecursionError:
        return "malformed", "the arguments are nested too deeply", None
    first, rest = text[:end], text[end:].strip()
    if not isinstance(value, dict):
        return _cumulative(raw, last_piece) or _not_an_object(value)
    meant = _carried(value)
    if rest:
        return _copies(meant, first, text) or _cumulative(raw, last_piece) or _trailing(meant, rest)
    return _loose_object(meant, value)


def _carried(value: dict[str, Any]) -> dict[str, Any] | None:
    """The object as JSON can carry it, lone surrogates replaced; None if a number is out of range or it is too deep."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    carried = as_json_value(value)
    return carried if isinstance(carried, dict) else None


def _cut(text: str) -> Diagnosis | None:
    view = PartialJSON()
    view.feed(text)
    if view.error or view.is_complete or not text.startswith("{"):
        return None
    return "cut", "the arguments end before their JSON does", None  # QUIRKS 47


def _copies(meant: dict[str, Any] | None, first: str, text: str) -> Diagnosis | None:
    count, remainder = divmod(len(text), len(first))
    if meant is not None and not remainder and first * count == text:  # QUIRKS 36
        return "duplicated", f"the arguments were sent {count} times", meant
    return None


def _cumulative(raw: str, last_piece: str | None) -> Diagnosis | None:
    if last_piece and last_piece != raw and (meant := strict_object(last_piece)) is not None:  # QUIRKS 37
        return "cumulative", "each piece of the arguments repeats all that came before it", meant
    return None


def _trailing(meant: dict[str, Any] | None, rest: str) -> Diagnosis:
    if rest.strip('"') and (rest.startswith(("{", "[")) or _is_json(rest)):
        return "malformed", "the arguments are several JSON values in a row", None  # QUIRKS 40: which one is meant?
    return "trailing_text", f"the arguments are followed by {rest[:40]!r}", meant  # QUIRKS 44


def _loose_object(meant: dict[str, Any] | None, value: dict[str, Any]) -> Diagnosis:
    if meant is None:
        return "malformed", "the arguments hold a number that JSON does not have or that is out of range", None
    if meant is not value:
        return "malformed", "the arguments hold half of a surrogate pair", meant
    return "control_characters", "the arguments hold raw control characters inside strings", meant  # QUIRKS 41


def _not_an_object(value: Any) -> Diagnosis:
    if isinstance(value, str):  # QUIRKS 43
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            inner = None
        if isinstance(inner, dict) and (meant := _carried(inner)) is not None:
            return "double_encoded", "the arguments are a JSON string that holds the JSON object", meant
    return "not_an_object", f"the arguments are JSON, but a {type(value).__name__} and not an object", None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
