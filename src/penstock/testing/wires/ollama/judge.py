"""Ollama: it renders any messages with the template of the model, if the JSON has the right types."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from penstock.testing.wires.rejection import Json, Rejection, Rejections, child, is_objects, json_type, objects
from penstock.testing.wires.schema_rules import schemas


def judge(body: Json, model: str) -> Rejections:
    """Yields what Ollama rejects in a request."""
    if not body.get("model"):
        yield Rejection("model is required")
    if not is_objects(body.get("messages") or []):
        yield _unfit(body["messages"], "messages", "[]api.Message")
    for message in objects(body.get("messages")):
        yield from _message(message)
    format = body.get("format")
    if format not in (None, "", "json") and not isinstance(format, dict):
        yield Rejection(f'invalid format: {json.dumps(format)}; expected "json" or a valid JSON Schema object')
    for _, schema in schemas(format):
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and not (pattern.startswith("^") and pattern.endswith("$")):
            yield Rejection("failed to load model vocabulary required for format", 500)


def _unfit(value: Any, place: str, kind: str) -> Rejection:
    name = json_type(value).split()[-1].replace("boolean", "bool")
    return Rejection(f"json: cannot unmarshal {name} into Go struct field ChatRequest.{place} of type {kind}")


def _message(message: Json) -> Rejections:
    for field in ("role", "content", "thinking", "tool_name", "tool_call_id"):
        if not isinstance(message.get(field) or "", str):
            yield _unfit(message[field], f"messages.{field}", "string")
    for call in objects(message.get("tool_calls")):
        arguments = child(call, "function").get("arguments")
        if not isinstance(arguments, dict | None):
            place = "messages.tool_calls.function.arguments"
            yield _unfit(arguments, place, "api.ToolCallFunctionArguments")
    images = message.get("images")
    if not isinstance(images, list | None):
        yield _unfit(images, "messages.images", "[]api.ImageData")
    if not all(map(_is_base64, images or [])):
        yield Rejection("illegal base64 data at input byte 0")


def _is_base64(data: Any) -> bool:
    try:
        return isinstance(data, str) and bool(base64.b64decode(data, validate=True))
    except binascii.Error:
        return False
