"""The errors of a strict server for invalid requests, and the functions that the judges of all wires share.

A judge reads the raw JSON of a request and yields the errors that the provider would return. Only the first is used and
the judge is then stopped, so code after a `yield` may rely on the checks before it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

Json = Mapping[str, Any]

WORD = re.compile(r"[a-zA-Z0-9_-]+")
"""The characters that most providers allow in ids and names."""


class Rejection(Struct, frozen=True):
    """The error for an invalid request, with the provider's message; `fields` are added to the error body."""

    message: str
    status: int = 400
    fields: Json = {}


Rejections = Iterator[Rejection]


def objects(value: Any) -> list[Json]:
    """The JSON objects in an array; empty for other values."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def is_objects(value: Any) -> bool:
    """Whether this is an array of JSON objects only."""
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def child(value: Any, key: str) -> Json:
    """The JSON object under a key, or an empty one."""
    item = value.get(key) if isinstance(value, dict) else None
    return item if isinstance(item, dict) else {}


def text(value: Any, key: str) -> str:
    """The string under a key, or an empty one."""
    item = value.get(key) if isinstance(value, dict) else None
    return item if isinstance(item, str) else ""


def is_word(value: str, longest: int) -> bool:
    """Whether the value has only allowed characters and is not too long."""
    return len(value) <= longest and WORD.fullmatch(value) is not None


def repeated(values: Sequence[str]) -> list[str]:
    """The repeated values, once per repetition."""
    left = Counter(values)
    left.subtract(dict.fromkeys(values, 1))
    return list(left.elements())


def json_type(value: Any) -> str:
    """The JSON type of a value, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def version_of(model: str, pattern: re.Pattern[str], newest: tuple[int, ...]) -> tuple[int, ...]:
    """The version in the name of a model; names without one count as the newest."""
    match = pattern.search(model)
    return tuple(int(number or 0) for number in match.groups()) if match else newest
