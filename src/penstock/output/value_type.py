"""The types that an output and its fields can have: of pydantic, of msgspec, or a JSON Schema.

Types of pydantic include dataclasses, TypedDicts, lists, unions and the types of the standard library. A type that
contains a `msgspec.Struct` is msgspec's.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import (
    Annotated,
    Any,
    ClassVar,
    NotRequired,
    Protocol,
    Required,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from penstock.declarations import FUNCTIONS
from penstock.errors import ArgumentsError, UsageError
from penstock.schemas import Json, with_root, with_root_definition
from penstock.tools.argument_errors import raise_problems
from penstock.tools.schema_arguments import SchemaArguments
from penstock.tools.schema_checks import find_malformed
from penstock.tools.schema_form import normal_form
from penstock.tools.signature import Parameter
from penstock.tools.typed_arguments import TypedArgument, is_json, type_schemas

_PLACE, _ELSE_USE = "output", "a JSON Schema as a dict"


class ValueType(Protocol):
    """A type of JSON values: their schema, and their conversion to Python."""

    schema: Json

    def convert(self, value: Any, name: str) -> Any:
        """The value of this type for a JSON value; an `ArgumentsError` that names the places that do not fit."""
        ...

    def fields(self) -> Mapping[str, ValueType]:
        """The types of the fields, by their keys in JSON; empty if this is not a type with fields."""
        ...

    def items(self) -> ValueType | None:
        """The type of the items; None if this is not a list."""
        ...


def value_type(kind: Any, names: Mapping[str, Any] = {}) -> ValueType:
    """The type for a Python type or a JSON Schema; a `UsageError` if no schema can express it.

    `names` are those that the annotations of a local type may refer to.
    """
    if isinstance(kind, Mapping):
        schema = SchemaType(kind)
        if problem := find_malformed(kind):
            raise UsageError(f"{_PLACE}: the JSON Schema is not valid: {problem}")
        return schema
    if isinstance(kind, FUNCTIONS):
        raise UsageError(f"{_PLACE}: {kind!r} is a function; use a type that can be written as JSON, or {_ELSE_USE}")
    if isinstance(kind, list | tuple):
        union = " | ".join(getattr(one, "__name__", str(one)) for one in kind) or "…"
        raise UsageError(f"{_PLACE}: a list of types is not a type; use {union} for one of them")
    return StructType(kind) if _has_struct(kind) else PydanticType(kind, names)


def _has_struct(kind: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return True
    return any(map(_has_struct, get_args(kind)))


class PydanticType:
    """A type that pydantic validates; its own validators run."""

    def __init__(self, kind: Any, names: Mapping[str, Any] = {}) -> None:
        self._kind = kind
        self._names = names
        annotation = None if kind is Any or kind is object else kind
        self._argument = TypedArgument(Parameter("value", annotation), _PLACE, names, else_use=_ELSE_USE)
        schemas, definitions = type_schemas({"value": self._argument})
        self.schema: Json = schemas.get("value", {}) | ({"$defs": definitions} if definitions else {})

    def convert(self, value: Any, name: str) -> Any:
        values: Json = {}
        raise_problems(self._argument.read(name, value, values))
        return values.get(name)

    def fields(self) -> Mapping[str, ValueType]:
        return dict(_built(_pydantic_fields(self._kind, self._names), self._names))

    def items(self) -> ValueType | None:
        return next((item_type for _, item_type in _built(_item_kinds(self._kind), self._names)), None)


def _built(kinds: Iterator[tuple[str, Any]], names: Mapping[str, Any]) -> Iterator[tuple[str, ValueType]]:
    """The types of fields; a field with a type that has no meaning alone is validated with the whole."""
    for key, kind in kinds:
        try:
            yield key, value_type(kind, names)
        except UsageError:
            continue


def _pydantic_fields(kind: Any, names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    pydantic, kind = sys.modules.get("pydantic"), _plain(kind)
    if pydantic is None or (isinstance(kind, type) and issubclass(kind, pydantic.RootModel)):
        return  # the one field of a root has no key in the JSON
    fields: Mapping[str, Any] = getattr(kind, "__pydantic_fields__", {})  # a pydantic model or dataclass has them
    if not fields and (dataclasses.is_dataclass(kind) or is_typeddict(kind)):
        fields = {name: pydantic.fields.FieldInfo.from_annotation(hint) for name, hint in _hints(kind, names)}
    for name, field in fields.items():
        alias = field.validation_alias or field.alias or name
        if isinstance(alias, str):
            yield alias, _field_kind(field, pydantic.Field)


def _field_kind(field: Any, make: Any) -> Any:
    """The type of a field alone: with its constraints, and without what only a model can have, such as an alias."""
    kind = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return Annotated[kind, make(discriminator=field.discriminator)] if field.discriminator else kind


def _hints(kind: Any, names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    try:
        hints = get_type_hints(kind, localns=dict(names), include_extras=True)
    except NameError:
        return
    for name, hint in hints.items():
        if get_origin(hint) is not ClassVar:
            yield name, get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


def _item_kinds(kind: Any) -> Iterator[tuple[str, Any]]:
    kind = _plain(kind)
    if get_origin(kind) is list and get_args(kind):
        yield "", get_args(kind)[0]


def _plain(kind: Any) -> Any:
    """The type in an `Annotated`."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


