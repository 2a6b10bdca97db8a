"""The text of a vendor's own blocks for other vendors: search results, the output of code, a note for an image.

A block goes back whole to the vendor that made it. Another vendor would refuse it, so it gets the text in it: the
fields in which vendors have text, in their order. Encrypted data and reasoning have no such text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.events import Opaque, Text
from penstock.messages import MESSAGE_FIELDS, PART_FIELDS, WHOLE_BLOCK, File, Image, Media, Message, Part, ToolResult
from penstock.wires.shared.encode_request.media import media_note

_TEXT_FIELDS = (
    "title", "url", "source", "context", "content", "text", "code", "stdout", "stderr", "output", "logs", "error_code",
)  # fmt: skip
_VALUE_FIELDS = ("response",)
"""Fields that hold the value of a tool as JSON."""
_SKIPPED_FIELDS = ("citations", "annotations", "action", "input", "args", "arguments", "caller", "tools")
"""Fields that hold only calls and settings, or text that other fields have too."""
_IMAGE_FIELDS = ("image", "image_url")
_WITHOUT_TEXT = (
    PART_FIELDS, MESSAGE_FIELDS, WHOLE_BLOCK, "reasoning", "reasoning_details", "reasoning_fields", "reasoningContent",
    "container", "thinking_blocks", "reasoning_opaque", "cot_id",
)  # fmt: skip
"""Kinds of vendor state that are not a block with content."""
_IDENTITY = ("id", "status", "type", "role", "phase", "annotations", "logprobs", "index")
"""Fields of a part that mean nothing to another provider."""


def parts_for(message: Message, wire: str) -> Iterator[Part]:
    """The parts of a message for a wire: its own blocks whole, the text of other vendors' blocks."""
    states = [part for part in message.parts if isinstance(part, Opaque)]
    blocks = [state for state in states if state.kind == WHOLE_BLOCK and isinstance(state.data, dict)]
    whole = {state.block for state in blocks if state.wire == wire}
    blocks_of_parts = {part.block for part in message.parts if not isinstance(part, Opaque | Media | ToolResult)}
    for part in message.parts:
        match part:
            case Opaque() if part.wire != wire:
                yield from [] if part.block in blocks_of_parts else _as_text(part)
            case Text() if part.block in whole:
                pass
            case Image() | File() if WHOLE_BLOCK in part.state_of(wire):
                pass
            case _:
                yield part


def own_parts(messages: Iterable[Message], wire: str) -> list[str]:
    """The names of what other wires leave out of messages of this one: fields of parts, and blocks without text."""
    names: dict[str, None] = {}
    for message in messages:
        blocks = {part.block for part in message.parts if not isinstance(part, Opaque | Media | ToolResult)}
        for part in message.parts:
            for state in part.state if isinstance(part, Media | ToolResult) else (part,):
                if isinstance(state, Opaque) and state.wire == wire:
                    names |= dict.fromkeys(_names_in(state, is_alone=state is part and state.block not in blocks))
    return list(names)


def _names_in(state: Opaque, *, is_alone: bool) -> Iterable[str]:
    if state.kind in (PART_FIELDS, MESSAGE_FIELDS):
        return [name for name in state.data if name not in _IDENTITY] if isinstance(state.data, dict) else ()
    return (state.kind,) if is_alone and state.kind not in _WITHOUT_TEXT and not content_of(state) else ()


def _as_text(state: Opaque) -> list[Text]:
    """A text in place of a block of another vendor; none if the block has no text."""
    text = content_of(state)
    return [Text(state.block, f"\n({state.kind}: {text})\n")] if text else []


def content_of(state: Opaque) -> str:
    """The content of a block as text; empty if it is only state, which nobody but its vendor reads."""
    return "" if state.kind in _WITHOUT_TEXT else block_text(state.data)


def block_text(block: Any) -> str:
    """The text of a block: one line per field that has text."""
    return "\n".join(_lines(block, is_text=False))


def _lines(value: Any, *, is_text: bool) -> Iterator[str]:
    match value:
        case str(url) if url.startswith("data:") and is_text:
            yield _note(url.removeprefix("data:"))
        case str(text):
            yield from [text] if is_text and text.strip() else []
        case {"type": "text", "data": str(text)}:  # a source that is text
            yield text
        case {"type": "image_generation_call", "result": str()}:
            yield _note("image/png")
        case {"mimeType": str(kind)} | {"media_type": str(kind)}:
            yield _note(kind)
        case Mapping():
            for key, inner in value.items():
                yield from _field(key, inner)
        case [*items]:
            for item in items:
                yield from _lines(item, is_text=is_text)
        case _:
            pass


def _field(key: str, value: Any) -> Iterator[str]:
    if key in _VALUE_FIELDS:
        yield json.dumps(value, ensure_ascii=False)
    elif key in _IMAGE_FIELDS:
        yield _note("image/png")
    elif key not in _SKIPPED_FIELDS:
        yield from _lines(value, is_text=key in _TEXT_FIELDS)


def _note(kind: str) -> str:
    media: Media = (Image if kind.startswith("image/") else File)("", kind)
    return media_note(media).text
