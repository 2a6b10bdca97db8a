"""Google's Interactions.

It is known which steps there are and which fields they need, that a result answers a call, and that signatures are
checked. The error messages are not known: these are invented.
"""

from __future__ import annotations

import re
from typing import Any

from penstock.testing.wires.rejection import Json, Rejection, Rejections, child, objects, repeated, text
from penstock.testing.wires.schema_rules import schemas
from penstock.testing.wires.signatures import GEMINI, is_signature

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_CONTENT = ("text", "image", "audio", "video", "document")
_STEPS = ("user_input", "model_output", "thought", "function_call", "function_result")
_HOSTED = ("_call", "_result")
_LEVELS = ("minimal", "low", "medium", "high", "xhigh")
_MODES = ("auto", "any", "none", "validated")
_REFUSED = {"allOf", "oneOf", "not", "const", "patternProperties"}


def judge(body: Json, model: str) -> Rejections:
    """Yields what Google rejects in a request."""
    if not body.get("model") and not body.get("agent"):
        yield _invalid("model", "a model or an agent is required")
    steps = body.get("input")
    if not steps and not body.get("continuation_token"):
        yield _invalid("input", "input is required")
    listed = objects(steps)
    if isinstance(steps, list) and len(listed) != len(steps):
        yield _invalid("input", "must be text, a list of contents, or a list of steps")
    if all(step.get("type") in _CONTENT for step in listed):
        for index, part in enumerate(listed):
            yield from _content(f"input[{index}]", part)
    else:
        for index, step in enumerate(listed):
            yield from _step(f"input[{index}]", step)
        yield from _answered(listed, is_stored=bool(body.get("previous_interaction_id")))
    yield from _settings(body)


def _invalid(path: str, problem: str) -> Rejection:
    return Rejection(f"Invalid request at {path}: {problem}.")


# Steps.


def _step(path: str, step: Json) -> Rejections:
    kind = text(step, "type")
    if kind not in _STEPS and not kind.endswith(_HOSTED):
        yield _invalid(f"{path}.type", f"{kind!r} is not a type of step")
    if kind in ("user_input", "model_output"):
        if not objects(step.get("content")) and not step.get("error"):
            yield _invalid(f"{path}.content", "must not be empty")
        for number, part in enumerate(objects(step.get("content"))):
            yield from _content(f"{path}.content[{number}]", part)
    if kind == "function_call":
        yield from _required(path, step, "id", "name")
        if not isinstance(step.get("arguments"), dict):
            yield _invalid(f"{path}.arguments", "must be an object")
    if kind == "function_result":
        yield from _required(path, step, "call_id")
        if step.get("result") is None:
            yield _invalid(f"{path}.result", "is required")
    if step.get("signature") is not None and not is_signature(step["signature"], GEMINI):
        yield _invalid(f"{path}.signature", "the signature is not valid")


def _required(path: str, step: Json, *fields: str) -> Rejections:
    for field in fields:
        if not text(step, field):
            yield _invalid(f"{path}.{field}", "is required")


def _content(path: str, part: Json) -> Rejections:
    kind = text(part, "type")
    if kind not in _CONTENT:
        yield _invalid(f"{path}.type", f"{kind!r} is not a type of content")
    if kind == "text" and not text(part, "text"):
        yield _invalid(f"{path}.text", "must not be empty")
    if kind != "text" and not part.get("data") and not part.get("uri"):
        yield _invalid(path, "needs data or a uri")


def _answered(steps: list[Json], *, is_stored: bool) -> Rejections:
    """Each call has one result, which comes before the user's next step."""
    called: list[str] = []
    open_calls: dict[str, str] = {}
    for index, step in enumerate(steps):
        match text(step, "type"):
            case "function_call":
                called.append(text(step, "id"))
                open_calls[text(step, "id")] = text(step, "name")
            case "function_result":
                id = text(step, "call_id")
                if id not in open_calls and not is_stored:
                    yield _invalid(f"input[{index}].call_id", f"there is no open call with the id {id!r}")
                name = open_calls.pop(id, "")
                if name and text(step, "name") not in ("", name):
                    yield _invalid(f"input[{index}].name", f"the call {id!r} is one of {name!r}")
            case "user_input" | "thought" | "model_output" if open_calls and _ends_turn(steps, index):
                yield _invalid(f"input[{index}]", f"the call {next(iter(open_calls))!r} has no result")
    if open_calls:
        yield _invalid("input", f"the call {next(iter(open_calls))!r} has no result")
    for id in repeated(called):
        yield _invalid("input", f"two calls have the id {id!r}")


def _ends_turn(steps: list[Json], index: int) -> bool:
    """Whether the step at this index begins another turn: it is the user's, or follows a result."""
    before = text(steps[index - 1], "type") if index else ""
    return text(steps[index], "type") == "user_input" or before == "function_result"


# Settings.


def _settings(body: Json) -> Rejections:
    for index, tool in enumerate(objects(body.get("tools"))):
        if tool.get("type") == "function" and not _NAME.fullmatch(text(tool, "name")):
            yield _invalid(f"tools[{index}].name", "is not a name of a function")
    config = child(body, "generation_config")
    level: Any = config.get("thinking_level")
    if level is not None and level not in _LEVELS:
        yield _invalid("generation_config.thinking_level", f"{level!r} is not a level")
    choice = config.get("tool_choice")
    if isinstance(choice, str) and choice not in _MODES:
        yield _invalid("generation_config.tool_choice", f"{choice!r} is not a mode")
    format = body.get("response_format")
    for one in objects(format if isinstance(format, list) else [format]):
        if one.get("schema") is not None and one.get("mime_type") != "application/json":
            yield _invalid("response_format.mime_type", "a schema needs application/json")
        for _, schema in schemas(one.get("schema")):
            if refused := schema.keys() & _REFUSED:
                yield _invalid("response_format.schema", f"the keyword {min(refused)} is not supported")
    if body.get("store") is False and body.get("background"):
        yield _invalid("store", "an interaction in the background has to be stored")
