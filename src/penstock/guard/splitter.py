"""Splits streamed text into sentences or windows, independent of how it arrives."""

from __future__ import annotations

import re

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
