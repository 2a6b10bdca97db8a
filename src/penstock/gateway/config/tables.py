"""The tables of `gateway.toml`: reads each into a struct, and reports invalid keys and values with the allowed ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from penstock.errors import UnknownNameError, UsageError, type_name

T = TypeVar("T", bound=Struct)
Seconds = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]

_WRONG = re.compile(r"at `\$\.(\w+)")  # in the messages of msgspec
_MISSING = re.compile(r"missing required field `(\w+)`")
_KINDS_IN_WORDS = {bool: "true or false", str: "a text in quotes", int: "a whole number", float: "a number"}


class _UnknownKey(UnknownNameError):
    kind = "key"
    advice = "the page of the gateway lists all"


def read_table(section: str, table: Any, kind: type[T]) -> T:
    """The struct of a table; a `UsageError` names the section, the key, and the allowed values."""
    if not isinstance(table, Mapping):
        raise UsageError(f"{section} must be a table, not {type_name(table)}")
    types = get_type_hints(kind, include_extras=True)
    for key in table:
        if key not in types:
            raise UsageError(f"{section}: {_UnknownKey(key, types)}")
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{section}{_problem(str(error), table, types)}") from None


def _problem(message: str, table: Mapping[str, Any], types: Mapping[str, Any]) -> str:
    """What is wrong with a table, after the name of its section."""
    if place := _WRONG.search(message):
        key = place[1]
        if "[...]" in message:
            return f": every value of {key} must be a text in quotes"
        return f": {key} must be {allowed(types[key])}, not {_shown(table[key])}"
    if missing := _MISSING.search(message):
        return f": the key {missing[1]!r} is missing; it must be {allowed(types[missing[1]])}"
    return f": {message.partition(' - at `$')[0]}"  # the message of the struct's own checks


def allowed(kind: Any) -> str:
    """The values of a type, in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return f"{allowed(arguments[0])} of 0 or more"
    if origin is Literal:
        return _or([f'"{value}"' for value in arguments])
    if origin in (Union, UnionType):
        return _or([allowed(argument) for argument in arguments if argument is not NoneType])
    if origin in (list, tuple):
        return "a list of texts"
    if origin is dict and arguments[-1] is str:
        return "a table of texts"
    return _KINDS_IN_WORDS.get(kind, "a table")


def _or(values: list[str]) -> str:
    return f"{', '.join(values[:-1])} or {values[-1]}" if len(values) > 1 else values[0]


def _shown(value: Any) -> str:
    """A short value as it is written in a file. Tables and lists are not shown: they may have API keys."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= MAX_SHOWN and not isinstance(value, dict | list) else type_name(value)


MAX_SHOWN = 60
"""How many characters of a wrong value are shown."""