class StructType:
    """A type with a `msgspec.Struct` in it, validated by msgspec."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        try:
            self.schema: Json = _renamed(msgspec.json.schema(kind))
        except (TypeError, NameError) as error:
            raise UsageError(f"{_PLACE}: {kind!r} has no JSON Schema ({error}); use {_ELSE_USE}") from error

    def convert(self, value: Any, name: str) -> Any:
        try:
            return msgspec.convert(value, self._kind, str_keys=True)
        except msgspec.ValidationError as error:
            problem, _, place = str(error).partition(" - at `")
            raise ArgumentsError(f"`{place.rstrip('`').replace('$', name, 1) or name}`: {problem}") from None

    def fields(self) -> Mapping[str, ValueType]:
        if not isinstance(self._kind, type) or not issubclass(self._kind, msgspec.Struct):
            return {}
        fields = msgspec.structs.fields(self._kind)
        return {field.encode_name: StructType(field.type) for field in fields}

    def items(self) -> ValueType | None:
        return next((item_type for _, item_type in _built(_item_kinds(self._kind), {})), None)


def _renamed(schema: Json) -> Json:
    """The schema without the titles that msgspec gives it."""
    definitions = {name: _untitled(definition) for name, definition in schema.get("$defs", {}).items()}
    return {**_untitled(schema), **({"$defs": definitions} if definitions else {})}


def _untitled(schema: Json) -> Json:
    return {key: value for key, value in schema.items() if key != "title"}


class SchemaType:
    """A JSON Schema; its values are not converted."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        if not is_json(dict(schema)):
            raise UsageError(f"{_PLACE}: the schema cannot be written as JSON")
        form = normal_form(schema)
        self.schema: Json = with_root(with_root_definition(form)) if isinstance(form, dict) else {}
        definitions: Json = {key: self.schema[key] for key in ("$defs", "definitions") if key in self.schema}
        try:
            self._checks = SchemaArguments({
                "type": "object", "properties": {"value": _without(self.schema, definitions)}, **definitions,
            })  # fmt: skip
        except UsageError as error:
            raise UsageError(f"{_PLACE}: {error}") from None
        self._definitions = definitions

    def convert(self, value: Any, name: str) -> Any:
        try:
            return self._checks.check({"value": value})["value"]
        except ArgumentsError as error:
            raise ArgumentsError(str(error).replace("`value", f"`{name}")) from None

    def fields(self) -> Mapping[str, ValueType]:
        return {
            key: SchemaType({**property_schema, **self._definitions})
            for key, property_schema in _properties(self.schema)
            if property_schema
        }

    def items(self) -> ValueType | None:
        items = self.schema.get("items")
        return SchemaType({**items, **self._definitions}) if isinstance(items, dict) and items else None


def _properties(schema: Json) -> Iterator[tuple[str, Json]]:
    for key, property_schema in schema.get("properties", {}).items():
        if isinstance(property_schema, dict):
            yield key, property_schema


def _without(schema: Json, keys: Mapping[str, Any]) -> Json:
    return {key: value for key, value in schema.items() if key not in keys}
