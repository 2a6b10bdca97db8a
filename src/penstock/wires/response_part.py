"""A text within an output item of a Responses stream: what has been told of it, and what a final statement adds."""

from __future__ import annotations

from typing import Any, Literal

from penstock.events import Reasoning, Refusal, Text
from penstock.wires.reply import Reply
from penstock.wires.text import heal

Channel = Literal["text", "refusal", "reasoning", "summary"]
"""The ways in which an item speaks; each numbers its parts on its own."""

_EVENTS: dict[Channel, type[Text | Refusal | Reasoning]] = {
    "text": Text,
    "refusal": Refusal,
    "reasoning": Reasoning,
    "summary": Reasoning,
}


class Part:
    """A text in the making. Its length and its last piece show whether a final text goes on from there."""

    __slots__ = ("_emit", "_event", "_has_halves", "_last", "annotations", "block", "is_settled", "size")

    def __init__(self, reply: Reply, block: int, channel: Channel) -> None:
        self._emit = reply.out.append
        self._event = _EVENTS[channel]
        self._last = ""
        self._has_halves = False  # of characters: then lengths say nothing (QUIRKS 50)
        self.block = block
        self.size = 0
        self.annotations = 0
        self.is_settled = False

    def add(self, piece: str) -> None:
        self.size += len(piece)
        self._last = piece
        self._emit(self._event(self.block, piece))

    def add_loose(self, piece: str) -> None:
        """A piece that may hold half of a character."""
        self._has_halves = self._has_halves or heal(piece) != piece
        self.add(piece)

    def settle(self, text: str) -> bool:
        """Tell what the final text adds to what was told; whether the two agree."""
        if self.is_settled or not text:
            return True
        self.is_settled = True
        if self._has_halves:
            return True
        if not text.startswith(self._last, self.size - len(self._last)):
            return False
        if len(text) > self.size:
            self.add(text[self.size :])
        return True


def reading(part: Any) -> tuple[Channel, str] | None:
    """How a content part speaks, and what it says; None if we have no word for it."""
    match part:
        case str(text) | {"type": "output_text" | "text" | "input_text", "text": str(text)}:
            return "text", text
        case {"type": "refusal", "refusal": str(text)}:
            return "refusal", text
        case {"type": "reasoning_text", "text": str(text)}:
            return "reasoning", text
        case {"type": "summary_text", "text": str(text)}:
            return "summary", text
    return None


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""
