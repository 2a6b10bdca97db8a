"""Finds numbers that are not finite: NaN passes every comparison, such as that of an approval predicate.

A model writes them as text, which a conversion to a number accepts ("nan", "1e999"), or as a number that is too large.
"""

from __future__ import annotations

import cmath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from penstock.tools.argument_errors import ArgumentProblem, Place

_NUMBER = re.compile(r"\s*[+-]?(?:nan|inf|[\d.(])", re.IGNORECASE)
_DOCUMENT = re.compile(r"\s*[\[{]")
_INFINITE_INSIDE = re.compile(r"nan|inf|e\+?\d{3}|\d{300}", re.IGNORECASE)
_MESSAGE = "must be a finite number"


def infinite_numbers(value: Any) -> Iterator[ArgumentProblem]:
    """The numbers in a JSON value that are not finite."""
    for place, leaf in _leaves(value):
        if isinstance(leaf, float) and not cmath.isfinite(leaf):
            yield ArgumentProblem(place, message=_MESSAGE, value=str(leaf))


def infinite_candidates(name: str, value: Any) -> list[ArgumentProblem]:
    """The leaves and keys of a JSON value that are not finite if they are converted to a number."""
    return [
        ArgumentProblem((name, *place), message=_MESSAGE, value=leaf if isinstance(leaf, str) else str(leaf)[:20])
        for place, leaf in _leaves(value)
        if _may_be_infinite(leaf)
    ]


def count_infinite(value: Any) -> int:
    """How many numbers in a converted value are not finite, also in the fields of objects. It reads iterators."""
    count, pending, seen = 0, [value], set[int]()
    while pending:
        item = pending.pop()
        if isinstance(item, float | complex):
            count += not cmath.isfinite(item)
        elif not isinstance(item, str | bytes | int) and item is not None and id(item) not in seen:
            seen.add(id(item))
            pending.extend(_inside(item))
    return count


def with_finite(value: Any) -> Any:
    """The JSON value, with a zero for everything that is not finite if it is converted to a number."""
    match value:
        case dict():
            return {with_finite(key): with_finite(item) for key, item in value.items()}
        case list():
            return [with_finite(item) for item in value]
        case str():
            return "0" if _may_be_infinite(value) else value
        case _:
            return 0 if _may_be_infinite(value) else value


def _may_be_infinite(value: Any) -> bool:
    match value:
        case bool():
            return False
        case float():
            return not cmath.isfinite(value)
        case int():
            return abs(value) > sys.float_info.max
        case str() if _DOCUMENT.match(value):  # which a type may decode
            return bool(_INFINITE_INSIDE.search(value))
        case str() if _NUMBER.match(value):
            try:
                return not cmath.isfinite(complex(value))
            except ValueError:
                return False
        case _:
            return False


def _leaves(value: Any) -> Iterator[tuple[Place, Any]]:
    """The values in a JSON value that are neither objects nor arrays, and the keys of objects, with their places."""
    pending: list[tuple[Place, Any]] = [((), value)]
    while pending:
        place, node = pending.pop()
        match node:
            case dict():
                yield from ((place, key) for key in node)
                pending.extend(((*place, str(key)), item) for key, item in node.items())
            case list() | tuple():
                pending.extend(((*place, index), item) for index, item in enumerate(node))
            case _:
                yield place, node


def _inside(value: Any) -> Iterable[Any]:
    """The items of a container, or the values of an object's attributes."""
    match value:
        case Mapping():
            return [*value.keys(), *value.values()]
        case Sequence() | Set() | Iterator():  # pydantic converts an `Iterable[float]` while it is read
            return value
        case _:
            slots = [name for kind in type(value).__mro__ for name in _slots(kind)]
            return [*getattr(value, "__dict__", {}).values(), *(getattr(value, name, None) for name in slots)]


def _slots(kind: type) -> Iterable[str]:
    slots: Any = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else slots
