"""Reads a history from a file: JSON in any known shape, a request body, or JSON lines with one message per line."""

from __future__ import annotations

import json
from typing import Any

from penstock.errors import UsageError, type_name
from penstock.history.read import as_messages
from penstock.jsontext.surrogates import join_surrogates
from penstock.messages import Message
from penstock.wires.shared.decode_request.fields import clean_value

_ADVICE = "expected JSON (a list of messages, a request body, or what encode_messages wrote) or JSON lines"


def read_history(data: bytes) -> list[Message]:
    """The messages in a file; raises with the place and the reason if it is not a history."""
    return as_messages(parse_history(data))


def parse_history(data: bytes) -> Any:
    """The JSON of a history file, a list or an object, in whatever shape the history is."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _no_history(f"byte {error.start} is not UTF-8") from None
    if not text.strip():
        raise _no_history("it is empty")
    value = _parse(text)
    if not isinstance(value, list | dict):
        raise _no_history(f"it is {type_name(value)}")
    if isinstance(value, list):
        return _clean("messages", value)
    return {join_surrogates(key): _clean(key, inner) for key, inner in value.items()}


def _clean(field: str, value: Any) -> Any:
    """The clean value of a field; an error in an item of a list has the place of the item."""
    if not isinstance(value, list):
        return clean_value(value, field)
    return [clean_value(item, f"{field}[{index}]") for index, item in enumerate(value)]


def _parse(text: str) -> Any:
    """The JSON of a file, or the list of the JSON of its lines."""
    try:
        return json.loads(text)
    except ValueError as error:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) < 2 or not _is_object(lines[0][1]):
            raise _no_history(_describe(error)) from None
    except RecursionError:
        raise _no_history("it is nested too deeply") from None
    return [_parse_line(number, line) for number, line in lines]


def _parse_line(number: int, line: str) -> Any:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise _no_history(_describe(error, number)) from None
    except RecursionError:
        raise _no_history(f"line {number} is nested too deeply") from None
    if not isinstance(value, dict):
        raise _no_history(f"line {number} is {type_name(value)}, not a message")
    return value


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _describe(error: ValueError, line: int = 0) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    is_cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
    why = "the JSON is truncated" if is_cut else f"this is not JSON ({error.msg})"
    return f"line {line or error.lineno}, column {error.colno}: {why}"


def _no_history(why: str) -> UsageError:
    return UsageError(f"this is not a history: {why}; {_ADVICE}")
