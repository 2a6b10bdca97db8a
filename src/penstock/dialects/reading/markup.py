"""The markup of a call: the text of the call as the model wrote it, to compare it with the conversation."""

from __future__ import annotations

from penstock.dialects.reading.held_text import MAX_HELD

MAX_MARKUP = MAX_HELD
"""How many characters of markup are kept. A longer call has no markup; its arguments are compared anyway."""


class Markup:
    """Keeps the arriving text from the opening mark of a call on."""

    __slots__ = ("_at", "_last", "_mark", "_pieces", "_size", "_text")

    def __init__(self) -> None:
        self._last = ""
        self.begin("", "", 0)

    def begin(self, mark: str, text: str, at: int) -> None:
        """Starts after a mark; `text` is what has arrived, and `at` the position after the mark."""
        self._mark = mark
        self._text = text
        self._at = at
        self._pieces: list[str] = []
        self._size = 0

    def add(self, piece: str) -> None:
        """Adds text that has arrived."""
        self._size += len(piece)
        if self._size <= MAX_MARKUP:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def take(self, unread: int) -> str:
        """Returns the markup; `unread` is how much of the arrived text is not read yet. Calls may share it."""
        text, at = self._text, self._at
        if self._size:
            text, at = text[at:] + "".join(self._pieces), 0
        end = len(text) - unread
        if self._size > MAX_MARKUP or end - at > MAX_MARKUP:
            return ""
        if end > at:
            self._last = self._mark + text[at:end]
        return self._last
