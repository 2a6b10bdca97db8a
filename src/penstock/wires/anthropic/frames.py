"""The narrow shapes of Anthropic's frames: pieces of blocks, and inputs as they were spelled."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field

from penstock.wires.shared.decode_response.indexes import Index
from penstock.wires.shared.decode_response.loose import text_of
from penstock.wires.shared.decode_response.loose_frames import UNREADABLE

DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json",
           "signature_delta": "signature", "citations_delta": "citation"}  # fmt: skip
"""The types of deltas, with the field that holds the piece."""


class TextDelta(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="text_delta"):
    piece: str = field(name="text")


class InputDelta(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="input_json_delta"):
    piece: str = field(name="partial_json")


class ThinkingDelta(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="thinking_delta"):
    piece: str = field(name="thinking")
    estimated_tokens: int | None = None


class BlockDelta(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="content_block_delta"):
    """The shape of nearly all frames."""

    index: Index
    delta: TextDelta | InputDelta | ThinkingDelta


class Direct(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="direct"):
    """The usual caller of a tool: the model itself."""


class NoInput(Struct, gc=False, forbid_unknown_fields=True):
    """The input of a call's start, which is mostly empty."""


class ToolStart(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: NoInput
    caller: Direct | None = None


class BlockStart(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="content_block_start"):
    """The start of a call whose input follows in pieces."""

    index: Index
    content_block: ToolStart
    delta: ClassVar[None] = None


class BlockStop(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="content_block_stop"):
    index: Index
    delta: ClassVar[None] = None


BlockFrame = BlockDelta | BlockStart | BlockStop
"""The narrow shapes; only a `BlockDelta` has a delta."""


class Spelled(Struct):
    """A block, of which only the spelling of its input is read."""

    input: msgspec.Raw = msgspec.Raw()


class SpelledMessage(Struct):
    content: list[Spelled] = []


class SpelledFrame(Struct):
    """A frame with blocks: the start of a block, the start of a message, or a whole message."""

    content_block: Spelled | None = None
    message: SpelledMessage | None = None
    content: list[Spelled] = []


decode_block_frame = msgspec.json.Decoder(BlockFrame).decode
_decode_spelled = msgspec.json.Decoder(SpelledFrame).decode


def spelled_inputs(payload: bytes) -> list[str]:
    """The inputs of the frame's blocks as they were spelled; none if the frame has another shape."""
    try:
        frame = _decode_spelled(payload)
    except UNREADABLE:
        return []
    blocks = frame.content or (frame.message.content if frame.message else []) or [frame.content_block or Spelled()]
    return [text_of(block.input) for block in blocks]


def kind_of_untyped(value: dict[str, Any]) -> str:
    """The type of a frame without one, if its delta shows it; the narrow structs read such a frame too."""
    match value.get("delta"):
        case {"type": str(kind)} if kind in DELTAS:
            return "content_block_delta"
        case _:
            return ""


def kind_of_untyped_block(block: dict[str, Any]) -> str:
    """The type of a block without one, if its fields show it; the narrow structs read such a call too."""
    if "name" in block and "input" in block and block.keys() <= {"id", "name", "input", "caller", "type"}:
        return "tool_use"
    return next((kind for kind in ("thinking", "text") if kind in block), "")
