"""Anthropic Messages.

Consecutive messages of one role are one turn, so that results may be spread over messages, but only results may
precede the last of them. Only the last message may be empty, if it is the assistant's. A response that ends with
thinking is accepted unless it is the last. Thinking may be missing, but must have its signature if present (QUIRKS 126,
127). Ids are unique in the request (QUIRKS 21, 22). Calls of hosted tools are followed by their results, unless no user
message follows: then the provider continues them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import Any

from msgspec import Struct

from penstock.testing.wires.claude_rules import PREFILL, takes_format, takes_prefill, takes_system
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
from penstock.testing.wires.schema_rules import judge_claude_schema
from penstock.testing.wires.signatures import CLAUDE, is_signature

MAX_TOOL_NAME = 128
MAX_CALL_NAME = 200

_FIELDS = {
    "text": {"type", "text", "cache_control", "citations"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller", "toolset_name"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control", "toolset_name"},
}
"""The fields of the common blocks; other fields are rejected."""
_ROLES = {"tool_use": "assistant", "thinking": "assistant", "redacted_thinking": "assistant", "tool_result": "user",
          "image": "user", "document": "user"}  # fmt: skip
_HOSTED = ("server_tool_use", "mcp_tool_use")
"""Calls of hosted tools."""
_FOREIGN = {"image_url", "input_audio", "file", "input_text", "input_image", "input_file", "output_text", "reasoning",
            "refusal", "function_call", "function_call_output"}  # fmt: skip
"""The types of other vendors' blocks."""
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


class Block(Struct, frozen=True):
    """A content block and its path in the request."""

    path: str
    json: Json

    @property
    def type(self) -> str:
        return text(self.json, "type")


class RoleTurn(Struct, frozen=True):
    """Consecutive messages of one role; `index` is that of the first."""

    role: str
    index: int
    blocks: list[Block]


def judge(body: Json, model: str) -> Rejections:
    """Yields what Anthropic rejects in a request."""
    yield from _request(body)
    messages = objects(body.get("messages"))
    for index, message in enumerate(messages):
        yield from _message(index, message)
    yield from _system(messages, model)
    yield from _order(messages, model)
    turns = _turns(messages)
    is_continued = child(body, "thread").get("type") == "continue"  # the server has what was said before, and the tools
    yield from _calls(turns, is_continued)
    yield from _hosted(turns)
    if not body.get("tools") and not is_continued and any(_of(turn, "tool_use", "tool_result") for turn in turns):
        yield Rejection("Requests which include `tool_use` or `tool_result` blocks must define tools.")


# The request.


def _request(body: Json) -> Rejections:
    for field in ("model", "max_tokens", "messages"):
        if field not in body:
            yield Rejection(f"{field}: Field required")
    if not is_objects(body["messages"]):
        yield Rejection("messages: Input should be a valid list")
    if not body["messages"]:
        yield Rejection("messages: at least one message is required")
    if any(not text(block, "text") for block in objects(body.get("system")) if block.get("type") == "text"):
        yield Rejection("system: text content blocks must be non-empty")
    yield from _thread(body)
    yield from _format(body)
    forced = child(body, "tool_choice").get("type") in ("any", "tool")
    if forced and child(body, "thinking").get("type") == "enabled":
        yield Rejection("Thinking may not be enabled when tool_choice forces tool use.")
    if body.get("tool_choice") and not body.get("tools") and "thread" not in body:
        yield Rejection("tool_choice: tool_choice may only be specified while providing tools")
    yield from _tools(objects(body.get("tools")))


def _format(body: Json) -> Rejections:
    format = child(child(body, "output_config"), "format")
    if not format:
        return
    if not takes_format(text(body, "model")):
        yield Rejection("output_config.format: This model does not support structured outputs.")
    if format.get("type") != "json_schema":
        yield Rejection("output_config.format.type: Input should be 'json_schema'")
    yield from judge_claude_schema("output_config.format", format.get("schema"))


def _thread(body: Json) -> Rejections:
    """A thread, whose messages the server keeps: the messages of providers are not known."""
    if body.get("thread") is None:
        return
    thread = child(body, "thread")
    if thread.get("type") not in ("create", "continue"):
        yield Rejection("thread.type: Input should be 'create' or 'continue'")
    if thread["type"] == "continue" and not text(thread, "previous_message_id"):
        yield Rejection("thread.previous_message_id: Field required")


