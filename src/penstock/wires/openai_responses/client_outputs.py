"""Results of calls that OpenAI defines and the client runs: as the items that OpenAI has for them, and back.

| item | a result becomes | without such a result |
|---|---|---|
| `computer_call_output` | its last image, as the screenshot | the call is written as that of a function |
| `shell_call_output` | its text: standard output; of an error, standard error with the exit code 1 | |
| `local_shell_call_output`, `apply_patch_call_output` | its text | |
| `tool_search_output` | the list of declarations in its text | no tools were found |
| `mcp_approval_response` | `true`: approved | declined, with its text as the reason |

A text that is JSON of the item's own form is written as it is. What the item has no place for (text beside a
screenshot, an image beside text) goes into a user message after the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.declarations import ToolDeclaration, read_declarations
from penstock.errors import UsageError
from penstock.events import Text
from penstock.messages import File, Image, ToolResult
from penstock.wires.openai_responses.facts import CLIENT_CALLS, FACTS
from penstock.wires.shared.decode_request.fields import Json as ReadJson
from penstock.wires.shared.decode_request.fields import other_fields, to_json
from penstock.wires.shared.encode_request.body import Json
from penstock.wires.shared.encode_request.media import is_uploaded
from penstock.wires.shared.encode_request.vendor_state import result_fields

Parts = list[Text | Image | File]
_ACKNOWLEDGED = "acknowledged_safety_checks"
_FAILED = 1  # the exit code of a command that did not run, or failed in a way that has no exit code


def takes_result(item: Json, result: ToolResult | None) -> bool:
    """Whether the output item of a call can hold this result; a computer's must be a screenshot."""
    if result is None or item["type"] != "computer_call":
        return True
    return not result.is_error and any(isinstance(part, Image) for part in result.content)


def write_output(item: Json, result: ToolResult, declare: Any) -> tuple[Json, Parts]:
    """The item with the result of a call, and the parts of the result that have no place in it.

    `declare` writes the declaration of a tool.
    """
    call = CLIENT_CALLS[item["type"]]
    head: Json = {"type": call.output, call.output_id: result.call_id}
    fields, rest = _WRITERS[item["type"]](item, result, declare)
    known = result_fields(result, FACTS.wire)
    kept = {key: value for key, value in known.items() if value is not None and key != _ACKNOWLEDGED}
    return kept | head | fields, rest


def _screenshot(item: Json, result: ToolResult, declare: Any) -> tuple[Json, Parts]:
    last = max(number for number, part in enumerate(result.content) if isinstance(part, Image))
    image, rest = result.content[last], [*result.content[:last], *result.content[last + 1 :]]
    assert isinstance(image, Image)
    place = "file_id" if is_uploaded(image) else "image_url"
    written: Json = {"output": {"type": "computer_screenshot", place: image.url}}
    # A call with checks runs only after a person has approved it; a result from elsewhere says what was acknowledged.
    checks = result_fields(result, FACTS.wire).get(_ACKNOWLEDGED, item.get("pending_safety_checks"))
    return written | ({_ACKNOWLEDGED: checks} if checks else {}), rest


def _shell(item: Json, result: ToolResult, declare: Any) -> tuple[Json, Parts]:
    text, value, rest = _text_and_value(result)
    limit = item["action"].get("max_output_length") if isinstance(item.get("action"), dict) else None
    limited = {} if limit is None else {"max_output_length": limit}
    if isinstance(value, dict):
        value = value.get("output", [value])
    if not result.is_error and isinstance(value, list) and value and all(map(_is_chunk, value)):
        return {"output": value, **limited}, rest
    return {"output": [_chunk(text, result.is_error)], **limited}, rest


def _chunk(text: str, is_error: bool) -> Json:
    code = _FAILED if is_error else 0
    streams = ("", text) if is_error else (text, "")
    return {"stdout": streams[0], "stderr": streams[1], "outcome": {"type": "exit", "exit_code": code}}


def _is_chunk(value: Any) -> bool:
    """Whether this is what a command printed, in OpenAI's form."""
    match value:
        case {"stdout": str(), "stderr": str(), "outcome": {"type": "exit", "exit_code": int()} | {"type": "timeout"}}:
            return True
        case _:
            return False


def _local_shell(item: Json, result: ToolResult, declare: Any) -> tuple[Json, Parts]:
    text, _, rest = _text_and_value(result)
    return {"id": result.call_id, "output": text}, rest  # OpenAI's types have the id of the call in `id`


def _patch(item: Json, result: ToolResult, declare: Any) -> tuple[Json, Parts]:
    text, value, rest = _text_and_value(result)
    match value:
        case {"status": "completed" | "failed" as status, **fields} if isinstance(fields.get("output", ""), str):
            return {"status": status, **({"output": fields["output"]} if "output" in fields else {})}, rest
        case _:
            return {"status": "failed" if result.is_error else "completed", "output": text}, rest


