"""Validates arguments against a JSON Schema, for tools that are declared with one.

The keywords that models violate are checked: types, enumerations, required and unknown fields, bounds. Other keywords,
and schemas that are malformed, accept every value; the tool decides.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.tools.argument_errors import (
    ArgumentProblem,
    Place,
    missing_argument,
    raise_problems,
    short_json,
    unknown_argument,
)

MAX_REFERENCES = 100
"""The number of nested schemas up to which a value is checked; deeper values are accepted."""

_TYPES = {
    "string": "a string", "integer": "an integer", "number": "a number", "boolean": "true or false", "null": "null",
    "array": "an array", "object": "an object",
}  # fmt: skip
_BOUNDS = {
    "minimum": ("must be at least {}", operator.ge),
    "maximum": ("must be at most {}", operator.le),
    "exclusiveMinimum": ("must be greater than {}", operator.gt),
    "exclusiveMaximum": ("must be less than {}", operator.lt),
}
_LENGTHS = {
    "minLength": (str, "must have at least {} characters", operator.ge),
    "maxLength": (str, "must have at most {} characters", operator.le),
    "minItems": (list, "must have at least {} items", operator.ge),
    "maxItems": (list, "must have at most {} items", operator.le),
}


class SchemaArguments:
    """The arguments that a JSON Schema describes: validated, not converted."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = dict(parameters)

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments unchanged, or raises an `ArgumentsError` that names the places that do not fit."""
        raise_problems(list(self._object(self.parameters, arguments, (), 0)))
        return dict(arguments)

    def _problems(self, schema: Any, value: Any, place: Place, depth: int) -> Iterator[ArgumentProblem]:
        if schema is False:
            yield ArgumentProblem(place, message="must not be given", value=value)
        if not isinstance(schema, Mapping) or depth > MAX_REFERENCES:
            return
        if isinstance(schema.get("$ref"), str):
            yield from self._problems(self._target(schema["$ref"]), value, place, depth + 1)
        if value is None and schema.get("nullable") is True:
            return
        if (expected := _mismatch(schema, value)) is not None:
            yield ArgumentProblem(place, expected=expected, value=value)
            return
        for message in _out_of_bounds(schema, value):
            yield ArgumentProblem(place, message=message, value=value)
        yield from self._combined(schema, value, place, depth)
        match value:
            case dict():
                yield from self._object(schema, value, place, depth)
            case list():
                yield from self._array(schema, value, place, depth)

    def _target(self, reference: str) -> Any:
        """The schema that a `$ref` points to; one outside of this document accepts every value."""
        node: Any = self.parameters
        if not reference.startswith("#"):
            return {}
        for step in reference.removeprefix("#").removeprefix("/").split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            node = node.get(key, {}) if isinstance(node, Mapping) and step else node
        return node

    def _combined(self, schema: Mapping[str, Any], value: Any, place: Place, depth: int) -> Iterator[ArgumentProblem]:
        for member in _list(schema.get("allOf")):
            yield from self._problems(member, value, place, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            members = [list(self._problems(one, value, place, depth + 1)) for one in _list(schema.get(keyword))]
            if all(members):
                yield from (problem for problems in members for problem in problems)

    def _object(
        self, schema: Mapping[str, Any], value: dict[str, Any], place: Place, depth: int
    ) -> Iterator[ArgumentProblem]:
        properties = schema.get("properties")
        fields: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
        others = True if "patternProperties" in schema else schema.get("additionalProperties", True)
        for key, item in value.items():
            if key not in fields and others is False:
                yield unknown_argument((*place, key), fields)
            else:
                yield from self._problems(fields.get(key, others), item, (*place, key), depth + 1)
        yield from (missing_argument((*place, key)) for key in _list(schema.get("required")) if key not in value)

    def _array(
        self, schema: Mapping[str, Any], value: list[Any], place: Place, depth: int
    ) -> Iterator[ArgumentProblem]:
        first = _list(schema.get("prefixItems"))
        rest = schema.get("items", True)
        for at, item in enumerate(value):
            yield from self._problems(first[at] if at < len(first) else rest, item, (*place, at), depth + 1)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mismatch(schema: Mapping[str, Any], value: Any) -> str | None:
    """The types or values that the schema expects, if the value is not one of them."""
    named = schema.get("type")
    kinds = [named] if isinstance(named, str) else _list(named)
    kinds = [kind.lower() for kind in kinds if isinstance(kind, str)]  # Google writes types in capitals
    if kinds and all(kind in _TYPES and not _is_a(kind, value) for kind in kinds):
        return " or ".join(_TYPES[kind] for kind in kinds)
    choices = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
    if choices and not any(_equal(choice, value) for choice in choices):
        return " or ".join(short_json(choice) for choice in choices)
    return None


def _is_a(kind: str, value: Any) -> bool:
    match value:
        case None:
            return kind == "null"
        case bool():
            return kind == "boolean"
        case int():
            return kind in ("integer", "number")
        case float():
            return kind == "number" or (kind == "integer" and value.is_integer())
        case str():
            return kind == "string"
        case list():
            return kind == "array"
        case _:
            return kind == "object" and isinstance(value, dict)


def _equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; in Python, `True == 1`."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _out_of_bounds(schema: Mapping[str, Any], value: Any) -> Iterator[str]:
    for keyword, (message, holds) in _BOUNDS.items():
        bound: Any = schema.get(keyword)
        if _is_a("number", value) and _is_a("number", bound) and not holds(value, bound):
            yield message.format(bound)
    for keyword, (kind, message, holds) in _LENGTHS.items():
        bound = schema.get(keyword)
        if isinstance(value, kind) and _is_a("number", bound) and not holds(len(value), bound):
            yield message.format(bound)
