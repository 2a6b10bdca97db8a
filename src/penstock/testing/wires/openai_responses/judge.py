"""OpenAI Responses.

A call needs an output after it, and an output its call before it, unless OpenAI stores the call. A reasoning item must
be followed by the item that it belongs to, and its encrypted content must be one that OpenAI issued.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.testing.wires.openai_responses.client_items import MAX_ID, judge_checks, judge_client_item
from penstock.testing.wires.openai_rules import invalid, judge_name, judge_string, missing, not_a_string
from penstock.testing.wires.openai_rules import unknown_value as unknown
from penstock.testing.wires.rejection import (
    Json,
    Rejection,
    Rejections,
    child,
    is_objects,
    json_type,
    objects,
    repeated,
    text,
)
from penstock.testing.wires.schema_rules import judge_function, judge_json_schema
from penstock.testing.wires.signatures import OPENAI, is_signature

MAX_NAME = 128

_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_HOSTED = ("computer_call", "shell_call", "local_shell_call", "apply_patch_call")
"""Calls of tools that OpenAI defines and the client runs."""
_PAIRS = (*_CALLS, *_HOSTED)
_APPROVALS = ("mcp_approval_request", "mcp_approval_response")
_PREFIXES = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc", "reasoning": "rs"}
_SAID = ("output_text", "refusal")
_ASKED = ("input_text", "input_image", "input_file")
_ROLES = ("assistant", "system", "developer", "user")
_FORMATS = ("json_object", "json_schema", "text")
_STATUSES = ("in_progress", "completed", "incomplete")


def judge(body: Json, model: str) -> Rejections:
    """Yields what OpenAI rejects in a request."""
    yield from _request(body)
    items = objects(body.get("input"))
    for index, item in enumerate(items):
        yield from _item(f"input[{index}]", item)
    is_stored = bool(body.get("previous_response_id") or body.get("conversation"))
    for id in repeated([text(item, "id") for item in items if item.get("id")]):
        problem = f"Duplicate item found with id {id}. Remove duplicate items from your input and try again."
        yield invalid(problem, "input", None)
    yield from _reasoned(items, is_stored=body.get("store", True) is not False)
    yield from _answered(items, is_stored)
    yield from _approved(items, is_stored)
    yield from _programs(items, is_stored)
    yield from judge_checks(items)


def _kind(item: Json) -> str:
    return text(item, "type") or "message"


# The request.


def _request(body: Json) -> Rejections:
    if not body.get("model"):
        yield missing("model")
    sources = ("input", "previous_response_id", "prompt", "conversation")
    if not any(body.get(source) is not None for source in sources):
        problem = 'One of "input" or "previous_response_id" or "prompt" or "conversation_id" must be provided.'
        yield invalid(problem, "input", "missing_required_parameter")
    items = body.get("input", "")
    if not isinstance(items, str) and not is_objects(items):
        problem = (
            f"Invalid type for 'input': expected a string or an array of objects, but got {json_type(items)} instead."
        )
        yield invalid(problem, "input", "invalid_type")
    format = child(child(body, "text"), "format")
    if format and format.get("type") not in _FORMATS:
        yield unknown("text.format.type", format.get("type"), _FORMATS)
    if format.get("type") == "json_schema":
        yield from judge_json_schema("text.format", format)
    for index, tool in enumerate(objects(body.get("tools"))):
        if tool.get("type") in ("function", "custom"):
            yield from judge_name(f"tools[{index}].name", tool.get("name"), MAX_NAME)
        if tool.get("type") == "function":
            yield from judge_function(f"tools[{index}].parameters", tool.get("name"), tool.get("parameters"))


# Single items.


def _item(path: str, item: Json) -> Rejections:
    kind = _kind(item)
    yield from _id(f"{path}.id", item.get("id"), _PREFIXES.get(kind, ""))
    yield from judge_client_item(path, item)
    if "status" in item and item["status"] not in _STATUSES and kind != "apply_patch_call_output":
        problem = "expected one of 'in_progress', 'completed', or 'incomplete'"
        got = json_type(item["status"])
        yield invalid(
            f"Invalid type for '{path}.status': {problem}, but got {got} instead.", f"{path}.status", "invalid_type"
        )
    if kind in _ITEMS:
        yield from _ITEMS[kind](path, item)


def _id(path: str, id: Any, prefix: str) -> Rejections:
    if id is None:
        return
    yield from judge_string(path, id, MAX_ID)
    if not id.startswith(prefix):
        yield invalid(f"Invalid '{path}': '{id}'. Expected an ID that begins with '{prefix}'.", path)


def _message(path: str, item: Json) -> Rejections:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        yield unknown(f"{path}.role", role, _ROLES)
    if content is None:
        yield missing(f"{path}.content")
    known = _SAID if role == "assistant" else _ASKED
    for number, part in enumerate(objects(content)):
        if part.get("type") not in known:
            yield unknown(f"{path}.content[{number}]", part.get("type"), known)


def _call(path: str, item: Json) -> Rejections:
    yield from judge_string(f"{path}.call_id", item.get("call_id"), MAX_ID)
    yield from judge_name(f"{path}.name", item.get("name"), MAX_NAME)
    field = _CALLS[_kind(item)]
    if field not in item:
        yield missing(f"{path}.{field}")
    if not isinstance(item[field], str):
        yield not_a_string(f"{path}.{field}", item[field])


def _output(path: str, item: Json) -> Rejections:
    yield from judge_string(f"{path}.call_id", item.get("call_id"), MAX_ID)
    if "output" not in item:
        yield missing(f"{path}.output")
    output = item["output"]
    if not isinstance(output, str) and not is_objects(output):
        yield not_a_string(f"{path}.output", output)
    for number, part in enumerate(objects(output)):
        if part.get("type") not in _ASKED:
            yield unknown(f"{path}.output[{number}]", part.get("type"), _ASKED)


def _reasoning(path: str, item: Json) -> Rejections:
    if "summary" not in item:
        yield missing(f"{path}.summary")
    secret = item.get("encrypted_content")
    if secret is not None and not is_signature(secret, OPENAI):
        excerpt = f"{str(secret)[:4]}...{str(secret)[-4:]}"
        yield invalid(
            f"The encrypted content {excerpt} could not be verified. Reason: Encrypted content could not be "
            "decrypted or parsed.",
            None,
            "invalid_encrypted_content",
        )


_ITEMS: dict[str, Callable[[str, Json], Rejections]] = {
    "message": _message,
    "reasoning": _reasoning,
    **dict.fromkeys(_CALLS, _call),
    **dict.fromkeys(_OUTPUTS, _output),
}


# The order of items.


def _reasoned(items: list[Json], *, is_stored: bool) -> Rejections:
    for index, item in enumerate(items):
        if _kind(item) != "reasoning":
            continue
        if not is_stored and not item.get("encrypted_content") and not item.get("content"):
            yield Rejection(
                f"Item with id '{text(item, 'id')}' not found. Items are not persisted when `store` is set to false. "
                "Try again with `store` set to true, or remove this item from your input.",
                404,
                {"param": "input", "code": None},
            )
        following = next((other for other in items[index + 1 :] if _kind(other) != "reasoning"), None)
        if following is None or not _is_from_model(following):
            problem = "of type 'reasoning' was provided without its required following item."
            yield invalid(f"Item '{text(item, 'id')}' {problem}", "input", None)


def _is_from_model(item: Json) -> bool:
    """Whether the model produces items of this kind."""
    kind = _kind(item)
    return item.get("role") == "assistant" if kind == "message" else not kind.endswith("_output")


def _answered(items: list[Json], is_stored: bool) -> Rejections:
    for index, item in enumerate(items):
        kind, id = _kind(item), text(item, "call_id")
        call_kind = kind.removesuffix("_output")
        if kind in _PAIRS and not _has(items[index + 1 :], f"{kind}_output", id):
            yield invalid(f"No tool output found for {_in_words(kind)} {id}.", "input", None)
        if kind != call_kind and call_kind in _PAIRS and not is_stored and not _has(items[:index], call_kind, id):
            yield invalid(f"No tool call found for {_in_words(kind)} with call_id {id}.", "input", None)


def _approved(items: list[Json], is_stored: bool) -> Rejections:
    """An answer to an approval request needs the request."""
    asked = {text(item, "id") for item in items if _kind(item) == _APPROVALS[0]}
    answers = {text(item, "approval_request_id") for item in items if _kind(item) == _APPROVALS[1]}
    for id in sorted(answers - asked if not is_stored else ()):
        yield invalid(f"No approval request found with id {id}.", "input", None)


def _programs(items: list[Json], is_stored: bool) -> Rejections:
    """An output repeats the caller of its call, a caller is a program of the history, and an output has its program."""
    callers = {text(item, "call_id"): item.get("caller") for item in items if _kind(item) in _CALLS}
    programs = {text(item, "call_id") for item in items if _kind(item) == "program"}
    for index, item in enumerate(items):
        id, path = text(item, "call_id"), f"input[{index}]"
        if _kind(item) in _OUTPUTS and id in callers and item.get("caller") != callers[id]:
            yield invalid(f"The caller of the output for {id} does not match that of its call.", f"{path}.caller", None)
        caller = text(item.get("caller"), "caller_id")
        if caller and caller not in programs and not is_stored:
            yield invalid(f"No program found with call_id {caller}.", f"{path}.caller", None)
        if _kind(item) == "program_output" and id not in programs and not is_stored:
            yield invalid(f"No program found for program output with call_id {id}.", path, None)
        if _kind(item) == "program" and not item.get("fingerprint"):
            yield missing(f"{path}.fingerprint")


def _has(items: list[Json], kind: str, call_id: str) -> bool:
    return any(_kind(item) == kind and item.get("call_id") == call_id for item in items)


def _in_words(kind: str) -> str:
    return kind.replace("_", " ")
