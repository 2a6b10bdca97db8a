"""What was found, told as events: text in the voice of the moment, and calls, each in a block of its own."""

from __future__ import annotations

from penstock.calls.numbering import Numbering
from penstock.dialects.reading.code_spans import Line
from penstock.dialects.reading.schema import Schema
from penstock.dialects.reading.text_call import TextCall
from penstock.events import Reasoning, StreamChunk, Text


class Teller:
    """Puts what was found into `out`. `voice` says as what text comes out: as answer or as reasoning."""

    __slots__ = ("_block", "_blocks", "_kind", "has_answered", "line", "out", "voice")

    def __init__(self, blocks: Numbering) -> None:
        self.out: list[StreamChunk] = []
        self.voice: type[Text | Reasoning] = Text
        self.line = Line()  # of what was told
        self.has_answered = False  # whether anything of the answer has been told, white space aside
        self._blocks = blocks
        self._block = -1
        self._kind: type[Text | Reasoning] | None = None

    def take_out(self) -> list[StreamChunk]:
        """What was found since the last time."""
        events = self.out.copy()
        self.out.clear()
        return events

    def tell(self, text: str) -> None:
        """Text of the current voice: a piece of the answer, or of the reasoning."""
        if text:
            if self._kind is not self.voice:
                self._kind, self._block = self.voice, self._blocks.new_block()
                self.line.restart()
            self.out.append(self.voice(self._block, text))
            self.line.add(text)
            if not self.has_answered:
                self.has_answered = self.voice is Text and not text.isspace()

    def new_call(self, name: str, id: str, origin: str, schema: Schema) -> TextCall:
        """A call, which is announced at once; text after it is another block."""
        self._kind, self.has_answered = None, True
        return TextCall(self.out, self._blocks.new_block(), self._blocks.unique_id(id), name, origin, schema)