def _tools(tools: list[Json]) -> Rejections:
    for index, tool in enumerate(tools):
        if tool.get("type", "custom") != "custom":
            continue
        schema = tool.get("input_schema")
        if not is_word(text(tool, "name"), MAX_TOOL_NAME):
            yield Rejection(f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if not isinstance(schema, dict):
            yield Rejection(f"tools.{index}.custom.input_schema: Field required")
        elif schema.get("type") != "object":
            yield Rejection(f"tools.{index}.custom.input_schema.type: Input should be 'object'")
        elif {"oneOf", "allOf", "anyOf"} & schema.keys():
            choices = "input_schema does not support oneOf, allOf, or anyOf at the top level"
            yield Rejection(f"tools.{index}.custom.input_schema: {choices}")
    if repeated([text(tool, "name") for tool in tools if tool.get("name")]):
        yield Rejection("tools: Tool names must be unique.")


# Single messages.


def _message(index: int, message: Json) -> Rejections:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        yield Rejection(f"messages.{index}.role: Input should be 'user' or 'assistant'")
    if not isinstance(content, str) and not is_objects(content):
        yield Rejection(f"messages.{index}.content: Input should be a valid list")
    if role == "user" and not content:
        yield Rejection(f"messages.{index}: user messages must have non-empty content")
    if isinstance(content, str) and content:
        yield from _blank({"text": content})
    for number, block in enumerate(objects(content)):
        yield from _block(Block(f"messages.{index}.content.{number}", block), str(role))


def _block(block: Block, role: str) -> Rejections:
    yield from _shape(block, role)
    match block.type:
        case "text":
            yield from _blank(block.json)
        case "thinking":
            yield from _thought(block)
        case "redacted_thinking" if not is_signature(block.json.get("data"), CLAUDE):
            yield Rejection(f"{block.path}: Invalid `data` in `redacted_thinking` block")
        case "tool_use":
            yield from _call(block)
        case "tool_result":
            yield from _result(block)
        case "image" | "document":
            yield from _media(block)
        case _:
            pass


def _shape(block: Block, role: str) -> Rejections:
    kind = block.type
    if not kind:
        yield Rejection(f"{block.path}.type: Field required")
    if kind in _FOREIGN:
        yield Rejection(f"{block.path}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    if _ROLES.get(kind, role) != role:
        yield Rejection(f"{block.path}: `{kind}` blocks can only be in `{_ROLES[kind]}` messages")
    for field in block.json.keys() - _FIELDS.get(kind, block.json.keys()):
        yield Rejection(f"{block.path}.{kind}.{field}: Extra inputs are not permitted")


def _blank(block: Json) -> Rejections:
    if not text(block, "text"):
        yield Rejection("messages: text content blocks must be non-empty")
    if not text(block, "text").strip():
        yield Rejection("messages: text content blocks must contain non-whitespace text")


def _thought(block: Block) -> Rejections:
    for field in ("signature", "thinking"):
        if field not in block.json:
            yield Rejection(f"{block.path}.thinking.{field}: Field required")
    if not is_signature(block.json["signature"], CLAUDE):
        yield Rejection(f"{block.path}: Invalid `signature` in `thinking` block")


def _call(block: Block) -> Rejections:
    path = f"{block.path}.tool_use"
    if not is_word(text(block.json, "id"), len(text(block.json, "id"))):
        yield Rejection(f"{path}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not text(block.json, "name"):
        yield Rejection(f"{path}.name: String should have at least 1 character")
    if len(text(block.json, "name")) > MAX_CALL_NAME:
        yield Rejection(f"{path}.name: String should have at most {MAX_CALL_NAME} characters")
    if not isinstance(block.json.get("input"), dict):
        yield Rejection(f"{path}.input: Input should be a valid dictionary")


def _result(block: Block) -> Rejections:
    content = block.json.get("content")
    if not text(block.json, "tool_use_id"):
        yield Rejection(f"{block.path}.tool_result.tool_use_id: Field required")
    if block.json.get("is_error") is True and not content:
        yield Rejection(f"{block.path}.tool_result: content cannot be empty if `is_error` is true")
    for number, inner in enumerate(objects(content)):
        within = Block(f"{block.path}.tool_result.content.{number}", inner)
        yield from _block(within, "user")


def _media(block: Block) -> Rejections:
    source: Any = block.json.get("source")
    if not isinstance(source, dict):
        yield Rejection(f"{block.path}.{block.type}.source: Field required")
    elif source.get("type") == "base64":
        taken = _IMAGES if block.type == "image" else ("application/pdf",)
        if source.get("media_type") not in taken:
            problem = " or ".join(", ".join(f"'{kind}'" for kind in taken).rsplit(", ", 1))
            yield Rejection(f"{block.path}.{block.type}.source.base64.media_type: Input should be {problem}")


# The order of messages.


def _system(messages: list[Json], model: str) -> Rejections:
    for index, (message, following) in enumerate(pairwise([*messages, {}])):
        if message["role"] != "system":
            continue
        if not takes_system(model):
            yield Rejection(
                'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, not '
                '"system" as an input message role.'
            )
        if following.get("role", "assistant") != "assistant":
            yield Rejection(f"messages.{index}: role 'system' must precede an 'assistant' message or end the array")


def _order(messages: list[Json], model: str) -> Rejections:
    if messages[0].get("role") != "user":
        yield Rejection('messages: first message must use the "user" role')
    for index, message in enumerate(messages[:-1]):
        if not message["content"]:
            problem = "all messages must have non-empty content except for the optional final assistant message"
            yield Rejection(f"messages.{index}: {problem}")
    last, index = messages[-1], len(messages) - 1
    if last.get("role") != "assistant":
        return
    blocks = objects(last.get("content"))
    kinds = [text(block, "type") for block in blocks]
    ending = last["content"] if isinstance(last["content"], str) else text(blocks[-1], "text") if blocks else ""
    if kinds and kinds[-1] in ("thinking", "redacted_thinking"):
        yield Rejection(f"messages.{index}: The final block in an assistant message cannot be `{kinds[-1]}`.")
    if "tool_use" not in kinds and "server_tool_use" not in kinds and not takes_prefill(model):
        yield Rejection(PREFILL)
    if ending != ending.rstrip():
        yield Rejection("messages: final assistant content cannot end with trailing whitespace")


def _turns(messages: list[Json]) -> list[RoleTurn]:
    turns: list[RoleTurn] = []
    for index, message in enumerate(messages):
        if message["role"] == "system":
            continue
        if not turns or turns[-1].role != message["role"]:
            turns.append(RoleTurn(str(message["role"]), index, []))
        turns[-1].blocks.extend(_blocks(index, message))
    return turns


def _blocks(index: int, message: Json) -> Iterator[Block]:
    content = message["content"]
    if isinstance(content, str) and content:
        yield Block(f"messages.{index}.content.0", {"type": "text", "text": content})
    for number, block in enumerate(objects(content)):
        yield Block(f"messages.{index}.content.{number}", block)


def _of(turn: RoleTurn, *kinds: str) -> list[Block]:
    return [block for block in turn.blocks if block.type in kinds]


def _calls(turns: list[RoleTurn], is_continued: bool) -> Rejections:
    used: set[str] = set()
    for turn in turns:
        for block in _of(turn, "tool_use"):
            if text(block.json, "id") in used:
                yield Rejection(f"{block.path}: `tool_use` ids must be unique")
            used.add(text(block.json, "id"))
    nobody = RoleTurn("", -1, [])
    for before, turn in zip([nobody, *turns], [*turns, nobody], strict=True):
        if before is not nobody or not is_continued:
            yield from _answers(before, turn)


def _answers(before: RoleTurn, turn: RoleTurn) -> Rejections:
    called = [text(block.json, "id") for block in _of(before, "tool_use")]
    leading = takewhile(lambda block: block.type == "tool_result", turn.blocks)
    answered = [text(block.json, "tool_use_id") for block in leading]
    results = _of(turn, "tool_result")
    for block in results:
        if (id := text(block.json, "tool_use_id")) not in called:
            yield Rejection(
                f"{block.path}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block "
                "must have a corresponding `tool_use` block in the previous message."
            )
    if missing := [id for id in called if id not in answered]:
        yield Rejection(
            f"messages.{before.index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message."
        )
    for id in repeated([text(block.json, "tool_use_id") for block in results]):
        path = [block.path for block in results if block.json["tool_use_id"] == id][1]
        problem = "each tool_use must have a single result. Found multiple `tool_result` blocks with id"
        yield Rejection(f"{path}: {problem}: {id}")


def _hosted(turns: list[RoleTurn]) -> Rejections:
    waiting: dict[str, Block] = {}
    for turn in turns:
        for block in turn.blocks:
            id = text(block.json, "tool_use_id")
            if block.type in _HOSTED:
                waiting[text(block.json, "id")] = block
            elif block.type.endswith("_tool_result") and waiting.pop(id, None) is None:
                call_type = "mcp_tool_use" if block.type == "mcp_tool_result" else "server_tool_use"
                yield Rejection(
                    f"{block.path}: unexpected `tool_use_id` found in `{block.type}` blocks: {id}. Each `{block.type}` "
                    f"block must have a corresponding `{call_type}` block before it."
                )
            elif turn.role == "user" and block.type != "tool_result" and waiting:
                yield _unanswered(next(iter(waiting.values())))


def _unanswered(call: Block) -> Rejection:
    path, name, id = call.path.partition(".content")[0], text(call.json, "name"), text(call.json, "id")
    problem = f"was found without a corresponding `{name}_tool_result` block"
    return Rejection(f"{path}: `{name}` tool use with id `{id}` {problem}")
