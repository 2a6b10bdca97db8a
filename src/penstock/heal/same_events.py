"""Whether two lists of events say the same, however they are cut and numbered."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from penstock.events import Reasoning, Refusal, StreamChunk, Text, ToolCallDelta

DELTAS = (Text, Reasoning, Refusal)


def is_same_piece(plain: list[StreamChunk], healed: list[StreamChunk]) -> bool:
    """Whether both are one piece of the same text or arguments."""
    if len(plain) != 1 or len(healed) != 1:
        return False
    first: Any = plain[0]
    second: Any = healed[0]
    kind = type(first)
    if kind is not type(second):
        return False
    if kind is ToolCallDelta:
        return bool(first.piece == second.piece)
    return kind in DELTAS and bool(first.text == second.text)


def is_same(plain: list[StreamChunk], healed: list[StreamChunk]) -> bool:
    """Whether both say the same, however it is cut and numbered."""
    return len(plain) + len(healed) == 0 or (
        text_size(plain) == text_size(healed) and _joined(plain) == _joined(healed)
    )


def text_size(events: list[StreamChunk]) -> int:
    """The characters of the texts and arguments in events."""
    size = 0
    for event in events:
        if isinstance(event, DELTAS):
            size += len(event.text)
        elif isinstance(event, ToolCallDelta):
            size += len(event.piece)
    return size


def _joined(events: list[StreamChunk]) -> list[Any]:
    """Events without the numbers of their blocks, with adjacent pieces joined."""
    parts: list[Any] = []
    key: tuple[str, int] | None = None  # the kind and block of the pieces at the end
    kind: tuple[str, int]
    pieces: list[str] = []
    for event in events:
        match event:
            case Text() | Reasoning() | Refusal():
                kind, piece = (event.type, event.choice), event.text
            case ToolCallDelta():
                kind, piece = (event.type, event.choice), event.piece
            case _:
                parts.append(_without_block(event))
                key = None
                continue
        if kind != key:
            key, pieces = kind, []
            parts.append((kind, pieces))
        pieces.append(piece)
    return [(one[0], "".join(one[1])) if isinstance(one, tuple) else one for one in parts]


def _without_block(event: Any) -> Any:
    return replace(event, block=0) if hasattr(event, "block") else event
