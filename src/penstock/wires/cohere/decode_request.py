"""Reads what Cohere alone writes in messages: documents, and the plan before calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.wires.cohere.facts import FACTS
from penstock.wires.shared.decode_request.fields import Json, json_text
from penstock.wires.shared.decode_request.message_builder import MessageBuilder
from penstock.wires.shared.decode_request.message_reader import MessageReader, ReadContext

WIRE = FACTS.wire


class CohereReader(MessageReader):
    """The parts and fields of Cohere's chat."""

    wire = WIRE

    def is_typical(self, message: Json) -> bool:
        content: Any = message.get("content")
        parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
        return "tool_plan" in message or any(part.get("type") == "document" and "document" in part for part in parts)

    def read_content(self, parts: MessageBuilder, part: Json, place: str, context: ReadContext) -> bool:
        match part:
            case {"type": "document", "document": Mapping() as document} if parts.wire == WIRE:
                parts.block_with_text("document", part, _document_text(document))
                return True
            case _:
                return False

    def read_after_content(self, parts: MessageBuilder, message: Json, place: str) -> None:
        if message.get("tool_plan"):
            parts.place = f"{place}.tool_plan"
            parts.opaque("tool_plan", str(message["tool_plan"]), WIRE)

    def known_fields(self, message: Json) -> Iterable[str]:
        return ("tool_plan",)


READER = CohereReader()


def _document_text(document: Json) -> str:
    """The text of a document; its data is text, or fields of which `text` is the usual one."""
    match document.get("data"):
        case str(text):
            return text
        case {"text": str(text), **others} if not others:
            return text
        case data:
            return json_text(data, "document")