def _search(item: Json, result: ToolResult, declare: Any) -> tuple[Json, Parts]:
    text, value, rest = _text_and_value(result)
    tools = _declarations(value.get("tools") if isinstance(value, dict) else value)
    fields: Json = {"execution": "client", "status": "completed", "tools": [declare(tool) for tool in tools or ()]}
    return fields, rest if tools is not None else [Text(0, text), *rest]


def _declarations(value: Any) -> list[ToolDeclaration] | None:
    """The tools that a search has found; None if this is not a list of declarations."""
    try:
        return read_declarations(value) if isinstance(value, list) and all(map(_is_object, value)) else None
    except UsageError:
        return None


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _approval(item: Json, result: ToolResult, declare: Any) -> tuple[Json, Parts]:
    text, value, rest = _text_and_value(result)
    match value:
        case True if not result.is_error:
            return {"approve": True}, rest
        case {"approve": bool(approve), **fields} if not result.is_error:
            reason = fields.get("reason")
            return {"approve": approve, **({"reason": reason} if isinstance(reason, str) else {})}, rest
        case False if not result.is_error:
            return {"approve": False}, rest
        case _:
            return {"approve": False, "reason": text}, rest


_WRITERS: Mapping[str, Any] = {
    "computer_call": _screenshot,
    "shell_call": _shell,
    "local_shell_call": _local_shell,
    "apply_patch_call": _patch,
    "tool_search_call": _search,
    "mcp_approval_request": _approval,
}


def _text_and_value(result: ToolResult) -> tuple[str, Any, Parts]:
    """The text of a result, the JSON in its last text, and the parts that are not in either.

    Texts before JSON are notes, such as that a person has changed the arguments.
    """
    texts = [part.text for part in result.content if isinstance(part, Text)]
    media: Parts = [part for part in result.content if not isinstance(part, Text)]
    try:
        value = msgspec.json.decode(texts[-1]) if texts and not result.is_error else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = None
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return "\n".join(texts), None, media
    return texts[-1], value, [*(Text(0, text) for text in texts[:-1]), *media]


# Reading.


def read_output(kind: str, item: ReadJson) -> tuple[list[Text | Image], bool, Json]:
    """The content of an item with a result, whether it is an error, and the fields that a result does not have."""
    call = CLIENT_CALLS[kind]
    known = ("type", call.output_id)
    match kind, item:
        case "computer_call", {"output": {"image_url": str(url)} | {"file_id": str(url)}}:
            return [Image(url)], False, other_fields(item, (*known, "output")) | {_ACKNOWLEDGED: _acknowledged(item)}
        case "shell_call", {"output": output}:
            return *_read_chunks(to_json(output)), other_fields(item, (*known, "output", "max_output_length"))
        case "local_shell_call", {"output": str(output)}:
            return _texts(output), False, other_fields(item, (*known, "id", "call_id", "output"))
        case "apply_patch_call", _:
            is_error = item.get("status") == "failed"
            return _texts(str(item.get("output") or "")), is_error, other_fields(item, (*known, "output", "status"))
        case "tool_search_call", {"tools": tools}:
            fields = other_fields(item, (*known, "tools", "execution", "status"))
            return _texts(_encoded(tools)), False, fields
        case "mcp_approval_request", {"approve": bool(approve)}:
            return *_read_decision(approve, item.get("reason")), other_fields(item, (*known, "approve", "reason"))
        case _:
            return [], False, other_fields(item, known)


def _acknowledged(item: ReadJson) -> list[Any]:
    checks = to_json(item.get(_ACKNOWLEDGED))
    return checks if isinstance(checks, list) else []


def _texts(text: str) -> list[Text | Image]:
    return [Text(0, text)] if text else []


def _encoded(value: Any) -> str:
    return msgspec.json.encode(to_json(value)).decode()


def _read_chunks(output: Any) -> tuple[list[Text | Image], bool]:
    """The text of what commands printed: plain if `write_output` would write it the same, else JSON."""
    match output:
        case [{"stdout": str(text), "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]:
            return _texts(text), False
        case [{"stdout": "", "stderr": str(text), "outcome": {"type": "exit", "exit_code": 1}}]:
            return _texts(text), True
        case _:
            return _texts(_encoded(output)), False


def _read_decision(approve: bool, reason: Any) -> tuple[list[Text | Image], bool]:
    if not isinstance(reason, str):
        return _texts("true" if approve else "false"), False
    return (_texts(_encoded({"approve": True, "reason": reason})), False) if approve else (_texts(reason), True)
