"""OpenAI's Responses: items, of which all that the model made in one turn are one message.

An item of ours keeps its id, its status and its phase as state, as the wire does. Items that the provider ran itself,
references to items that it keeps, and items of types that came later are kept whole, in the order of the turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.events import CallKind
from penstock.messages import MESSAGE, Image, ToolResult
from penstock.wires.openai_responses.facts import FACTS
from penstock.wires.shared.fields import ADVICE, Json, contents, kind_of, mappings, refused, rest, stated_type, string
from penstock.wires.shared.media_fields import FILE_FIELDS, read_file, without_usual_detail
from penstock.wires.shared.message_parts import Parts, result
from penstock.wires.shared.message_reader import MessageReader, ReadContext
from penstock.wires.shared.places import Placed, answers

WIRE = FACTS.wire

_CALLS: dict[str, tuple[CallKind, str]] = {
    "function_call": ("function", "arguments"),
    "custom_tool_call": ("custom", "input"),
}
_PARTS = ("input_text", "output_text", "input_image", "input_file")
ITEMS = {
    "message", "reasoning", "item_reference", "compaction", "compaction_trigger", "additional_tools",
    "configuration_update", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "web_search_call", "file_search_call", "image_generation_call", "code_interpreter_call", "computer_call",
    "computer_call_output", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
    "apply_patch_call", "apply_patch_call_output", "mcp_call", "mcp_list_tools", "mcp_approval_request",
    "mcp_approval_response", "tool_search_call", "tool_search_output", "program", "program_output",
}  # fmt: skip


def is_item(message: Json) -> bool:
    """Whether this is an item: it has a type. Many other things have one; `is_known_item` looks at the type."""
    kind = message.get("type")
    return isinstance(kind, str) and ("role" not in message or kind == "message")


def is_known_item(message: Json) -> bool:
    """Whether this is an item of a known type."""
    return is_item(message) and message["type"] in ITEMS


def is_message(message: Json) -> bool:
    """Whether a message has parts that only Responses has."""
    content: Any = message.get("content")
    parts: Any = content if isinstance(content, list) else ()
    return any(isinstance(part, Mapping) and is_part(part) for part in parts)


def is_part(part: Json) -> bool:
    """Whether this is a content part."""
    return part.get("type") in _PARTS


class ResponsesReader(MessageReader):
    """The content parts of Responses, in messages that are not items."""

    def read_content(self, parts: Parts, part: Json, at: str, context: ReadContext) -> bool:
        match part:
            case {"type": "input_text" | "output_text", "text": str(text)}:
                parts.text(text, rest(part, ("type", "text")), WIRE)
            case {"type": "input_image", "image_url": str(url)}:
                fields = without_usual_detail(rest(part, ("type", "image_url", "file_id")))
                parts.media(Image(url, stated_type(url, "image/png")), fields, WIRE)
            case {"type": "input_image", "file_id": str(id)}:
                parts.media(Image(id), without_usual_detail(rest(part, ("type", "file_id"))), WIRE)
            case {"type": "input_file"}:
                parts.media(read_file(part, at), rest(part, FILE_FIELDS), WIRE)
            case _:
                return False
        return True

    def read_answer(self, parts: Parts, part: Json, at: str, context: ReadContext) -> bool:
        match part:
            case {"type": "output_text", "text": str(text)}:
                parts.text(text, rest(part, ("type", "text", "parsed")), WIRE)
                return True
            case _:
                return False


READER = ResponsesReader()


def read(item: Json, place: str, context: ReadContext, *, is_among_items: bool) -> Iterator[Placed]:
    """The message that an item is, or is a part of. Among known items, one of an unknown type is a new kind of item."""
    match item.get("type", "message"):
        case "message":
            yield _message(item, place, context)
        case "function_call_output" | "custom_tool_call_output":
            yield answers([(place, _result(item, place, context))], place, is_item=True)
        case str(kind) if kind not in ITEMS and not is_among_items:
            raise refused(place, f"has no role, and no item of Responses has the type {kind!r}: {ADVICE}")
        case str(kind):
            parts = Parts(WIRE, context.calls, place)
            _made(parts, kind, item, place)
            yield parts.build("assistant", is_item=True)
        case _:
            raise refused(place, "needs 'type', a string")


def _made(parts: Parts, kind: str, item: Json, place: str) -> None:
    """What the model, or the provider, made that is no message."""
    if kind in _CALLS:
        call, field = _CALLS[kind]
        id, name = string(item, "call_id", place), string(item, "name", place)
        block = parts.call(id, name, item.get(field), place, call)
        beside = rest(item, ("type", "call_id", "name", field, "parsed_arguments"))
        parts.state(block, kind, beside and {key: item[key] for key in item if key != field})
    elif kind == "reasoning":
        told = [
            str(part.get("text") or "")
            for field in ("summary", "content")
            for _, part in mappings(item.get(field) or (), f"{place}.{field}")
        ]
        blocks = [parts.reasoning(text) for text in told if text] or [parts.reasoning("")]
        parts.state(blocks[-1], kind, item)
    else:
        parts.whole(kind, item)


def _message(item: Json, place: str, context: ReadContext) -> Placed:
    parts = Parts(WIRE, context.calls, place)
    beside = rest(item, ("role", "content", "type"))
    match item.get("role"):
        case "assistant":
            _said(parts, item, beside, place)
            return parts.build("assistant", is_item=True)
        case "user" | "system" | "developer" as role:
            for at, part in contents(item.get("content"), f"{place}.content"):
                parts.at = at
                context.read_content(parts, part, at)
            if beside:
                parts.at = place
                parts.whole(MESSAGE, beside)
            return parts.build("user" if role == "user" else "system")
        case role:
            raise refused(place, f"has the role {role!r}: give system, developer, user or assistant")


def _said(parts: Parts, item: Json, beside: Json, place: str) -> None:
    for at, part in contents(item.get("content"), f"{place}.content"):
        parts.at = at
        match part:
            case {"type": "text" | "output_text", "text": str(text)}:
                block = parts.text(text, rest(part, ("type", "text", "parsed")))
            case {"type": "refusal", "refusal": str(text)}:
                block = parts.refusal(text, rest(part, ("type", "refusal")))
            case _:
                raise refused(at, f"{kind_of(part)} is no part of an answer that is known")
        parts.state(block, MESSAGE, beside and {"type": "message", "role": "assistant", **beside})


def _result(item: Json, place: str, context: ReadContext) -> ToolResult:
    output = item.get("output")
    shown = Parts(WIRE, context.calls, place)
    for at, part in contents(output, f"{place}.output"):
        context.read_content(shown, part, at)
    call_id = string(item, "call_id", place)
    fields = rest(item, ("type", "call_id", "output"))
    fields |= {"type": item["type"]} if item["type"] != "function_call_output" else {}
    return result(call_id, shown, context.calls, fields=fields, content=output)
