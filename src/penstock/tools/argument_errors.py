"""What is wrong with the arguments of a call, in words by which a model can mend it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from penstock.errors import ArgumentsError

MAX_PROBLEMS = 10
"""How many problems a message tells of; it says how many more there are."""

MAX_SHOWN = 80
"""How many characters of a wrong value are shown."""

Place = tuple[str | int, ...]


class ArgumentProblem(Struct, frozen=True):
    """What is wrong at one place of the arguments: what was `expected` there (`words` says it otherwise), and `got`."""

    place: Place
    expected: str = ""
    words: str = ""
    got: Any = None
    is_shown: bool = True


def missing_argument(place: Place) -> ArgumentProblem:
    """There should be a value, and there is none."""
    return ArgumentProblem(place, words="missing", is_shown=False)


def unknown_argument(place: Place, known: Iterable[str]) -> ArgumentProblem:
    """There is a field that there should not be."""
    names = ", ".join(f"`{name}`" for name in known)
    return ArgumentProblem(place, words=f"unknown; there {f'are: {names}' if names else 'are none'}", is_shown=False)


def raise_problems(problems: Sequence[ArgumentProblem]) -> None:
    """Raise an `ArgumentsError` that tells of the problems, if there are any."""
    if not problems:
        return
    lines = [f"`{format_place(place)}`: {words}" for place, words in _merged(problems)]
    if len(lines) > MAX_PROBLEMS:
        lines[MAX_PROBLEMS:] = [f"… and {len(lines) - MAX_PROBLEMS} more"]
    raise ArgumentsError("\n".join(lines))


def format_place(place: Place) -> str:
    """A place as people write it: `items[0].price`."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in place]
    return "".join(steps).removeprefix(".") or "arguments"


def short_json(value: Any) -> str:
    """A value as the model wrote it, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(text)} characters)"


def _merged(problems: Sequence[ArgumentProblem]) -> Iterator[tuple[Place, str]]:
    """The places with their words; what the members of a union expect at one place becomes one sentence."""
    by_place: dict[Place, list[ArgumentProblem]] = {}
    for problem in problems:
        by_place.setdefault(problem.place, []).append(problem)
    for place, here in by_place.items():
        expected = list(dict.fromkeys(problem.expected for problem in here if problem.expected))
        if expected:
            last = expected.pop()
            choice = f"{', '.join(expected)} or {last}" if expected else last
            yield place, f"expected {choice}, got {short_json(here[0].got)}"
            continue
        for words, got, is_shown in dict.fromkeys((p.words, short_json(p.got), p.is_shown) for p in here):
            yield place, f"{words}, got {got}" if is_shown else words


# What pydantic says.

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
_OPENINGS = {"Input should be ": "must be ", "Value error, ": "", "Assertion failed, ": ""}


def pydantic_problems(name: str, value: Any, errors: Iterable[Mapping[str, Any]]) -> list[ArgumentProblem]:
    """What pydantic found wrong with the argument of this name."""
    return [_from_pydantic(name, value, error) for error in errors]


def _from_pydantic(name: str, value: Any, error: Mapping[str, Any]) -> ArgumentProblem:
    kind, place = error["type"], (name, *_place_in(value, error["loc"], error["type"] in _MISSING))
    if kind in _MISSING:
        return missing_argument(place)
    if kind in _UNKNOWN:
        return ArgumentProblem(place, words="unknown", is_shown=False)
    if kind in ("enum", "literal_error"):
        return ArgumentProblem(place, expected=error["ctx"]["expected"], got=error["input"])
    if expected := _EXPECTED_OF.get(kind):
        role = " as a key" if "[key]" in error["loc"] else ""
        return ArgumentProblem(place, expected=expected + role, got=error["input"])
    return ArgumentProblem(place, words=_reworded(error["msg"]), got=error["input"])


def _reworded(message: str) -> str:
    for opening, other in _OPENINGS.items():
        if message.startswith(opening):
            return other + message.removeprefix(opening)
    return message[:1].lower() + message[1:]


def _place_in(value: Any, location: Sequence[str | int], is_missing: bool) -> Iterator[str | int]:
    """The steps of a location that lead through the value: pydantic also names the members of unions on the way."""
    for at, step in enumerate(location):
        is_last = at == len(location) - 1
        match value, step:
            case dict(), str() if step in value or (is_missing and is_last):
                value = value.get(step)
                yield step
            case list(), int():
                value = value[step] if step < len(value) else None
                yield step
            case _:
                continue
