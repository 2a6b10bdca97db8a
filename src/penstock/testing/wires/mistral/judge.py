"""Mistral's variant of Chat Completions, by the rules of its published validator.

Ids have nine letters or digits (QUIRKS 165). Results are followed by an assistant message, not by a user message. A
result need not name its tool. Unknown message fields are rejected.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from penstock.testing.wires.openai_chat.judge import answered_turns
from penstock.testing.wires.rejection import (
    Json,
    Rejection,
    Rejections,
    child,
    is_objects,
    is_word,
    objects,
    repeated,
    text,
)
from penstock.testing.wires.schema_rules import judge_response_format

MAX_NAME = 64

_ID = re.compile(r"[a-zA-Z0-9]{9}")
_NEXT = {
    "system": ("user", "assistant", "system"),
    "user": ("assistant", "system", "user"),
    "assistant": ("assistant", "user", "tool"),
    "tool": ("assistant", "tool"),
}
"""The roles that may follow each role."""
_FIELDS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "prefix"},
    "tool": {"role", "content", "tool_call_id", "name"},
}
_PARTS = {
    "system": ("text", "thinking"),
    "user": ("text", "image_url", "document_url", "input_audio", "file", "reference"),
    "assistant": ("text", "thinking", "reference"),
    "tool": ("text", "image_url", "document_url", "input_audio", "file", "reference"),
}


def judge(body: Json, model: str) -> Rejections:
    """Yields what Mistral rejects in a request."""
    if not body.get("model"):
        yield _unfit("Field required", "model")
    if not is_objects(body.get("messages")):
        yield _unfit("Input should be a valid list", "messages")
    messages = objects(body["messages"])
    for index, message in enumerate(messages):
        yield from _shape(index, message)
    yield from _order(messages)
    for message in messages:
        yield from _message(message)
    yield from judge_response_format(body)
    for tool in objects(body.get("tools")):
        yield from _name(text(child(tool, "function"), "name"), "invalid_tool", "3310")


def _unfit(message: str, *place: Any) -> Rejection:
    """A type error, which Mistral reports as a list of details."""
    detail = [{"type": "value_error", "loc": ["body", *place], "msg": message}]
    return Rejection(message, 422, {"type": "invalid_request_error", "message": {"detail": detail}, "code": None})


def _misplaced(message: str) -> Rejection:
    return Rejection(message, fields={"type": "invalid_request_message_order", "code": "3230"})


def _bad_call(message: str) -> Rejection:
    return Rejection(message, fields={"type": "invalid_function_call", "code": "3280"})


# Types.


def _shape(index: int, message: Json) -> Rejections:
    role = str(message.get("role"))
    if role not in _NEXT:
        yield _unfit(
            f"Input tag '{role}' found using 'role' does not match any of the expected tags", "messages", index
        )
    for field in message.keys() - _FIELDS[role]:
        yield _unfit("Extra inputs are not permitted", "messages", index, role, field)
    if role in ("user", "system", "tool") and message.get("content") is None:
        yield _unfit("Field required", "messages", index, role, "content")
    for number, part in enumerate(objects(message.get("content"))):
        if part.get("type") not in _PARTS[role]:
            problem = f"Input tag '{part.get('type')}' found using 'type' does not match any of the expected tags"
            yield _unfit(problem, "messages", index, role, "content", number)
    for number, call in enumerate(objects(message.get("tool_calls"))):
        if not isinstance(child(call, "function").get("arguments"), str | dict):
            yield _unfit("Input should be a valid string", "messages", index, role, "tool_calls", number)


# Order.


def _order(messages: list[Json]) -> Rejections:
    if not messages:
        yield _misplaced("Conversation must have at least one message")
    last = messages[-1]
    if last["role"] == "assistant" and not last.get("prefix"):
        problem = "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
        yield _misplaced(problem)
    for before, message in pairwise(messages):
        if message["role"] not in _NEXT[before["role"]]:
            yield _misplaced(f"Unexpected role '{message['role']}' after role '{before['role']}'")
    for _, called, results in answered_turns(messages):
        yield from _answers(called, list(results.values()))


def _answers(called: list[str], answered: list[str]) -> Rejections:
    for id in repeated(called):
        yield _misplaced(f"Duplicate tool call id {id} in assistant message")
    for id in answered:
        if id not in called:
            yield _misplaced(f"Unexpected tool call id {id} in tool results")
    for id in repeated(answered):
        yield _misplaced(f"Duplicate tool call id {id} in tool results")
    if len(called) != len(answered):
        yield _misplaced("Not the same number of function calls and responses")


# Content.


def _message(message: Json) -> Rejections:
    if message["role"] == "assistant" and not message.get("content") and not message.get("tool_calls"):
        problem = "Assistant message must have either content or tool_calls, but not none."
        yield Rejection(problem, fields={"type": "invalid_request_assistant_message", "code": "3240"})
    for call in objects(message.get("tool_calls")):
        yield from _id(text(call, "id"))
        yield from _name(text(child(call, "function"), "name"), "invalid_function_call", "3280")
    if message["role"] == "tool":
        yield from _id(text(message, "tool_call_id"))
        if message.get("name") is not None:
            yield from _name(text(message, "name"), "invalid_tool_message", "3290")


def _id(id: str) -> Rejections:
    if not _ID.fullmatch(id):
        yield _bad_call(f"Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.")


def _name(name: str, kind: str, code: str) -> Rejections:
    if not is_word(name, MAX_NAME):
        problem = "must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64."
        yield Rejection(f"Function name was {name} but {problem}", fields={"type": kind, "code": code})
