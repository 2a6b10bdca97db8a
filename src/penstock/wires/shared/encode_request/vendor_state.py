"""Vendor state that encoders write back: the fields of parts, messages and results that ours do not have."""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall
from penstock.messages import MESSAGE_FIELDS, PART_FIELDS, RESULT_CONTENT, File, Image, Message, ToolResult
from penstock.wires.shared.encode_request.body import Json

T = TypeVar("T")


def parts_without_state(message: Message) -> list[Any]:
    """The parts of a message without its vendor state."""
    return [part for part in message.parts if not isinstance(part, Opaque)]


def part_fields(part: Text | Reasoning | Refusal | ToolCall | Image | File, message: Message, wire: str) -> Json:
    """The vendor's fields of a part that ours does not have."""
    state = part.state_of(wire) if isinstance(part, Image | File) else message.state_of(part.block, wire)
    fields: Json = state.get(PART_FIELDS) or {}
    return fields


def states_of_kind(message: Message, kind: str, of: type[T]) -> list[T]:
    """The vendor state of a kind; state of another type was tampered with and is left out."""
    states = [part for part in message.parts if isinstance(part, Opaque) and part.kind == kind]
    return [state.data for state in states if isinstance(state.data, of)]


def message_fields(message: Message) -> Json:
    """The vendor's fields of a message that ours does not have."""
    states = states_of_kind(message, MESSAGE_FIELDS, dict)
    return states[0] if states else {}


def result_fields(result: ToolResult, wire: str) -> Json:
    """The vendor's fields of a result that ours does not have."""
    fields: Json = result.state_of(wire).get(PART_FIELDS) or {}
    return fields


def result_content(result: ToolResult, wire: str) -> Any:
    """The vendor's content of a result, if ours could not hold all of it; else None."""
    return result.state_of(wire).get(RESULT_CONTENT)


def nonblank_content(result: ToolResult, wire: str) -> Any:
    """The vendor's content of a result without blank text, which some providers refuse."""
    content = result_content(result, wire)
    return [block for block in content if not _is_blank(block)] if isinstance(content, list) else content


def _is_blank(block: Any) -> bool:
    text: Any = block.get("text") if isinstance(block, dict) else block
    return isinstance(text, str) and not text.strip()


def result_text(result: ToolResult) -> str:
    """The text of a result, one line per part, for providers that accept only one."""
    return "\n".join(part.text for part in result.content if isinstance(part, Text) and part.text)
