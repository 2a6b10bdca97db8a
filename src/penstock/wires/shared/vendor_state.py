"""What a vendor's own history had beside what ours says, and takes back: fields of parts, of messages, of results."""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall
from penstock.messages import MESSAGE_FIELDS, PART_FIELDS, RESULT_CONTENT, File, Image, Message, ToolResult
from penstock.wires.shared.body import Json

T = TypeVar("T")


def parts_without_state(message: Message) -> list[Any]:
    """The parts of a message without the states among them."""
    return [part for part in message.parts if not isinstance(part, Opaque)]


def part_fields(part: Text | Reasoning | Refusal | ToolCall | Image | File, message: Message, wire: str) -> Json:
    """The fields that the vendor's part had beside what ours says."""
    state = part.state_of(wire) if isinstance(part, Image | File) else message.state_of(part.block, wire)
    fields: Json = state.get(PART_FIELDS) or {}
    return fields


def states_of_kind(message: Message, kind: str, of: type[T]) -> list[T]:
    """What was kept under this name; what is not of its type was tampered with, and is no state."""
    states = [part for part in message.parts if isinstance(part, Opaque) and part.kind == kind]
    return [state.data for state in states if isinstance(state.data, of)]


def message_fields(message: Message) -> Json:
    """The fields that the vendor's message had beside what ours says."""
    found = states_of_kind(message, MESSAGE_FIELDS, dict)
    return found[0] if found else {}


def result_fields(result: ToolResult, wire: str) -> Json:
    """The fields that the vendor's result had beside what ours says."""
    fields: Json = result.state_of(wire).get(PART_FIELDS) or {}
    return fields


def result_content(result: ToolResult, wire: str) -> Any:
    """The content of a result as it stood, where it said more than ours; None if it did not."""
    return result.state_of(wire).get(RESULT_CONTENT)


def nonblank_content(result: ToolResult, wire: str) -> Any:
    """The content of a result as it stood, for those who refuse blank text: what says nothing is left out."""
    content = result_content(result, wire)
    return [block for block in content if not _is_blank(block)] if isinstance(content, list) else content


def _is_blank(block: Any) -> bool:
    text: Any = block.get("text") if isinstance(block, dict) else block
    return isinstance(text, str) and not text.strip()


def result_text(result: ToolResult) -> str:
    """The text of a result, for those who take only one: a line for each of its texts."""
    return "\n".join(part.text for part in result.content if isinstance(part, Text) and part.text)
