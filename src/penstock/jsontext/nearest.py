"""Converts Python values to JSON values: what a tool returns, and the data of a program.

Plain values, containers, dates, numbers, paths, and objects with declared fields (dataclasses, pydantic models, msgspec
structs, attrs classes) have a JSON form. Any other object has none: its attributes may be secrets.
"""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from enum import Enum
from numbers import Number
from typing import Any

import msgspec

from penstock.jsontext.surrogates import join_surrogates

MAX_NESTING = 100
"""The levels of nested objects in a value; deeper ones are replaced by an ellipsis."""


class NoJSONFormError(TypeError):
    """An object has no JSON form. `kind` is the name of its class."""

    def __init__(self, value: object) -> None:
        self.kind = type(value).__name__
        super().__init__(f"an object of type {self.kind} has no JSON form")


def _refuse(value: Any) -> Any:
    raise NoJSONFormError(value)


def _class_name(value: Any) -> str:
    return f"<{type(value).__name__}>"


def nearest_json(value: Any) -> Any:
    """The nearest JSON equivalent of a value; only the name of its class for an object without one."""
    try:
        return _Conversion(_class_name).convert(value, ())
    except Exception as error:  # noqa: BLE001  # the methods of a value are user code
        return placeholder(value, error)


def compact_json(value: Any) -> str:
    """The value as JSON text, or as plain text if it is like a string; raises for an object without a JSON form."""
    try:
        return dump_json(value)
    except (TypeError, ValueError, RecursionError):  # not JSON
        nearest = _Conversion(_refuse).convert(value, ())
    return nearest if isinstance(nearest, str) else dump_json(nearest)


def dump_json(value: Any) -> str:
    """A JSON value as text, without spaces."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def placeholder(value: Any, error: Exception) -> str:
    """The text for a value with a method that raised."""
    return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def text_of(value: Any) -> str:
    """`str(value)`, or a placeholder if that raises; without halves of characters."""
    try:
        return join_surrogates(str(value))
    except (Exception, SystemExit) as error:  # noqa: BLE001  # `__str__` is user code
        return f"<{type(value).__name__} whose __str__ raised {type(error).__name__}>"


class _Conversion:
    """Converts values; `other` converts an object that has no JSON form, or raises."""

    def __init__(self, other: Callable[[Any], Any]) -> None:
        self._other = other

    def convert(self, value: Any, above: tuple[int, ...]) -> Any:
        """The nearest JSON equivalent of a value; `above` are the ids of the objects that contain it."""
        match value:
            case None | bool():
                return value
            case Enum():
                return self.convert(value.value, above)
            case str():
                return join_surrogates(str.__str__(value))
            case int():
                return int(value)
            case float():
                return float(value) if math.isfinite(value) else _not_a_number(value)
            case bytes() | bytearray() | memoryview():
                return _decoded(bytes(value))
        if id(value) in above:
            return f"<this {type(value).__name__} again>"
        if len(above) >= MAX_NESTING:
            return "…"
        return self._convert_object(value, (*above, id(value)))

    def _convert_object(self, value: Any, above: tuple[int, ...]) -> Any:
        """The nearest JSON equivalent of a container or an object."""
        match value:
            case Mapping():
                return {self._key(key, above): self.convert(item, above) for key, item in value.items()}
            case Set():
                return [self.convert(item, above) for item in _ordered(value)]
            case Sequence() | ValuesView():
                return [self.convert(item, above) for item in value]
            case os.PathLike():
                return self.convert(os.fspath(value), above)
            case type():
                return value.__qualname__
            case object(model_dump=dump) if callable(dump):  # a pydantic model
                return self.convert(dump(mode="json", warnings=False), above)
            case object(tolist=items) if callable(items):  # a NumPy array or scalar
                return self.convert(items(), above)
        if (fields := _fields(value)) is not None:
            return {name: self.convert(getattr(value, name, None), above) for name in fields}
        return self._leaf(value)

    def _leaf(self, value: Any) -> Any:
        """Dates, UUIDs and decimals as msgspec writes them, and other values of libraries as pydantic does."""
        if isinstance(value, BaseException):
            return text_of(value)
        try:
            return msgspec.to_builtins(value)
        except (TypeError, ValueError):
            pass
        match value:
            case datetime.date() | datetime.time():  # a subclass
                return value.isoformat()
            case Number():
                return text_of(value)
            case _:
                return self._other(value) if isinstance(value, Iterator) else self._library_value(value)

    def _library_value(self, value: Any) -> Any:
        """An IP address, a URL, a pattern, a masked secret: values that pydantic knows."""
        from pydantic_core import PydanticSerializationError, to_jsonable_python

        try:
            return to_jsonable_python(value)
        except PydanticSerializationError:
            return self._other(value)

    def _key(self, key: Any, above: tuple[int, ...]) -> str:
        nearest = self.convert(key, above)
        return nearest if isinstance(nearest, str) else dump_json(nearest)


def _fields(value: Any) -> Iterable[str] | None:
    """The names of the declared fields of a dataclass, struct or attrs object."""
    if hasattr(value, "__dataclass_fields__"):
        import dataclasses  # it is imported already

        return [field.name for field in dataclasses.fields(value)]
    match value:
        case object(__struct_fields__=fields):
            return list(fields)
        case object(__attrs_attrs__=fields):
            return [field.name for field in fields]
        case _:
            return None


def _ordered(items: Iterable[Any]) -> list[Any]:
    """The items of a set, sorted if possible, so that equal sets have equal text."""
    try:
        return sorted(items)
    except TypeError:
        return list(items)


def _not_a_number(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"<{len(data)} bytes that are not text>"
