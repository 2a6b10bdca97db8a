"""Google Gemini.

Calls are in one content and their responses in the next, one per call (QUIRKS 148). Roles need not alternate; adjacent
contents of the model are one, and a call follows only user content or responses. Gemini 3 checks the current turn: the
first call of each step has a signature, or one of the values that Google documents as a replacement (QUIRKS 147), and
responses have the names of the calls. From 3.7 on, text and responses are not mixed, and the last content is not the
model's.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from penstock.testing.wires.proto_json import camel_case, decoded, standard_base64
from penstock.testing.wires.rejection import Json, Rejection, Rejections, child, is_objects, objects, text, version_of
from penstock.testing.wires.schema_rules import schemas
from penstock.testing.wires.signatures import GEMINI, is_signature

UNSIGNED = {"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}
"""The values that Google accepts instead of a signature."""

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_SIGNING, _SEPARATING, _NEWEST = (3, 0), (3, 7), (99, 0)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_ROLES = ("user", "model", "function", None)
_DATA = ("text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult",
         "toolCall", "toolResponse")  # fmt: skip
_OFFICE = re.compile(r"application/(msword|zip|octet-stream|vnd\..*)")
_SCHEMA = {
    "$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems",
    "minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties", "required",
    "propertyOrdering",
}  # fmt: skip
"""The keywords that Google documents for `responseJsonSchema`; what it answers to others is not known."""
_STRUCT = "(type.googleapis.com/google.protobuf.Struct)"


def judge(body: Json, model: str) -> Rejections:
    """Yields what Gemini rejects in a request."""
    body = camel_case(body)
    if not is_objects(body.get("contents")) or not body["contents"]:
        yield _invalid("contents", "contents is not specified")
    contents = objects(body["contents"])
    for index, content in enumerate(contents):
        yield from _content(index, content)
    contents = _joined(contents)
    version = version_of(model, _VERSION, _NEWEST) if "gemini" in model else (0, 0)  # nothing is known of other models
    if len(contents) == 1 and contents[0].get("role") == "model":
        yield Rejection("Please ensure that single turn requests end with a user role or the role field is empty.")
    yield from _turns(contents)
    if version >= _SIGNING:
        yield from _named_alike(contents)
        yield from _signed(contents)
    if version >= _SEPARATING:
        yield from _separate(contents)
    yield from _declared(body)
    yield from _format(body, version)


def _format(body: Json, version: tuple[int, ...]) -> Rejections:
    config = child(body, "generationConfig")
    mime, schema = text(config, "responseMimeType"), config.get("responseJsonSchema", config.get("responseSchema"))
    if schema is not None and mime not in ("application/json", "text/x.enum"):
        problem = "only application/json and text/x.enum are allowed when a response schema is set."
        yield _invalid("generation_config.response_mime_type", problem)
    if mime == "application/json" and body.get("tools") and (0, 0) < version < _SIGNING:
        yield Rejection("Function calling with a response mime type: 'application/json' is unsupported")
    for context, inner in schemas(config.get("responseJsonSchema")):
        path = "generation_config.response_json_schema" + "".join(f".{key}" for key in context)
        if beside := [key for key in inner if not key.startswith("$")] if "$ref" in inner else []:
            yield _invalid(path, f"$ref cannot be set beside {beside[0]}")
        if unknown := sorted(inner.keys() - _SCHEMA):
            yield _invalid(path, f"the keyword {unknown[0]} is not supported")


def _invalid(path: str, problem: str) -> Rejection:
    return Rejection(f"* GenerateContentRequest.{path}: {problem}\n")


# Single contents.


def _content(index: int, content: Json) -> Rejections:
    if content.get("role") not in _ROLES:
        yield Rejection("Please use a valid role: user, model.")
    if not is_objects(content.get("parts")) or not content["parts"]:
        yield _invalid(f"contents[{index}].parts", "contents.parts must not be empty.")
    for number, part in enumerate(objects(content["parts"])):
        yield from _part(f"contents[{index}].parts[{number}]", part)


def _part(path: str, part: Json) -> Rejections:
    if not any(part.get(kind) is not None for kind in _DATA):
        yield _invalid(f"{path}.data", "required oneof field 'data' must have one initialized field")
    for kind, field, value in (
        ("functionCall", "function_call", "args"),
        ("functionResponse", "function_response", "response"),
    ):
        if kind in part:
            yield from _named(f"{path}.{field}", child(part, kind), value)
    signature = part.get("thoughtSignature")
    if signature is not None and not _is_accepted(signature):
        yield Rejection("Corrupted thought signature.")
    if _OFFICE.fullmatch(mime := text(child(part, "inlineData"), "mimeType")):
        yield Rejection(f"Unsupported MIME type: {mime}")


def _is_accepted(signature: Any) -> bool:
    """Whether this is a signature, or a value that replaces one, as text or as the bytes that the field is made of."""
    if not isinstance(signature, str):
        return False
    return UNSIGNED & {signature, decoded(signature)} != set() or is_signature(standard_base64(signature), GEMINI)


def _named(path: str, call: Json, value: str) -> Rejections:
    if not text(call, "name"):
        yield _invalid(f"{path}.name", "Name cannot be empty.")
    if value == "response" and "response" not in call:
        yield _invalid(f"{path}.response", "response is required.")
    if not isinstance(call.get(value, {}), dict):
        yield Rejection(f"Invalid value at '{path}.{value}' {_STRUCT}")


# The order of contents.


def _joined(contents: list[Json]) -> list[Json]:
    """The contents, with adjacent ones of the model joined: Google's own chats send back one for each chunk."""
    joined: list[Json] = []
    for content in contents:
        if joined and joined[-1].get("role") == content.get("role") == "model":
            joined[-1] = {**joined[-1], "parts": [*joined[-1]["parts"], *content["parts"]]}
        else:
            joined.append(content)
    return joined


