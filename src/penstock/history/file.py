"""A history from a file: our own, one in any shape that is known, a whole request, or a message a line."""

from __future__ import annotations

import json
from typing import Any

from penstock.errors import UsageError
from penstock.history.read import as_messages
from penstock.jsontext.surrogates import join_surrogates
from penstock.messages import Message
from penstock.wires.shared.fields import clean_value

_ADVICE = "expected JSON (a list of messages, a request body, or what encode_messages wrote) or JSON lines"


def read_history(data: bytes) -> list[Message]:
    """The messages that a file holds; a file that is no history is refused, with the place and the reason."""
    return as_messages(parse_history(data))


def parse_history(data: bytes) -> Any:
    """What stands in a file that holds a history, in whatever shape it is there: a list, or an object."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _no_history(f"byte {error.start} is not UTF-8") from None
    if not text.strip():
        raise _no_history("it is empty")
    found = _parsed(text)
    if not isinstance(found, list | dict):
        raise _no_history(f"it is a {type(found).__name__}")
    if isinstance(found, list):
        return _items("messages", found)
    return {join_surrogates(key): _items(key, inner) for key, inner in found.items()}


def _items(field: str, value: Any) -> Any:
    """What stands in a field; if it is a list, whatever is wrong with an item is told with its place."""
    if not isinstance(value, list):
        return clean_value(value, field)
    return [clean_value(item, f"{field}[{at}]") for at, item in enumerate(value)]


def _parsed(text: str) -> Any:
    """The JSON of a file, or of each of its lines."""
    try:
        return json.loads(text)
    except ValueError as error:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) < 2 or not _is_object(lines[0][1]):
            raise _no_history(_place(error)) from None
    except RecursionError:
        raise _no_history("it is nested too deeply") from None
    return [_line(number, line) for number, line in lines]


def _line(number: int, line: str) -> Any:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise _no_history(_place(error, number)) from None
    except RecursionError:
        raise _no_history(f"line {number} is nested too deeply") from None
    if not isinstance(found, dict):
        raise _no_history(f"line {number} is a {type(found).__name__}, not a message")
    return found


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _place(error: ValueError, line: int = 0) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    is_cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
    why = "the JSON ends in its middle" if is_cut else f"this is not JSON ({error.msg})"
    return f"line {line or error.lineno}, column {error.colno}: {why}"


def _no_history(why: str) -> UsageError:
    return UsageError(f"this is not a history: {why}; {_ADVICE}")
