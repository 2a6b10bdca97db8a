"""OpenAI Chat Completions.

Ids are checked within a turn, so that they may be repeated in another (QUIRKS 22). Arguments are any text. Unknown
fields are accepted, since many providers use this wire.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.testing.wires.openai_rules import empty_array, invalid, judge_name, judge_string, missing, not_a_string
from penstock.testing.wires.openai_rules import unknown_value as unknown
from penstock.testing.wires.rejection import Json, Rejections, child, is_objects, objects, repeated, text
from penstock.testing.wires.schema_rules import judge_response_format

MAX_ID = 40
MAX_NAME = 64

_ROLES = ("system", "assistant", "user", "function", "tool", "developer")
_PARTS = ("text", "image_url", "input_audio", "refusal", "audio", "file")


def judge(body: Json, model: str) -> Rejections:
    """Yields what OpenAI rejects in a request."""
    yield from _request(body)
    messages = objects(body["messages"])
    for index, message in enumerate(messages):
        yield from _message(index, message)
    yield from _order(messages)


# The request.


def _request(body: Json) -> Rejections:
    if not body.get("model"):
        yield invalid("you must provide a model parameter", None, None)
    if "messages" not in body:
        yield missing("messages")
    if not is_objects(body["messages"]):
        yield invalid("Invalid type for 'messages': expected an array of objects.", "messages", "invalid_type")
    for field in ("messages", "tools"):
        if body.get(field) == []:
            yield empty_array(field)
    for field in ("tool_choice", "parallel_tool_calls"):
        if body.get(field) is not None and not body.get("tools"):
            yield invalid(
                f"Invalid value for '{field}': '{field}' is only allowed when 'tools' are specified.", field, None
            )
    if body.get("stream_options") and not body.get("stream"):
        problem = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield invalid(problem, "stream_options", None)
    yield from judge_response_format(body)
    for index, tool in enumerate(objects(body.get("tools"))):
        kind = tool.get("type")
        if kind in ("function", "custom"):
            yield from judge_name(f"tools[{index}].{kind}.name", child(tool, kind).get("name"), MAX_NAME)


# Single messages.


def _message(index: int, message: Json) -> Rejections:
    role = message.get("role")
    if role not in _ROLES:
        yield unknown(f"messages[{index}].role", role, _ROLES)
    yield from _content(index, message)
    if "tool_calls" in message:
        yield from _calls(f"messages[{index}].tool_calls", message["tool_calls"])
    if role == "tool":
        yield from judge_string(f"messages[{index}].tool_call_id", message.get("tool_call_id"), MAX_ID)


def _content(index: int, message: Json) -> Rejections:
    role, content = message.get("role"), message.get("content")
    says_otherwise = any(message.get(key) for key in ("tool_calls", "refusal", "audio", "function_call"))
    if content is None and not (role == "assistant" and says_otherwise):
        problem = "Invalid value for 'content': expected a string, got null."
        yield invalid(problem, f"messages.[{index}].content", None)
    if content == []:
        yield empty_array(f"messages[{index}].content")
    for number, part in enumerate(objects(content)):
        kind = part.get("type")
        if kind not in _PARTS:
            yield unknown(f"messages[{index}].content[{number}].type", kind, _PARTS)
        if kind == "image_url" and role != "user":
            yield invalid(
                f"Invalid 'messages[{index}]'. Image URLs are only allowed for messages with role 'user', but this "
                f"message with role '{role}' contains an image URL.",
                f"messages[{index}]",
            )


def _calls(path: str, calls: Any) -> Rejections:
    if calls == []:
        yield empty_array(path)
    for number, call in enumerate(objects(calls)):
        here = f"{path}[{number}]"
        yield from judge_string(f"{here}.id", call.get("id"), MAX_ID)
        kind = "custom" if call.get("type") == "custom" else "function"
        called, field = child(call, kind), "input" if kind == "custom" else "arguments"
        yield from judge_name(f"{here}.{kind}.name", called.get("name"), MAX_NAME)
        if not isinstance(called.get(field), str):
            yield not_a_string(f"{here}.{kind}.{field}", called.get(field))


# The order of messages.


def calls_of(message: Json) -> list[str]:
    """The ids of the calls in a message."""
    return [text(call, "id") for call in objects(message.get("tool_calls"))]


def answered_turns(messages: list[Json]) -> Iterator[tuple[int, list[str], dict[int, str]]]:
    """For each message that is not a result: its index, its calls, and the results directly after it by index."""
    before: int = -1
    results: dict[int, str] = {}
    for index, message in enumerate([*messages, {}]):
        if message.get("role") == "tool":
            results[index] = text(message, "tool_call_id")
            continue
        yield before, calls_of(messages[before]) if before >= 0 else [], results
        before, results = index, {}


def _order(messages: list[Json]) -> Rejections:
    for index, called, results in answered_turns(messages):
        for id in repeated(called):
            yield _duplicate(id, index)
        for place, id in results.items():
            if not called:
                problem = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                yield invalid(f"Invalid parameter: {problem}", f"messages.[{place}].role", None)
            if id not in called:
                problem = f"'tool_call_id' of '{id}' not found in 'tool_calls' of previous message."
                yield invalid(f"Invalid parameter: {problem}", f"messages.[{place}].tool_call_id", None)
        for id in repeated(list(results.values())):
            yield _duplicate(id, [place for place, other in results.items() if other == id][1])
        if missing_ids := [id for id in called if id not in results.values()]:
            yield invalid(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'. The following tool_call_ids did not have response messages: "
                f"{', '.join(missing_ids)}",
                f"messages.[{index + 1 + len(results)}].role",
                None,
            )


def _duplicate(id: str, index: int) -> Any:
    return invalid(f"Duplicate value for 'tool_call_id' of {id} in message[{index}]", None, "invalid_request_error")
