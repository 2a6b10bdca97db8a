"""A text within an output item of a Responses stream: what has been told of it, and what a final statement adds."""

from __future__ import annotations

from io import StringIO
from typing import Any, Literal

from penstock.events import Reasoning, Refusal, Text
from penstock.jsontext.surrogates import join_surrogates
from penstock.wires.shared.answer_writer import AnswerWriter

Channel = Literal["text", "refusal", "reasoning", "summary"]
"""The ways in which an item speaks; each numbers its parts on its own."""

MAX_TEXT = 32 * 1024 * 1024
"""How many characters of a text are remembered; a longer one is not compared with its final statement."""

_EVENTS: dict[Channel, type[Text | Refusal | Reasoning]] = {
    "text": Text,
    "refusal": Refusal,
    "reasoning": Reasoning,
    "summary": Reasoning,
}


class Part:
    """A text in the making, and what was told of it, for a final statement to be compared with."""

    __slots__ = ("_emit", "_event", "_told", "_write", "annotations", "block", "is_settled", "size")

    def __init__(self, answer: AnswerWriter, block: int, channel: Channel) -> None:
        self._emit = answer.out.append
        self._event = _EVENTS[channel]
        self._told = StringIO()
        self._write = self._told.write
        self.block = block
        self.size = 0
        self.annotations = 0
        self.is_settled = False

    def add(self, piece: str) -> None:
        self.size += len(piece)
        if self.size <= MAX_TEXT:
            self._write(piece)
        self._emit(self._event(self.block, piece))

    def add_all(self, pieces: list[str]) -> None:
        for piece in pieces:
            self.add(piece)

    def settle(self, text: str) -> bool:
        """Tell what the final text adds to what was told; whether the two agree."""
        if self.is_settled or not text:
            return True
        self.is_settled = True
        if self.size > MAX_TEXT:
            return True
        told = join_surrogates(self._told.getvalue())
        self._told.close()
        if not text.startswith(told):
            return False
        if len(text) > len(told):
            self.size = len(text)
            self._emit(self._event(self.block, text[len(told) :]))
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
