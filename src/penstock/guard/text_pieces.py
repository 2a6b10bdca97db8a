"""Splits the text of a response into pieces: complete pieces are due, the open piece grows in place."""

from __future__ import annotations

import re

from penstock.events import Reasoning, Refusal, Text
from penstock.guard.checks import Check, CheckQueue
from penstock.guard.guard import Guard
from penstock.guard.held import Held, HeldQueue

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


LONGEST_WORD = 100
"""A full piece ends with the next white space, or after this many more characters."""

_SENTENCE_END = re.compile(r"""[.!?…][\"'”’»)\]*_]{0,4}\s|[。！？｡]|\n""")
_TAIL = 5
"""How many characters at the end of the open text can belong to an incomplete end of a sentence."""

_SPACE = re.compile(r"\s")


class Splitter:
    """A stage: text to closed pieces. `close` returns the open rest.

    A sentence is closed by the white space after its full stop, as only that shows that it is not a number or a name.
    """

    def __init__(self, size: int | None, *, has_sentences: bool) -> None:
        self._size = size
        self._has_sentences = has_sentences
        self._open: list[str] = []
        self._is_blank = True  # the open text
        self._tail = ""  # the end of all text so far
        self.length = 0  # length of the open text

    def feed(self, text: str) -> list[str]:
        """Add text; returns the pieces that it closes."""
        pieces: list[str] = []
        start = 0
        for end in [*self._ends(text), len(text) + 1]:
            while (limit := self._find_limit(text, start)) < min(end, len(text) + 1):
                pieces.append(self._close(text[start:limit]))
                start = limit
            if end <= len(text) and not (self._is_blank and text[start:end].isspace()):
                pieces.append(self._close(text[start:end]))
                start = end
        self._grow(text[start:])
        self._tail = (self._tail + text[-_TAIL:])[-_TAIL:]
        return pieces

    def close(self) -> str:
        """End the text; returns the open rest."""
        return self._close("")

    def _ends(self, text: str) -> list[int]:
        """The end positions of sentences in the text."""
        if not self._has_sentences:
            return []
        known = len(self._tail)
        ends = (match.end() - known for match in _SENTENCE_END.finditer(self._tail + text))
        return [end for end in ends if end > 0]

    def _find_limit(self, text: str, start: int) -> int:
        """The place at which a piece from here has its size and ends with a word; after the text if not in it."""
        if self._size is None:
            return len(text) + 1
        full = max(start, start + self._size - self.length)
        last = start + self._size + LONGEST_WORD - self.length
        space = _SPACE.search(text, full, last)
        return space.end() if space else last

    def _grow(self, text: str) -> None:
        if text:
            self._open.append(text)
            self.length += len(text)
            self._is_blank = self._is_blank and text.isspace()

    def _close(self, text: str) -> str:
        piece = "".join([*self._open, text])
        self._open, self.length, self._is_blank = [], 0, True
        return piece
