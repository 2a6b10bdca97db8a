"""What providers reject in the schema of a response format.

OpenAI names the place of a schema as a tuple of the keys that lead to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from penstock.testing.wires.openai_rules import invalid, judge_name, missing, unknown_value
from penstock.testing.wires.rejection import Json, Rejection, Rejections, child, text

Context = tuple[str, ...]

_STRICT = {
    "type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$ref", "$defs",
    "definitions", "title", "description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
}  # fmt: skip
"""The keywords that OpenAI permits in a strict schema."""
_NAME_LENGTH = 64
_ENUM_VALUES = 1000
_NOT_AT_ROOT = ("oneOf", "anyOf", "allOf", "enum", "not")
_LOOKAROUND = re.compile(r"\(\?<?[=!]")
_CLAUDE_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_CLAUDE_STRINGS = ("minLength", "maxLength")


def schemas(schema: Any, context: Context = ()) -> Iterator[tuple[Context, Json]]:
    """A schema and all schemas in it, with their places."""
    if not isinstance(schema, dict):
        return
    yield context, schema
    for key in ("properties", "$defs", "definitions"):
        for name, one in child(schema, key).items():
            yield from schemas(one, (*context, key, name))
    for key in ("items", "additionalProperties", "not"):
        yield from schemas(schema.get(key), (*context, key))
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        members: Any = schema.get(key) or []
        for at, one in enumerate(members):
            yield from schemas(one, (*context, key, str(at)))


def judge_json_schema(at: str, format: Json) -> Rejections:
    """OpenAI's format `json_schema`: `at` is the place of its fields."""
    if "name" not in format:
        yield missing(f"{at}.name")
    yield from judge_name(f"{at}.name", format["name"], _NAME_LENGTH)
    if not isinstance(format.get("schema"), dict):
        yield missing(f"{at}.schema")
    schema = format["schema"]
    yield from _judge_patterns(at.partition(".")[0], schema)
    if schema.get("type") != "object":
        yield _invalid_schema(at, format, (), f"schema must be a JSON Schema of 'type: \"object\"', got {schema}")
    if format.get("strict"):
        values = sum(len(one["enum"]) for _, one in schemas(schema) if isinstance(one.get("enum"), list))
        if values > _ENUM_VALUES:
            limit = (
                f"Expected at most {_ENUM_VALUES} enum values in total within a schema when using structured outputs"
            )
            yield _invalid_schema(at, format, (), f"{limit}, but received {values}.")
        for context, one in schemas(schema):
            yield from _strict(at, format, context, one)


def judge_function(at: str, name: Any, schema: Any) -> Rejections:
    """The schema of a function; `at` is its place."""
    if not isinstance(schema, dict):
        return
    if schema.get("type") != "object" or any(keyword in schema for keyword in _NOT_AT_ROOT):
        names = "/".join(f"'{keyword}'" for keyword in _NOT_AT_ROOT)
        problem = f"schema must have type 'object' and not have {names} at the top level."
        yield invalid(f"Invalid schema for function '{name}': {problem}", at, "invalid_function_parameters")
    yield from _judge_patterns("tools", schema)


def _judge_patterns(field: str, schema: Json) -> Rejections:
    for context, one in schemas(schema):
        if _LOOKAROUND.search(text(one, "pattern")):
            place = ".".join(("$", *context, "pattern"))
            problem = f"Invalid JSON schema: regex lookaround is not supported. Found at {place}."
            yield invalid(problem, field, "invalid_json_schema")


def judge_response_format(body: Json) -> Rejections:
    """The field `response_format` of Chat Completions."""
    format = child(body, "response_format")
    if not format:
        return
    if format.get("type") not in ("text", "json_object", "json_schema"):
        yield unknown_value("response_format.type", format.get("type"), ("json_object", "json_schema", "text"))
    if format["type"] == "json_schema":
        if "json_schema" not in format:
            yield missing("response_format.json_schema")
        yield from judge_json_schema("response_format.json_schema", child(format, "json_schema"))


def _strict(at: str, format: Json, context: Context, schema: Json) -> Rejections:
    if beside := schema.keys() - {"$ref", "$defs", "definitions"} if "$ref" in schema else set():
        yield _invalid_schema(at, format, context, f"$ref cannot have keywords {set(beside)}.")
    for keyword in schema.keys() - _STRICT:
        yield _invalid_schema(at, format, context, f"'{keyword}' is not permitted.")
    if not schema.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
        yield _invalid_schema(at, format, context, "schema must have a 'type' key.")
    if schema.get("type") == "array" and "items" not in schema:
        yield _invalid_schema(at, format, context, "array schema missing items.")
    if schema.get("type") != "object":
        return
    if schema.get("additionalProperties") is not False:
        yield _invalid_schema(at, format, context, "'additionalProperties' is required to be supplied and to be false.")
    required: Any = schema.get("required") or []
    if absent := [name for name in child(schema, "properties") if name not in required]:
        rule = "'required' is required to be supplied and to be an array including every key in properties."
        yield _invalid_schema(at, format, context, f"{rule} Missing '{absent[0]}'.")


def _invalid_schema(at: str, format: Json, context: Context, problem: str) -> Rejection:
    field = at.partition(".")[0]
    message = f"Invalid schema for {field} '{text(format, 'name')}': In context={context!r}, {problem}"
    return invalid(message, field, "invalid_json_schema")


def judge_claude_schema(at: str, schema: Any) -> Rejections:
    """The schema of a response format for a Claude model."""
    if not isinstance(schema, dict):
        yield Rejection(f"{at}.schema: Field required")
    for context, one in schemas(schema):
        kind = one.get("type")
        if kind == "object" and one.get("additionalProperties") is not False:
            rule = "For 'object' type, 'additionalProperties' must be explicitly set to false"
            yield Rejection(f"{at}.schema: {rule}")
        unsupported = [key for key in (*_CLAUDE_NUMBERS, *_CLAUDE_STRINGS) if key in one]
        if unsupported:
            names = ", ".join(unsupported)
            yield Rejection(f"{at}.schema: For '{kind}' type, properties {names} are not supported")
        if one.get("minItems", 0) > 1:
            rule = "For 'array' type, 'minItems' values other than 0 or 1 are not supported"
            yield Rejection(f"{at}.schema: {rule}")
        if _leads_to_itself(schema, context, one):
            yield Rejection(f"{at}.schema: Recursive schemas are not supported")


def _leads_to_itself(root: Json, context: Context, schema: Json) -> bool:
    """Whether a reference inside of a definition leads to that definition, directly or through others."""
    if len(context) < 2 or context[0] != "$defs" or "$ref" not in schema:
        return False
    seen: set[str] = set()
    pending = [text(schema, "$ref")]
    while pending:
        name = pending.pop().removeprefix("#/$defs/")
        if name == context[1]:
            return True
        if name not in seen:
            seen.add(name)
            pending += [text(one, "$ref") for _, one in schemas(child(root, "$defs").get(name)) if "$ref" in one]
    return False