def _names(content: Json, kind: str) -> list[str]:
    return [text(child(part, kind), "name") for part in objects(content.get("parts")) if kind in part]


def _turns(contents: list[Json]) -> Rejections:
    for before, content in pairwise([{}, *contents, {}]):
        called, answered = _names(before, "functionCall"), _names(content, "functionResponse")
        if answered and not called:
            yield Rejection("Please ensure that function response turn comes immediately after a function call turn.")
        if len(answered) != len(called):
            yield Rejection(
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        if _names(content, "functionCall") and (not before or before.get("role") == "model"):
            yield Rejection(
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )


def _named_alike(contents: list[Json]) -> Rejections:
    for before, content in pairwise(contents):
        if sorted(_names(before, "functionCall")) != sorted(_names(content, "functionResponse")):
            yield Rejection("Request contains an invalid argument.")


def _separate(contents: list[Json]) -> Rejections:
    for content in contents:
        parts = objects(content["parts"])
        if _names(content, "functionResponse") and not all("functionResponse" in part for part in parts):
            yield Rejection("Request contains an invalid argument.")
        if content.get("role") != "model" and all(part.get("text") == "" for part in parts):
            yield Rejection("Unable to submit request because Model input cannot be empty.")
    if contents[-1].get("role") == "model":
        yield Rejection("Requests ending with a model turn are not supported.")


def _signed(contents: list[Json]) -> Rejections:
    prompts = [index for index, content in enumerate(contents) if _is_prompt(content)]
    current = prompts[-1] if prompts else 0
    for index, content in enumerate(contents):
        calls = [part for part in objects(content["parts"]) if "functionCall" in part]
        if index > current and calls and not calls[0].get("thoughtSignature"):
            yield Rejection(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                f"data, function call `default_api:{text(child(calls[0], 'functionCall'), 'name')}` , position "
                f"{index + 1}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )


def _is_prompt(content: Json) -> bool:
    """Whether this is user content without responses."""
    return content.get("role") in ("user", None) and not _names(content, "functionResponse")


# Tools.


def _declared(body: Json) -> Rejections:
    for index, tool in enumerate(objects(body.get("tools"))):
        declarations: Any = tool.get("functionDeclarations")
        for number, function in enumerate(objects(declarations)):
            if not _NAME.fullmatch(text(function, "name")):
                yield _invalid(
                    f"tools[{index}].function_declarations[{number}].name",
                    "[FIELD_INVALID] Invalid function name. Must start with a letter or an underscore. Must be a-z, "
                    "A-Z, 0-9, or contain underscores (_), dots (.), colons (:), or dashes (-), with a maximum length "
                    "of 64.",
                )
