"""The type of an output: what a model is asked for, and how its answer is validated.

An output is always a JSON object on the wire, because most providers accept nothing else. A type that is not written as
an object (a list, a union, a number) is the field `value` of one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from types import FrameType, UnionType
from typing import Annotated, Any, ForwardRef, Generic, Literal, TypeVar, cast, get_args, get_origin

import msgspec

from penstock.declarations import OutputDeclaration
from penstock.errors import ArgumentsError, OutputError
from penstock.jsontext.values import deep_copy
from penstock.output.value_type import ValueType, value_type
from penstock.schemas import Json, with_root
from penstock.tools.annotations import union_members

T = TypeVar("T")

OutputKind = UnionType | Mapping[str, Any]
"""What is an output type, and not a type to Python: a union, or a JSON Schema."""

VALUE = "value"
"""The field with an output that is not an object itself."""

OBJECT_BEGIN = r"\{\s*(?:[\"']|\w+\s*:)"
"""A pattern for the begin of an object, also in the notations of Python and JavaScript: text that is not prose."""

MAX_KNOWN = 100
"""How many output types are kept, so that a request for a type does not build its schema again."""

MAX_PROBLEM = 10_000
"""The characters of what is wrong with an output that go back to the model: a validator may raise any text."""

known_types: dict[Any, OutputType[Any]] = {}
"""The output types that are kept."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_LENGTH = 64
_BEGIN = re.compile(rf"\s*{OBJECT_BEGIN}")
_COMBINED = ("anyOf", "oneOf", "allOf", "not", "if", "$ref")


class OutputType(Generic[T]):
    """The type that an output must have.

    `declaration` is for the model; `read` validates what it wrote. `fields` and `items` are the types of the parts that
    are validated as soon as they are complete. A union with `str` `accepts_text`: an answer that is not a JSON object.
    """

    def __init__(self, kind: Any, names: Mapping[str, Any] = {}) -> None:
        self.kind = kind
        self._type = value_type(kind, names)
        schema = with_root(self._type.schema)
        self.is_wrapped = not _is_plain_object(schema)
        self.accepts_text = str in union_members(kind)
        description = str(schema.get("description") or "")
        name = _NOT_IN_NAMES.sub("_", getattr(kind, "__name__", "") or "output")[:_NAME_LENGTH].strip("_") or "output"
        self.declaration = OutputDeclaration(name, _wrapped(schema) if self.is_wrapped else schema, description)

    def __repr__(self) -> str:
        return f"OutputType({self.kind!r})"

    def read(self, text: str) -> T:
        """The output in a JSON text; an `OutputError` if it is not valid.

        The members of a union may come without the field `value`. Where text is an output, so is all that is not a JSON
        object, and does not begin as one.
        """
        try:
            value = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            if self.accepts_text and text and not _BEGIN.match(text):
                return cast("T", text)
            raise OutputError(f"it is not JSON: {error}" if text else "there is none", text) from None
        if self.accepts_text and not isinstance(value, dict):
            return cast("T", text)
        try:
            return self._member(value) if self.is_wrapped else self._convert(value, "output")
        except ArgumentsError as error:
            raise OutputError(str(error).replace("`output.", "`")[:MAX_PROBLEM], text) from None

    def _member(self, value: Any) -> T:
        """The output in the field `value` of an object, or an object that is a member of the union itself."""
        problem = ArgumentsError(f"it must be a JSON object with the one field `{VALUE}`")
        if isinstance(value, dict) and value.keys() == {VALUE}:
            try:
                return self._convert(value[VALUE], VALUE)
            except ArgumentsError as error:
                problem = error
        if isinstance(value, dict) and _has_field(self._type.schema, value):
            with suppress(ArgumentsError):
                return self._convert(value, "output")
        raise problem

    def _convert(self, value: Any, name: str) -> T:
        output: T = self._type.convert(value, name)
        return output

    def convert(self, value: Any) -> T | None:
        """The output for the JSON value of an output, which may lack fields with defaults; None if it is not valid."""
        try:
            output: T = self._type.convert(deep_copy(value), VALUE)
        except Exception:  # noqa: BLE001  # validators are user code; the whole output is validated again
            return None
        return output

    @cached_property
    def fields(self) -> Mapping[str, ValueType]:
        """The types of the fields of an output that is an object, by their keys in JSON."""
        return {} if self.is_wrapped else self._type.fields()

    @cached_property
    def items(self) -> ValueType | None:
        """The type of the items of an output that is a list."""
        return self._type.items() if self.is_wrapped else None


def output_type(kind: Any) -> OutputType[Any] | None:
    """The type of an output; None for text, which needs none."""
    if kind is None or kind is str:
        return None
    if isinstance(kind, OutputType):
        return kind
    try:
        known = None if _has_names(kind) else known_types.get(kind)
    except TypeError:  # a schema, or a type with a dict or a list in its annotation
        return OutputType(kind, _caller_names())
    if known is None:
        known = OutputType(kind, _caller_names())
        if not _has_names(kind):
            if len(known_types) >= MAX_KNOWN:
                known_types.clear()  # while other threads read it, so that nothing is looked up in it twice
            known_types[kind] = known
    return known


def _has_names(kind: Any) -> bool:
    """Whether a type is written with names in quotes, as in `list["Trip"]`: they mean what they mean to the caller."""
    if isinstance(kind, str | ForwardRef):
        return True
    members = get_args(kind)[:1] if get_origin(kind) is Annotated else get_args(kind)
    return get_origin(kind) is not Literal and any(map(_has_names, members))


def _caller_names() -> dict[str, Any]:
    """The names in the code that called penstock, which the annotations of a type may refer to."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "penstock":
        frame = frame.f_back
    return {} if frame is None else {**frame.f_globals, **frame.f_locals}


def _has_field(schema: Json, value: Mapping[str, Any]) -> bool:
    """Whether an object has a field of a member: else a member with defaults alone would take any object."""
    members = [with_root(schema | member) for member in (*schema.get("anyOf", ()), *schema.get("oneOf", ()))]
    objects = [member for member in members if member.get("type") == "object"]
    return any(value.keys() & member.get("properties", value).keys() for member in objects)


def _is_plain_object(schema: Json) -> bool:
    return schema.get("type") == "object" and not any(keyword in schema for keyword in _COMBINED)


def _wrapped(schema: Json) -> Json:
    definitions: Json = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in definitions}
    return {
        "type": "object", "properties": {VALUE: inner}, "required": [VALUE], "additionalProperties": False,
        **definitions,
    }  # fmt: skip
