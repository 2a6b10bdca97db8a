"""OpenAI's Responses: items, of which all that the model made in one turn are one message.

An item of ours keeps its id, its status and its phase as state, as the wire does. Items that the provider ran itself,
references to items that it keeps, and items of types that came later are kept whole, in the order of the turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.events import CallKind
from penstock.messages import MESSAGE, ToolResult
from penstock.wires.anthropic import decode_request as anthropic
from penstock.wires.shared.content_parts import CONTENT_TYPES, show
from penstock.wires.shared.fields import ADVICE, Json, contents, kind_of, mappings, refused, rest, string
from penstock.wires.shared.message_parts import Parts, result
from penstock.wires.shared.places import Placed, answers
from penstock.wires.shared.unnamed_calls import Calls

WIRE = "openai-responses"

_CALLS: dict[str, tuple[CallKind, str]] = {
    "function_call": ("function", "arguments"),
    "custom_tool_call": ("custom", "input"),
}
_PARTS = ("input_text", "output_text", "input_image", "input_file")
_KNOWN = {
    "message", "reasoning", "item_reference", "compaction", "compaction_trigger", "additional_tools",
    "configuration_update", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "web_search_call", "file_search_call", "image_generation_call", "code_interpreter_call", "computer_call",
    "computer_call_output", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
    "apply_patch_call", "apply_patch_call_output", "mcp_call", "mcp_list_tools", "mcp_approval_request",
    "mcp_approval_response", "tool_search_call", "tool_search_output", "program", "program_output",
}  # fmt: skip
_FOREIGN = ("user_input", "model_output")
"""Items of Gemini's Interactions, which also has an `input`."""
_LANGCHAIN = ("human", "ai", "HumanMessageChunk", "AIMessageChunk")
_LANGCHAIN_TOO = ("system", "tool", "function", "chat")
"""Types of LangChain's messages that others have too: a tool that is declared, say, which has no content."""
_FROM_LANGCHAIN = (
    "read it with LangChain (messages_from_dict, load), and give what its convert_to_openai_messages makes of that"
)


def is_item(message: Json) -> bool:
    """Whether this is an item: it has a type, and if it has a role too, it is no message of Anthropic's client.

    Many things have a type: whether a list of them is one of items, `is_known` tells.
    """
    kind = message.get("type")
    if not isinstance(kind, str) or "stop_reason" in message:
        return False
    if "role" not in message:
        return True
    content: Any = message.get("content")
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    return kind == "message" and not any(part.get("type") == "text" or anthropic.is_block(part) for part in parts)


def is_known(message: Json) -> bool:
    """Whether this is an item of a type that we know."""
    return is_item(message) and message["type"] in _KNOWN


def is_written(message: Json) -> bool:
    """Whether a message has parts that only Responses has."""
    content: Any = message.get("content")
    parts: Any = content if isinstance(content, list) else ()
    return any(isinstance(part, Mapping) and part.get("type") in _PARTS for part in parts)


def read(item: Json, place: str, calls: Calls, *, is_among_items: bool) -> Iterator[Placed]:
    """The message that an item is, or is a part of; among items, one of a type that is not known is one that is new."""
    match item.get("type", "message"):
        case "message":
            yield _message(item, place, calls)
        case "function_call_output" | "custom_tool_call_output":
            yield answers([(place, _result(item, place, calls))], place, is_item=True)
        case str(kind) if kind not in _KNOWN and (kind in CONTENT_TYPES or anthropic.is_block(item)):
            raise refused(place, f"{kind_of(item)} is no message: give it in the content of one")
        case str(kind) if kind in _FOREIGN:
            raise refused(place, f"{kind_of(item)} is of Gemini's Interactions, which are not spoken: give contents")
        case str(kind) if _is_langchains(kind, item):
            raise refused(place, f"is LangChain's, of the type {kind!r}: {_FROM_LANGCHAIN}")
        case str(kind) if kind not in _KNOWN and not is_among_items:
            raise refused(place, f"has no role, and no item of Responses has the type {kind!r}: {ADVICE}")
        case str(kind):
            parts = Parts(WIRE, calls, place)
            _made(parts, kind, item, place)
            yield parts.build("assistant", is_item=True)
        case _:
            raise refused(place, "needs 'type', a string")


def _is_langchains(kind: str, item: Json) -> bool:
    is_told = "data" in item or "content" in item
    return kind in _LANGCHAIN or (kind in _LANGCHAIN_TOO and is_told) or (kind == "constructor" and "lc" in item)


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


def _message(item: Json, place: str, calls: Calls) -> Placed:
    parts = Parts(WIRE, calls, place)
    beside = rest(item, ("role", "content", "type"))
    match item.get("role"):
        case "assistant":
            _said(parts, item, beside, place)
            return parts.build("assistant", is_item=True)
        case "user" | "system" | "developer" as role:
            for at, part in contents(item.get("content"), f"{place}.content"):
                parts.at = at
                show(parts, part, at)
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


def _result(item: Json, place: str, calls: Calls) -> ToolResult:
    output = item.get("output")
    shown = Parts(WIRE, calls, place)
    for at, part in contents(output, f"{place}.output"):
        show(shown, part, at)
    call_id = string(item, "call_id", place)
    fields = rest(item, ("type", "call_id", "output"))
    fields |= {"type": item["type"]} if item["type"] != "function_call_output" else {}
    return result(call_id, shown, calls, fields=fields, content=output)
