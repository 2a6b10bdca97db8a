"""Splits the text of a response into pieces: complete pieces are due, the open piece grows in place."""

from __future__ import annotations

from penstock.events import Reasoning, Refusal, Text
from penstock.guard.checks import Check, CheckQueue
from penstock.guard.guard import Guard
from penstock.guard.held import Held, HeldQueue
from penstock.guard.splitter import Splitter

TextChunk = Text | Reasoning | Refusal


class _Block:
    """The text block that a choice is writing, and the place of its open piece."""

    def __init__(self, chunk: TextChunk, splitter: Splitter) -> None:
        self.chunk = chunk
        self.splitter = splitter
        self.held: Held | None = None

    def is_continued_by(self, chunk: TextChunk) -> bool:
        return type(chunk) is type(self.chunk) and chunk.block == self.chunk.block


class TextPieces:
    """Cuts the text of each choice into pieces."""

    def __init__(self, guard: Guard, queue: HeldQueue, checks: CheckQueue) -> None:
        self._guard = guard
        self._queue = queue
        self._checks = checks
        self._blocks: dict[int, _Block] = {}  # by choice

    def add(self, chunk: TextChunk) -> None:
        block = self._blocks.get(chunk.choice)
        if block is None or not block.is_continued_by(chunk):
            self.close(chunk.choice)
            block = self._blocks[chunk.choice] = _Block(chunk, self._splitter())
        for text in block.splitter.feed(chunk.text):
            self._end(block, text)
        if block.splitter.length:
            self._queue.grow(self._place(block), block.splitter.length)

    def close(self, choice: int) -> None:
        """Complete the open piece of a choice, because something other than text follows."""
        block = self._blocks.pop(choice, None)
        if block is not None and (text := block.splitter.close()):
            self._end(block, text)

    def close_all(self) -> None:
        """Complete the open pieces of all choices."""
        for choice in list(self._blocks):
            self.close(choice)

    def restart(self) -> None:
        """Forget the open pieces."""
        self._blocks.clear()

    def _splitter(self) -> Splitter:
        size = None if self._guard.by == "answer" else self._guard.size
        return Splitter(size, has_sentences=self._guard.by == "sentence")

    def _place(self, block: _Block) -> Held:
        """The place of the open piece in the queue."""
        if block.held is None:
            block.held = self._queue.add(block.chunk, Check(block.chunk.type), size=0)
        return block.held

    def _end(self, block: _Block, text: str) -> None:
        held, block.held = self._place(block), None
        assert held.check is not None
        self._queue.grow(held, len(text))
        self._checks.add_text(held.check, text)
