"""What a vendor's own blocks tell the others: what it found, what its code printed, that there was a picture.

A block goes back whole to the vendor that made it. Elsewhere it would be lost with all that was read from it, so its
words are told there: the fields in which vendors have words, in their order. What is encrypted, or a thought, or of use
to its vendor only, has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.events import Opaque, Text
from penstock.messages import MESSAGE_FIELDS, PART_FIELDS, WHOLE_BLOCK, File, Image, Media, Message, Part, ToolResult
from penstock.wires.shared.media import media_note

_WORDS = (
    "title", "url", "source", "context", "content", "text", "code", "stdout", "stderr", "output", "logs", "error_code",
)  # fmt: skip
_VALUES = ("response",)
"""Fields that hold a tool's value, whatever it is."""
_SILENT = ("citations", "annotations", "action", "input", "args", "arguments", "caller", "tools")
"""Fields in which there are only calls, settings, or what is told elsewhere too."""
_PICTURES = ("image", "image_url")
_WITHOUT_TEXT = (
    PART_FIELDS, MESSAGE_FIELDS, WHOLE_BLOCK, "reasoning", "reasoning_details", "reasoning_fields", "reasoningContent",
    "container",
)  # fmt: skip
"""Kinds of state that are no block which shows something."""


def parts_for(message: Message, wire: str) -> Iterator[Part]:
    """The parts of a message as this wire is told them: its own blocks whole, those of others in words."""
    states = [part for part in message.parts if isinstance(part, Opaque)]
    blocks = [state for state in states if state.kind == WHOLE_BLOCK and isinstance(state.data, dict)]
    whole = {state.block for state in blocks if state.wire == wire}
    spoken = {part.block for part in message.parts if not isinstance(part, Opaque | Media | ToolResult)}
    for part in message.parts:
        match part:
            case Opaque() if part.wire != wire:
                yield from [] if part.block in spoken else _told(part)
            case Text() if part.block in whole:
                pass
            case Image() | File() if WHOLE_BLOCK in part.state_of(wire):
                pass
            case _:
                yield part


def _told(state: Opaque) -> list[Text]:
    """The text that stands for a block of another vendor; none if it has no words."""
    if state.kind in _WITHOUT_TEXT:
        return []
    words = block_text(state.data)
    return [Text(state.block, f"\n({state.kind}: {words})\n")] if words else []


def block_text(block: Any) -> str:
    """What a block says, a line for each of its fields that have words."""
    return "\n".join(_words(block, is_worded=False))


def _words(value: Any, *, is_worded: bool) -> Iterator[str]:
    match value:
        case str(url) if url.startswith("data:") and is_worded:
            yield _note(url.removeprefix("data:"))
        case str(text):
            yield from [text] if is_worded and text.strip() else []
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
                yield from _words(item, is_worded=is_worded)
        case _:
            pass


def _field(key: str, value: Any) -> Iterator[str]:
    if key in _VALUES:
        yield json.dumps(value, ensure_ascii=False)
    elif key in _PICTURES:
        yield _note("image/png")
    elif key not in _SILENT:
        yield from _words(value, is_worded=key in _WORDS)


def _note(kind: str) -> str:
    media: Media = (Image if kind.startswith("image/") else File)("", kind)
    return media_note(media).text
