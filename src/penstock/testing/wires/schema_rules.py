"""What providers reject in the schema of a response format.

OpenAI names the place of a schema as a tuple of the keys that lead to it.
"""

from __future__ import annotations

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
_CLAUDE_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_CLAUDE_STRINGS = ("minLength", "maxLength")


def schemas(schema: Any, context: Context = ()) -> Iterator[tuple[Context, Json]]:
    """A schema and all schemas in it, with their places."""
    if not isinstance(schema, dict):
        return
    yield context, schema
    for key in ("properties", "$defs", "definitions"):
        for name, inner in child(schema, key).items():
            yield from schemas(inner, (*context, key, name))
    for key in ("items", "additionalProperties", "not"):
        yield from schemas(schema.get(key), (*context, key))
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        members: Any = schema.get(key) or []
        for index, inner in enumerate(members):
            yield from schemas(inner, (*context, key, str(index)))


def judge_json_schema(path: str, format: Json) -> Rejections:
    """OpenAI's format `json_schema`: `path` is the place of its fields."""
    if "name" not in format:
        yield missing(f"{path}.name")
    yield from judge_name(f"{path}.name", format["name"], _NAME_LENGTH)
    if not isinstance(format.get("schema"), dict):
        yield missing(f"{path}.schema")
    schema = format["schema"]
    if schema.get("type") != "object":
        yield _invalid_schema(path, format, (), f"schema must be a JSON Schema of 'type: \"object\"', got {schema}")
    if format.get("strict"):
        for context, inner in schemas(schema):
            yield from _strict(path, format, context, inner)


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


def _strict(path: str, format: Json, context: Context, schema: Json) -> Rejections:
    if beside := schema.keys() - {"$ref", "$defs", "definitions"} if "$ref" in schema else set():
        yield _invalid_schema(path, format, context, f"$ref cannot have keywords {set(beside)}.")
    for keyword in schema.keys() - _STRICT:
        yield _invalid_schema(path, format, context, f"'{keyword}' is not permitted.")
    if not schema.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
        yield _invalid_schema(path, format, context, "schema must have a 'type' key.")
    if schema.get("type") != "object":
        return
    if schema.get("additionalProperties") is not False:
        yield _invalid_schema(
            path, format, context, "'additionalProperties' is required to be supplied and to be false."
        )
    required: Any = schema.get("required") or []
    if absent := [name for name in child(schema, "properties") if name not in required]:
        rule = "'required' is required to be supplied and to be an array including every key in properties."
        yield _invalid_schema(path, format, context, f"{rule} Missing '{absent[0]}'.")


def _invalid_schema(path: str, format: Json, context: Context, problem: str) -> Rejection:
    field = path.partition(".")[0]
    message = f"Invalid schema for {field} '{text(format, 'name')}': In context={context!r}, {problem}"
    return invalid(message, field, "invalid_json_schema")


def judge_claude_schema(path: str, schema: Any) -> Rejections:
    """The schema of a response format for a Claude model."""
    if not isinstance(schema, dict):
        yield Rejection(f"{path}.schema: Field required")
    for context, inner in schemas(schema):
        kind = inner.get("type")
        if kind == "object" and inner.get("additionalProperties") is not False:
            rule = "For 'object' type, 'additionalProperties' must be explicitly set to false"
            yield Rejection(f"{path}.schema: {rule}")
        unsupported = [key for key in (*_CLAUDE_NUMBERS, *_CLAUDE_STRINGS) if key in inner]
        if unsupported:
            names = ", ".join(unsupported)
            yield Rejection(f"{path}.schema: For '{kind}' type, properties {names} are not supported")
        if inner.get("minItems", 0) > 1:
            rule = "For 'array' type, 'minItems' values other than 0 or 1 are not supported"
            yield Rejection(f"{path}.schema: {rule}")
        if _leads_to_itself(schema, context, inner):
            yield Rejection(f"{path}.schema: Recursive schemas are not supported")


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
            pending += [text(inner, "$ref") for _, inner in schemas(child(root, "$defs").get(name)) if "$ref" in inner]
    return False
