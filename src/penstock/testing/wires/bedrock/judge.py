"""Amazon Bedrock Converse, with models of many vendors.

Roles alternate, blank text is rejected everywhere, and the results of a turn are in the one message after it. Patterns
and lengths are those of the service definition.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from penstock.testing.wires.claude_rules import PREFILL, takes_format, takes_prefill
from penstock.testing.wires.rejection import Json, Rejection, Rejections, child, is_objects, objects, repeated, text
from penstock.testing.wires.schema_rules import judge_claude_schema
from penstock.testing.wires.signatures import CLAUDE, is_signature

MAX_WORD = 64

_ID = re.compile(r"[a-zA-Z0-9_.:-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_FORMATS = {
    "image": ("png", "jpeg", "gif", "webp"),
    "document": ("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"),
    "video": ("mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"),
}


def judge(body: Json, model: str) -> Rejections:
    """Yields what Bedrock rejects in a request."""
    if not is_objects(body.get("messages")) or not body["messages"]:
        yield Rejection("The messages field is required and must hold at least one message.")
    messages = objects(body["messages"])
    for index, message in enumerate(messages):
        yield from _message(index, message)
    messages = [message for message in messages if message["role"] != "system"]
    yield from _order(messages, model)
    yield from _tools(body, messages)
    for index, (before, message) in enumerate(pairwise([{}, *messages, {}])):
        yield from _answers(index, before, message)
    yield from _system(body)
    yield from _format(body, model)


def _format(body: Json, model: str) -> Rejections:
    """The messages of Bedrock for response formats are not known; the schema is forwarded to Claude."""
    format = child(child(body, "outputConfig"), "textFormat")
    if not format:
        return
    if not takes_format(model):
        yield Rejection("This model doesn't support the outputConfig.textFormat field. Remove it and try again.")
    if format.get("type") != "json_schema":
        rule = "Member must satisfy enum value set: [json_schema]"
        yield _constraint("outputConfig.textFormat.type", format.get("type"), rule)
    schema = text(child(child(format, "structure"), "jsonSchema"), "schema")
    try:
        yield from judge_claude_schema("output_config.format", json.loads(schema))
    except ValueError:
        yield Rejection("The value at outputConfig.textFormat.structure.jsonSchema.schema is not valid JSON.")


def _constraint(path: str, value: Any, rule: str) -> Rejection:
    member = re.sub(r"\.(\d+)", lambda place: f".{int(place[1]) + 1}.member", path)  # Bedrock counts from one here
    return Rejection(f"1 validation error detected: Value '{value}' at '{member}' failed to satisfy constraint: {rule}")


def _word(path: str, value: str, pattern: re.Pattern[str]) -> Rejections:
    if not value:
        yield _constraint(path, value, "Member must have length greater than or equal to 1")
    if len(value) > MAX_WORD:
        yield _constraint(path, value, f"Member must have length less than or equal to {MAX_WORD}")
    if not pattern.fullmatch(value):
        yield _constraint(path, value, f"Member must satisfy regular expression pattern: {pattern.pattern}")


# Single messages.


def _message(index: int, message: Json) -> Rejections:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        yield _constraint(
            f"messages.{index}.role", role, "Member must satisfy enum value set: [user, assistant, system]"
        )
    if not is_objects(content):
        yield Rejection(
            f"The content field in the Message object at messages.{index} is not a list of ContentBlock objects."
        )
    if not content:
        yield Rejection(
            f"The content field in the Message object at messages.{index} is empty. Add a ContentBlock object to the "
            "content field and try again."
        )
    blocks = objects(content)
    for number, block in enumerate(blocks):
        yield from _block(f"messages.{index}.content.{number}", block)
    if any("document" in block for block in blocks) and not any("text" in block for block in blocks):
        yield Rejection("A text block must be included when using documents.")


def _block(path: str, block: Json) -> Rejections:
    yield from _blank(path, block)
    yield from _media(path, block)
    if "toolUse" in block:
        yield from _call(f"{path}.toolUse", child(block, "toolUse"))
    if "toolResult" in block:
        yield from _result(f"{path}.toolResult", child(block, "toolResult"))
    if "reasoningContent" in block:
        yield from _thought(path, child(block, "reasoningContent"))


def _blank(path: str, block: Json) -> Rejections:
    if "text" in block and not text(block, "text").strip():
        problem = f"The text field in the ContentBlock object at {path} is blank."
        yield Rejection(f"{problem} Add text to the text field, and try again.")


def _media(path: str, block: Json) -> Rejections:
    for kind, formats in _FORMATS.items():
        if kind in block and (format := child(block, kind).get("format")) not in formats:
            rule = f"Member must satisfy enum value set: [{', '.join(formats)}]"
            yield _constraint(f"{path}.{kind}.format", format, rule)


def _call(path: str, call: Json) -> Rejections:
    yield from _word(f"{path}.toolUseId", text(call, "toolUseId"), _ID)
    yield from _word(f"{path}.name", text(call, "name"), _NAME)
    if not isinstance(call.get("input"), dict):
        problem = f"The format of the value at {path}.input is invalid."
        yield Rejection(f"{problem} Provide a json object for the field and try again.")


def _result(path: str, result: Json) -> Rejections:
    yield from _word(f"{path}.toolUseId", text(result, "toolUseId"), _ID)
    if result.get("status") == "error" and not result.get("content"):
        yield Rejection(f"The content field at {path} cannot be empty when status value is error.")
    for number, block in enumerate(objects(result.get("content"))):
        yield from _blank(f"{path}.content.{number}", block)
        yield from _media(f"{path}.content.{number}", block)


def _thought(path: str, thought: Json) -> Rejections:
    """Reasoning is forwarded to Claude, so the error has Anthropic's message."""
    reasoning = child(thought, "reasoningText")
    if reasoning and not is_signature(reasoning.get("signature"), CLAUDE):
        wrong = "Invalid `signature` in `thinking` block"
        yield Rejection(
            f"{path}: {wrong}" if reasoning.get("signature") else f"{path}.thinking.signature: Field required"
        )
    if "redactedContent" in thought and not is_signature(thought["redactedContent"], CLAUDE):
        yield Rejection(f"{path}: Invalid `data` in `redacted_thinking` block")


