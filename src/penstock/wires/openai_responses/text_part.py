"""A text of an output item: its streamed pieces, and what its final version adds to them."""

from __future__ import annotations

from io import StringIO
from typing import Any, Literal

from penstock.events import Reasoning, Refusal, Text
from penstock.jsontext.surrogates import join_surrogates
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter

Channel = Literal["text", "refusal", "reasoning", "summary"]
"""The kinds of text of an item; each numbers its parts separately."""

MAX_TEXT = 32 * 1024 * 1024
"""How many characters of a text are remembered; a longer one is not compared with its final version."""

_EVENTS: dict[Channel, type[Text | Refusal | Reasoning]] = {
    "text": Text,
    "refusal": Refusal,
    "reasoning": Reasoning,
    "summary": Reasoning,
}


class TextPart:
    """A text in progress. It remembers what was streamed, to compare it with the final version."""

    __slots__ = (
        "_emit",
        "_event",
        "_hash",
        "_out",
        "_streamed_text",
        "_write",
        "annotations",
        "block",
        "is_final",
        "size",
    )

    def __init__(self, answer: AnswerWriter, block: int, channel: Channel) -> None:
        self._out = answer.out
        self._emit = answer.out.append
        self._event = _EVENTS[channel]
        self._streamed_text = StringIO()
        self._write = self._streamed_text.write
        self.block = block
        self.size = 0
        self.annotations = 0
        self.is_final = False
        self._hash = 0  # hash of the final text, which itself is not kept

    def add(self, piece: str) -> None:
        self.size += len(piece)
        if self.size <= MAX_TEXT:
            self._write(piece)
        self._emit(self._event(self.block, piece))

    def add_all(self, pieces: list[str]) -> None:
        """Adds the pieces of one read, none of which is empty."""
        text = "".join(pieces)
        if self.size + len(text) > MAX_TEXT:
            for piece in pieces:
                self.add(piece)
            return
        self.size += len(text)
        self._write(text)
        event, block = self._event, self.block
        self._out += [event(block, piece) for piece in pieces]

    def begins(self, text: str) -> bool:
        """Whether something was streamed, and this final text begins with it. Costs what the final text costs."""
        if not 0 < self.size <= min(2 * len(text), MAX_TEXT):  # halves of characters count as two
            return False
        return text.startswith(join_surrogates(self._streamed_text.getvalue()))

    def set_final(self, text: str) -> bool:
        """Emits what the final text adds to the streamed one; returns False if the two differ."""
        if self.is_final or not text:
            return True
        self.is_final = True
        if self.size > MAX_TEXT:
            return True
        streamed = join_surrogates(self._streamed_text.getvalue())
        self._streamed_text.close()
        is_same = text.startswith(streamed)
        emitted = text if is_same else streamed
        self.size, self._hash = len(emitted), hash(emitted)
        if len(emitted) > len(streamed):
            self._emit(self._event(self.block, text[len(streamed) :]))
        return is_same

    def complete(self, rest: str) -> None:
        """Ends the text with this rest of it."""
        self.is_final = True
        if rest:
            self.size += len(rest)
            self._emit(self._event(self.block, rest))

    def end_in(self, text: str, start: int) -> int | None:
        """Where the text so far ends in a longer one, if it stands there at this position; None if it does not."""
        if self.size > MAX_TEXT:
            return None
        if self.is_final:
            end = start + self.size
            return end if end <= len(text) and hash(text[start:end]) == self._hash else None
        streamed = join_surrogates(self._streamed_text.getvalue())
        return start + len(streamed) if text.startswith(streamed, start) else None


def channel_and_text(part: Any) -> tuple[Channel, str] | None:
    """The kind and the text of a content part; None if its type is unknown."""
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
