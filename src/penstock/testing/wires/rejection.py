"""What a strict server says to a body that it refuses, and what the judges of all wires share.

A judge reads the raw JSON of a request and yields what the provider would refuse it for. The first one counts, and the
judge is not asked for another: what follows a `yield` may rely on what was let through before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

Json = Mapping[str, Any]

WORD = re.compile(r"[a-zA-Z0-9_-]+")
"""The letters that most providers take in ids and names."""


class Rejection(Struct, frozen=True):
    """Why a body is refused, in the provider's words; `fields` go into its error beside them."""

    message: str
    status: int = 400
    fields: Json = {}


Rejections = Iterator[Rejection]


def objects(value: Any) -> list[Json]:
    """The JSON objects of an array; nothing if it is none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def is_objects(value: Any) -> bool:
    """Whether this is an array of JSON objects and of nothing else."""
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def child(value: Any, key: str) -> Json:
    """The JSON object under a key; an empty one if there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def text(value: Any, key: str) -> str:
    """The text under a key; an empty one if there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def is_word(value: str, longest: int) -> bool:
    """Whether these are letters that most providers take, and not too many."""
    return len(value) <= longest and WORD.fullmatch(value) is not None


def repeated(values: Sequence[str]) -> list[str]:
    """The values that come again, as often as they do."""
    left = Counter(values)
    left.subtract(dict.fromkeys(values, 1))
    return list(left.elements())


def json_type(value: Any) -> str:
    """What JSON calls a value's type, with its article."""
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
    """The version that a model's name tells; names without one are those of the newest."""
    found = pattern.search(model)
    return tuple(int(number or 0) for number in found.groups()) if found else newest
