"""Items with the results of tools that OpenAI defines and the client runs: what OpenAI rejects in them.

The rules are those of OpenAI's own types. A computer call with safety checks goes on only if all are acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.testing.wires.openai_rules import invalid, judge_string, missing, not_a_string
from penstock.testing.wires.openai_rules import unknown_value as unknown
from penstock.testing.wires.rejection import Json, Rejection, Rejections, child, is_objects, json_type, objects, text

MAX_ID = 64


def judge_client_item(path: str, item: Json) -> Rejections:
    """Yields what OpenAI rejects in an item of these kinds; nothing for other items."""
    if (judge := _ITEMS.get(text(item, "type"))) is not None:
        yield from judge(path, item)


def judge_checks(items: list[Json]) -> Rejections:
    """Yields the computer calls that go on although a safety check was not acknowledged."""
    pending = {text(item, "call_id"): item for item in items if item.get("type") == "computer_call"}
    for index, item in enumerate(items):
        if item.get("type") != "computer_call_output":
            continue
        call = pending.get(text(item, "call_id"), {})
        known = {check.get("id") for check in objects(item.get("acknowledged_safety_checks"))}
        for check in objects(call.get("pending_safety_checks")):
            if check.get("id") not in known:
                problem = f"Computer call has pending safety check {check.get('id')} that was not acknowledged."
                yield invalid(problem, f"input[{index}].acknowledged_safety_checks", None)


def _computer(path: str, item: Json) -> Rejections:
    yield from judge_string(f"{path}.call_id", item.get("call_id"), MAX_ID)
    output = child(item, "output")
    if output.get("type") != "computer_screenshot":
        yield unknown(f"{path}.output.type", output.get("type"), ("computer_screenshot",))
    if not isinstance(output.get("image_url", output.get("file_id")), str):
        yield missing(f"{path}.output.image_url")


def _shell(path: str, item: Json) -> Rejections:
    yield from judge_string(f"{path}.call_id", item.get("call_id"), MAX_ID)
    if not is_objects(item.get("output")):
        yield _wrong_type(f"{path}.output", "an array of objects", item.get("output"))
    for number, chunk in enumerate(objects(item.get("output"))):
        for field in ("stdout", "stderr"):
            if not isinstance(chunk.get(field), str):
                yield missing(f"{path}.output[{number}].{field}")
        outcome = child(chunk, "outcome")
        if outcome.get("type") not in ("exit", "timeout"):
            yield unknown(f"{path}.output[{number}].outcome.type", outcome.get("type"), ("exit", "timeout"))
        if outcome.get("type") == "exit" and type(outcome.get("exit_code")) is not int:
            yield missing(f"{path}.output[{number}].outcome.exit_code")


def _local_shell(path: str, item: Json) -> Rejections:
    yield from judge_string(f"{path}.id", item.get("id"), MAX_ID)
    if not isinstance(item.get("output"), str):
        yield not_a_string(f"{path}.output", item.get("output"))


def _patch(path: str, item: Json) -> Rejections:
    yield from judge_string(f"{path}.call_id", item.get("call_id"), MAX_ID)
    if item.get("status") not in ("completed", "failed"):
        yield unknown(f"{path}.status", item.get("status"), ("completed", "failed"))
    if not isinstance(item.get("output", ""), str):
        yield not_a_string(f"{path}.output", item.get("output"))


def _search(path: str, item: Json) -> Rejections:
    if not is_objects(item.get("tools")):
        yield _wrong_type(f"{path}.tools", "an array of objects", item.get("tools"))
    if item.get("execution", "server") not in ("server", "client"):
        yield unknown(f"{path}.execution", item.get("execution"), ("server", "client"))


def _decision(path: str, item: Json) -> Rejections:
    yield from judge_string(f"{path}.approval_request_id", item.get("approval_request_id"), MAX_ID)
    if not isinstance(item.get("approve"), bool):
        yield _wrong_type(f"{path}.approve", "a boolean", item.get("approve"))


def _wrong_type(path: str, expected: str, value: object) -> Rejection:
    problem = f"Invalid type for '{path}': expected {expected}, but got {json_type(value)} instead."
    return invalid(problem, path, "invalid_type")


_ITEMS: dict[str, Callable[[str, Json], Rejections]] = {
    "computer_call_output": _computer,
    "shell_call_output": _shell,
    "local_shell_call_output": _local_shell,
    "apply_patch_call_output": _patch,
    "tool_search_output": _search,
    "mcp_approval_response": _decision,
}
