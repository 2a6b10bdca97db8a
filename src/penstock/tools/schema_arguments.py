"""Validates arguments against a JSON Schema, for tools that are declared with one.

The validator is jsonschema-rs: it checks all keywords of draft 2020-12, and patterns in bounded time. Keywords that are
malformed accept every value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.jsontext.scan import MAX_DEPTH
from penstock.tools.argument_errors import (
    ArgumentProblem,
    missing_argument,
    raise_problems,
    short_json,
    unknown_argument,
)
from penstock.tools.finite import infinite_numbers
from penstock.tools.schema_form import References, normal_form, without

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator, ValidationError

MAX_STEPS = 2_000
"""The schemas that are applied one inside the other: the validator needs a part of the stack for each.

It is the levels of the arguments, times the schemas that refer to one another at one level.
"""
MAX_FAULTS = 100
"""The malformed keywords that are left out of a schema; one with more is refused."""

_EXPECTED = {
    "string": "a string", "integer": "an integer", "number": "a number", "boolean": "true or false", "null": "null",
    "array": "an array", "object": "an object",
}  # fmt: skip
_MESSAGES = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be greater than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "minProperties": "must have at least {} fields",
    "maxProperties": "must have at most {} fields",
    "uniqueItems": "must not have equal items",
    "pattern": "must match the pattern {}",
    "format": "must be in the format {}",
    "not": "must not match {}",
    "falseSchema": "must not be given",
    "additionalItems": "has too many items",
    "contains": "lacks a required item",
}


def _is_time(text: str) -> bool:
    return _is_moment(f"2000-01-01T{text}")


def _is_moment(text: str) -> bool:
    """Whether this is a date with a time; the time zone may be missing, as in what pydantic and models write."""
    try:
        return len(text) > len("2000-01-01") and bool(datetime.fromisoformat(text))
    except ValueError:
        return False


_FORMATS = {"time": _is_time, "date-time": _is_moment}


class SchemaArguments:
    """The arguments that a JSON Schema describes: validated, not converted."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = dict(parameters)
        self._validator: Draft202012Validator | None = None
        self._form: Any = True
        self._max_levels = MAX_DEPTH
        if len(self.parameters) > ("type" in self.parameters):  # else any object is accepted
            self._compile()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles compile the schema again: a validator cannot be copied."""
        return type(self), (self.parameters,)

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments unchanged, or raises an `ArgumentsError` that names the places that do not fit."""
        raise_problems(list(self._problems(arguments)))
        return dict(arguments)

    def to_json(self, name: str, value: Any) -> Any:
        """The JSON form of an argument: itself."""
        return value

    def _compile(self) -> None:
        try:
            form = normal_form(self.parameters)
            if (steps := References(form).remove_dangling()) > MAX_STEPS:
                raise RecursionError
            self._validator, self._form = _compiled(form)
        except RecursionError:
            raise UsageError("the schema is nested too deeply") from None
        self._max_levels = min(MAX_DEPTH, MAX_STEPS // steps)

    def _problems(self, arguments: dict[str, Any]) -> Iterator[ArgumentProblem]:
        if is_nested_deeper(arguments, self._max_levels):
            yield ArgumentProblem((), message=f"nested deeper than {self._max_levels} levels", shows_value=False)
            return
        infinite = list(infinite_numbers(arguments))
        yield from infinite
        if infinite or self._validator is None:
            return
        try:
            errors = [] if self._validator.is_valid(arguments) else [*self._validator.iter_errors(arguments)]
        except (TypeError, ValueError) as failure:  # a value that is not JSON
            yield ArgumentProblem((), message=f"cannot be read: {failure}", shows_value=False)
            return
        for error in errors:
            yield from self._from_error(error)

    def _from_error(self, error: ValidationError) -> Iterator[ArgumentProblem]:
        place, value, details = tuple(error.instance_path), error.instance, error.kind.as_dict()
        match error.kind.name:
            case "type":
                yield ArgumentProblem(
                    place, expected=_joined(_EXPECTED[kind] for kind in details["types"]), value=value
                )
            case "enum":
                yield ArgumentProblem(place, expected=_joined(map(short_json, details["options"])), value=value)
            case "const":
                yield ArgumentProblem(place, expected=short_json(details["expected_value"]), value=value)
            case "required":
                yield missing_argument((*place, details["property"]))
            case "additionalProperties" | "unevaluatedProperties":
                known = self._fields_at(error.schema_path)
                yield from (unknown_argument((*place, name), known) for name in details["unexpected"])
            case "anyOf" | "oneOf" if any(details["context"]):
                for problem in (problem for branch in details["context"] for problem in branch):
                    yield from self._from_error(problem)
            case keyword:
                yield ArgumentProblem(place, message=_message(keyword, details, error.message), value=value)

    def _fields_at(self, path: list[str | int]) -> Iterable[str]:
        """The names of the fields that the schema with this keyword knows."""
        node = self._form
        for step in path[:-1]:
            try:
                node = References(self._form).find_target(node["$ref"]) if step == "$ref" else node[step]
            except (KeyError, IndexError, TypeError):
                return ()
        fields = node.get("properties") if isinstance(node, dict) else None
        return fields if isinstance(fields, dict) else ()


def _compiled(form: Any) -> tuple[Draft202012Validator, Any]:
    """The validator for a schema, and the schema without the keywords that are malformed."""
    from jsonschema_rs import Draft202012Validator, ValidationError

    for _ in range(MAX_FAULTS):
        try:
            return Draft202012Validator(form, formats=_FORMATS, validate_formats=True, offline=True), form
        except ValidationError as error:
            if not error.instance_path:
                raise UsageError(f"the schema cannot be used: {error.message}") from None
            form = without(form, error.instance_path)
        except ValueError as error:
            raise UsageError(f"the schema cannot be used: {error}") from None
    raise UsageError(f"the schema has more than {MAX_FAULTS} malformed keywords")


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Whether a JSON value has more levels than this."""
    level = [value]
    for _ in range(levels + 1):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


def _joined(expected: Iterable[str]) -> str:
    return " or ".join(sorted(expected, key=lambda one: one == "null"))


def _message(keyword: str, details: Mapping[str, Any], message: str) -> str:
    if keyword == "oneOf":
        return "matches more than one of the alternatives"
    if keyword not in _MESSAGES or "error" in details:  # a pattern that takes too long has an error
        return message.partition("\n")[0]
    detail = next(iter(details.values()), "")
    return _MESSAGES[keyword].format(detail if isinstance(detail, str | int | float) else short_json(detail))