# The order of messages.


def _order(messages: list[Json], model: str) -> Rejections:
    if not messages or messages[0].get("role") != "user":
        problem = "A conversation must start with a user message."
        yield Rejection(f"{problem} Try again with a conversation that starts with a user message.")
    if any(before.get("role") == message.get("role") for before, message in pairwise(messages)):
        yield Rejection(
            "A conversation must alternate between user and assistant roles. Make sure the conversation alternates "
            "between user and assistant roles and try again."
        )
    if messages[-1].get("role") == "assistant" and not _ids(messages[-1], "toolUse") and not takes_prefill(model):
        yield Rejection(PREFILL)


def _tools(body: Json, messages: list[Json]) -> Rejections:
    config = child(body, "toolConfig")
    if not config and any(_ids(message, "toolUse") or _ids(message, "toolResult") for message in messages):
        yield Rejection("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
    if "toolConfig" in body and not objects(config.get("tools")):
        yield _constraint("toolConfig.tools", "[]", "Member must have length greater than or equal to 1")
    specs = [child(tool, "toolSpec") for tool in objects(config.get("tools"))]
    for index, spec in enumerate(specs):
        if spec:
            yield from _word(f"toolConfig.tools.{index}.toolSpec.name", text(spec, "name"), _NAME)
    for name in repeated([text(spec, "name") for spec in specs if spec]):
        yield Rejection(f"The tool {name} is already defined at toolConfig.tools.")


def _ids(message: Json, kind: str) -> list[str]:
    blocks = [block for block in objects(message.get("content")) if kind in block]
    return [text(child(block, kind), "toolUseId") for block in blocks]


def _answers(index: int, before: Json, message: Json) -> Rejections:
    called, answered = _ids(before, "toolUse"), _ids(message, "toolResult")
    if repeated(called):
        yield Rejection(
            f"The toolUse blocks at messages.{index - 1}.content contain duplicate Ids: {repeated(called)[0]}"
        )
    if len(answered) > len(called):
        problem = f"The number of toolResult blocks at messages.{index}.content"
        yield Rejection(f"{problem} exceeds the number of toolUse blocks of previous turn.")
    if missing := [id for id in called if id not in answered]:
        yield Rejection(
            f"Expected toolResult blocks at messages.{index}.content for the following Ids: {', '.join(missing)}"
        )


def _system(body: Json) -> Rejections:
    for index, block in enumerate(objects(body.get("system"))):
        if "text" in block and not text(block, "text").strip():
            problem = f"The text field in the SystemContentBlock object at system.{index} is blank."
            yield Rejection(f"{problem} Add text to the text field, and try again.")
