"""Error messages for the arguments of a call, written so that a model can correct them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from penstock.errors import ArgumentsError

MAX_PROBLEMS = 10
"""The problems listed in one message; the others are counted."""

MAX_SHOWN = 80
"""The characters shown of a wrong value."""

Place = tuple[str | int, ...]


class ArgumentProblem(Struct, frozen=True):
    """A problem at one place of the arguments: the type that was `expected`, or else a `message`, and the value."""

    place: Place
    expected: str = ""
    message: str = ""
    value: Any = None
    shows_value: bool = True


def missing_argument(place: Place) -> ArgumentProblem:
    """A required value is missing."""
    return ArgumentProblem(place, message="missing", shows_value=False)


def unknown_argument(place: Place, known: Iterable[str]) -> ArgumentProblem:
    """A field that the schema does not allow; `known` are those that it does."""
    names = ", ".join(f"`{name}`" for name in known)
    message = f"unknown field; the fields are: {names}" if names else "unknown field; there are no fields here"
    return ArgumentProblem(place, message=message, shows_value=False)


def raise_problems(problems: Sequence[ArgumentProblem]) -> None:
    """Raises an `ArgumentsError` that lists the problems, if there are any."""
    if not problems:
        return
    lines = [f"`{format_place(place)}`: {message}" for place, message in _merged(problems)]
    if len(lines) > MAX_PROBLEMS:
        lines[MAX_PROBLEMS:] = [f"… and {len(lines) - MAX_PROBLEMS} more"]
    raise ArgumentsError("\n".join(lines))


def format_place(place: Place) -> str:
    """Formats a place as a path: `items[0].price`."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in place]
    return "".join(steps).removeprefix(".") or "arguments"


def short_json(value: Any) -> str:
    """The value as JSON, truncated."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(text)} characters)"


def _merged(problems: Sequence[ArgumentProblem]) -> Iterator[tuple[Place, str]]:
    """Yields each place with its message; the types that the members of a union expect become one message."""
    by_place: dict[Place, list[ArgumentProblem]] = {}
    for problem in problems:
        by_place.setdefault(problem.place, []).append(problem)
    for place, group in by_place.items():
        expected = list(dict.fromkeys(problem.expected for problem in group if problem.expected))
        if expected:
            last = expected.pop()
            choice = f"{', '.join(expected)} or {last}" if expected else last
            yield place, f"expected {choice}, got {short_json(group[0].value)}"
            continue
        for message, value, shows_value in dict.fromkeys(
            (p.message, short_json(p.value), p.shows_value) for p in group
        ):
            yield place, f"{message}, got {value}" if shows_value else message


# Errors of pydantic.

_EXPECTED = {
    "a string": ("string_type", "bytes_type"),
    "an integer": ("int_type", "int_parsing", "int_parsing_size", "int_from_float"),
    "a number": ("float_type", "float_parsing", "decimal_type", "decimal_parsing"),
    "true or false": ("bool_type", "bool_parsing"),
    "null": ("none_required",),
    "an array": ("list_type", "tuple_type", "set_type", "frozen_set_type", "deque_type", "iterable_type"),
    "an object": ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"),
    "a date such as 2026-01-31": ("date_type", "date_parsing", "date_from_datetime_parsing"),
    "a date and time such as 2026-01-31T12:00:00Z": (
        "datetime_type", "datetime_parsing", "datetime_from_date_parsing", "datetime_object_invalid",
    ),
    "a time such as 12:30:00": ("time_type", "time_parsing"),
    "a duration such as PT1H30M": ("time_delta_type", "time_delta_parsing"),
    "a UUID": ("uuid_type", "uuid_parsing"),
}  # fmt: skip
_EXPECTED_OF = {kind: expected for expected, kinds in _EXPECTED.items() for kind in kinds}
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument", "missing_positional_only_argument")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_PREFIXES = {"Input should be ": "must be ", "Value error, ": "", "Assertion failed, ": ""}


def pydantic_problems(name: str, value: Any, errors: Iterable[Mapping[str, Any]]) -> list[ArgumentProblem]:
    """Converts the errors that pydantic reports for the argument of this name."""
    return [_from_pydantic(name, value, error) for error in errors]


def _from_pydantic(name: str, value: Any, error: Mapping[str, Any]) -> ArgumentProblem:
    kind, place = error["type"], (name, *_place_in(value, error["loc"], error["type"] in _MISSING))
    if kind in _MISSING:
        return missing_argument(place)
    if kind in _UNKNOWN:
        return ArgumentProblem(place, message="unknown field", shows_value=False)
    if kind in ("enum", "literal_error"):
        return ArgumentProblem(place, expected=error["ctx"]["expected"], value=error["input"])
    if expected := _EXPECTED_OF.get(kind):
        role = " as a key" if "[key]" in error["loc"] else ""
        return ArgumentProblem(place, expected=expected + role, value=error["input"])
    return ArgumentProblem(place, message=_reworded(error["msg"]), value=error["input"])


def _reworded(message: str) -> str:
    for prefix, other in _PREFIXES.items():
        if message.startswith(prefix):
            return other + message.removeprefix(prefix) or "is not valid"  # a validator may raise without a message
    return message[:1].lower() + message[1:]


def _place_in(value: Any, location: Sequence[str | int], is_missing: bool) -> Iterator[str | int]:
    """The steps of a location that exist in the value: pydantic's locations also name members of unions."""
    for index, step in enumerate(location):
        is_last = index == len(location) - 1
        match value, step:
            case dict(), str() if step in value or (is_missing and is_last):
                value = value.get(step)
                yield step
            case list(), int():
                value = value[step] if step < len(value) else None
                yield step
            case _:
                continue
