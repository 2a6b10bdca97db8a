"""Cohere's chat, version 2.

It is known that calls need results, and which content each role may have. Of the error messages only the beginning is
known; the rest here is invented.
"""

from __future__ import annotations

from penstock.testing.wires.openai_chat.judge import answered_turns
from penstock.testing.wires.rejection import Json, Rejection, Rejections, child, is_objects, objects, repeated, text
from penstock.testing.wires.schema_rules import schemas

_PARTS = {
    "system": ("text",),
    "user": ("text", "image_url"),
    "assistant": ("text", "thinking"),
    "tool": ("text", "document"),
}


_UNSUPPORTED = {
    "allOf", "oneOf", "not", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
    "maxLength", "minItems", "maxItems", "uniqueItems",
}  # fmt: skip


def judge(body: Json, model: str) -> Rejections:
    """Yields what Cohere rejects in a request."""
    if not body.get("model"):
        yield _invalid("model is required")
    if not is_objects(body.get("messages")) or not body["messages"]:
        yield _invalid("must provide at least one message")
    messages = objects(body["messages"])
    for index, message in enumerate(messages):
        yield from _message(f"messages[{index}]", message)
    yield from _format(body)
    for index, called, results in answered_turns(messages):
        yield from _answers(f"messages[{index}]", called, list(results.values()))


def _format(body: Json) -> Rejections:
    format = child(body, "response_format")
    if not format:
        return
    if format.get("type") not in ("text", "json_object"):
        yield _invalid(f"response_format.type {format.get('type')!r} is not supported")
    if body.get("tools") or body.get("documents"):
        yield _invalid("response_format is not supported together with tools or documents")
    for _, schema in schemas(format.get("json_schema")):
        if unsupported := schema.keys() & _UNSUPPORTED:
            yield _invalid(f"the keyword {min(unsupported)} is not supported in response_format.json_schema")
        if schema.get("type") == "object" and not schema.get("required"):
            yield _invalid("each object in response_format.json_schema must have at least one required field")


def _invalid(message: str) -> Rejection:
    return Rejection(f"invalid request: {message}")


def _message(path: str, message: Json) -> Rejections:
    role, content = str(message.get("role")), message.get("content")
    if role not in _PARTS:
        yield _invalid(f"{path}: unknown role {role!r}")
    if role == "user" and not content:
        yield _invalid("message must be at least 1 token long or tool results must be specified.")
    if role == "assistant" and not content and not message.get("tool_calls"):
        yield _invalid(f"{path}: an assistant message must have content or tool calls")
    for part in objects(content):
        if part.get("type") not in _PARTS[role]:
            yield _invalid(f"{path}: content of type {part.get('type')!r} is not supported for the role {role!r}")
    for call in objects(message.get("tool_calls")):
        yield from _call(path, call)


def _call(path: str, call: Json) -> Rejections:
    if not text(call, "id"):
        yield _invalid(f"{path}: every tool call must have an id")
    if not text(child(call, "function"), "name"):
        yield _invalid(f"{path}: every tool call must have a name")
    if not isinstance(child(call, "function").get("arguments"), str):
        yield _invalid(f"{path}: the arguments of a tool call must be a string")


def _answers(path: str, called: list[str], answered: list[str]) -> Rejections:
    for id in answered:
        if id not in called:
            yield _invalid(f"tool message with tool_call_id {id!r} does not follow a message with that tool call")
    for id in called:
        if id not in answered:
            yield _invalid(f"{path}: tool call {id!r} must be followed by a tool message with its result")
    for id in repeated(called):
        yield _invalid(f"{path}: tool call id {id!r} is not unique")
