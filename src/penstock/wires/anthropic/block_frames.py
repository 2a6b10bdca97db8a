"""Frames about the blocks of a message: their starts and deltas, and blocks that came whole, as plain JSON."""

from __future__ import annotations

from typing import Any

from penstock.wires.anthropic.facts import STATE_BLOCKS, STATE_ENDINGS
from penstock.wires.anthropic.frames import DELTAS, kind_of_untyped_block, spelled_inputs
from penstock.wires.anthropic.toolsets import TOOLSET, flat_name
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.loose import is_empty, raw_of, text_of
from penstock.wires.shared.decode_response.numbered_blocks import Label, NumberedBlocks
from penstock.wires.shared.decode_response.open_block import OpenReasoning, OpenText, OpenVendor
from penstock.wires.shared.decode_response.reports import Reports


class BlockFrames:
    """Reads the frames of blocks, and reports what is not known."""

    def __init__(self, blocks: NumberedBlocks, answer: AnswerWriter, reports: Reports) -> None:
        self._blocks = blocks
        self._answer = answer
        self._reports = reports

    def delta(self, value: dict[str, Any]) -> None:
        """Reads a delta of a block."""
        label, delta = self._blocks.label(value.get("index")), value.get("delta")
        if not isinstance(delta, dict):
            fields = {key: field for key, field in value.items() if key not in ("type", "index")}
            self._blocks.misshapen_delta(label, fields, "a delta that is not an object")
            return
        if isinstance(self._blocks.parts.get(label), OpenVendor):
            self._vendor_delta(label, delta)
        else:
            self._add(label, delta)
        self._reports.fields(value, ("type", "index", "delta"), "an unknown field of the event")

    def _add(self, label: Label, delta: dict[str, Any]) -> None:
        kind = delta.get("type") or next((kind for kind, field in DELTAS.items() if field in delta), "")
        field = DELTAS.get(kind, "") if isinstance(kind, str) else ""
        match field, delta.get(field):
            case _, None if field:
                self._blocks.add_unknown(label)
            case "text", str(piece):
                self._blocks.add_content(label, OpenText, piece)
            case "thinking", str(piece):
                self._blocks.add_content(label, OpenReasoning, piece)
            case "partial_json", piece:
                self._blocks.add_arguments(label, text_of(raw_of(piece)))
            case "signature", piece:
                self._blocks.add_state(label, "signature", piece)
            case "citation", citation:
                self._blocks.add_state(label, "citations", citation, OpenText)
            case _:
                self._blocks.unknown_delta(label, {"delta": delta}, "a delta of an unknown type")  # QUIRKS 130
                return
        self._reports.each_field(delta, ("type", field, "estimated_tokens"), "an unknown field of the delta")

    def _vendor_delta(self, label: Label, delta: dict[str, Any]) -> None:
        """Adds a piece to a block of the vendor's, in the field that it names."""
        names = {"partial_json": "input", "citation": "citations"}
        for field, piece in delta.items():
            if field != "type":
                self._blocks.add_state(label, names.get(field, field), [piece] if field == "citation" else piece)

    def start(self, value: dict[str, Any], payload: bytes) -> None:
        """Reads the start of a block."""
        block = value.get("content_block")
        if isinstance(block, dict):
            spelled = spelled_inputs(payload) if block.get("input") else []
            self._begin(value.get("index"), block, spelled[0] if spelled else "")
        else:
            self._reports.each_field(value, ("type", "index"), "a block that is not an object")
        self._reports.fields(value, ("type", "index", "content_block"), "an unknown field of the event")

    def _begin(self, number: Any, block: dict[str, Any], spelled: str) -> None:
        kind = block.get("type") or kind_of_untyped_block(block)
        match kind:
            case "text" | "thinking":
                self._begin_content(number, kind, block)
            case "tool_use":
                self._begin_tool(number, block, spelled)
            case str() if kind in STATE_BLOCKS or kind.endswith(STATE_ENDINGS):
                self._blocks.begin_vendor(number, kind, block, is_state=True)
            case _ if is_empty(block):
                pass  # the pieces will show what it is
            case _:
                self._blocks.begin_vendor(number, "", block, is_state=False)

    def _begin_content(self, number: Any, kind: str, block: dict[str, Any]) -> None:
        start = {"text": block.get(kind), "signature": block.get("signature")}
        content = OpenText if kind == "text" else OpenReasoning
        texts = {field: text for field, text in start.items() if text and isinstance(text, str)}
        self._blocks.begin(number, content(texts))
        citations = block.get("citations")
        for citation in citations if isinstance(citations, list) else ():
            self._blocks.add_state(self._blocks.label(number), "citations", citation)
        known = {"type", *(key for key in (kind, "signature") if isinstance(block.get(key), str))}
        known |= {"citations"} if isinstance(citations, list) else set()
        self._reports.each_field(block, known, f"an unknown field of a {kind} block")

    def _begin_tool(self, number: Any, block: dict[str, Any], spelled: str) -> None:
        input = spelled or (text_of(raw_of(block["input"])) if block.get("input") else "")
        name: Any = block.get("name")
        name = flat_name(block.get(TOOLSET), name) if isinstance(name, str) else name
        part = self._blocks.begin_call(number, block.get("id"), name, input)
        if part is None:
            return  # a repeated start
        for field in ("caller", "toolset_name"):
            if not is_empty(block.get(field)) and block[field] != {"type": "direct"}:
                self._answer.opaque(field, block[field], part.block)
        known = ("type", "id", "name", "input", "caller", "toolset_name")
        self._reports.each_field(block, known, "an unknown field of a tool_use block")

    def whole(self, content: Any, payload: bytes) -> None:
        """Reads blocks that came whole."""
        spelled = spelled_inputs(payload) if content else []
        for number, block in enumerate(content if isinstance(content, list) else [content]):
            if isinstance(block, dict):
                self._begin(number, block, spelled[number] if number < len(spelled) else "")
                self._blocks.stop(number, "whole")
            elif isinstance(block, str):
                self._blocks.add_content(number, OpenText, block)
            else:
                self._reports.each_field({"content": block}, (), "a block that is not an object")
