"""Recordings of the arriving text: a call as the model wrote it, or text that may have to be read again."""

from __future__ import annotations

import sys

from penstock.dialects.reading.held_text import MAX_HELD

MAX_MARKUP = MAX_HELD
"""How many characters of markup are kept. A longer call has no markup; its arguments are compared anyway."""


class Recording:
    """Keeps the arriving text from a mark on, unless it becomes longer than the limit."""

    __slots__ = ("_limit", "_mark", "_pieces", "_position", "_text", "size")

    def __init__(self, limit: int = sys.maxsize) -> None:
        self._limit = limit
        self.begin("", "", 0)

    def begin(self, mark: str, text: str, position: int) -> None:
        """Starts after a mark; `text` is what has arrived, and `position` the position after the mark."""
        self._mark = mark
        self._text = text
        self._position = position
        self._pieces: list[str] = []
        self.size = 0  # characters that arrived later

    def add(self, piece: str) -> None:
        """Adds text that has arrived."""
        self.size += len(piece)
        self._pieces.append(piece)
        if self.size > self._limit:
            self._pieces.clear()

    @property
    def last(self) -> str:
        """The text that arrived last."""
        return self._pieces[-1] if self._pieces else self._text[self._position :]

    def text(self, unread: int) -> str:
        """Returns the text that was read, without the mark; `unread` is how much of the arrived text is not read."""
        text, position = self._text, self._position
        if self._pieces:
            text, position = text[position:] + "".join(self._pieces), 0
        return text[position : len(text) - unread]


class Markup(Recording):
    """The markup of a call. Calls that are read together share it."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        super().__init__(MAX_MARKUP)
        self._last = ""

    def take(self, unread: int) -> str:
        """Returns the markup, "" if it is too long."""
        text = "" if self.size > MAX_MARKUP else self.text(unread)
        if self.size > MAX_MARKUP or len(text) > MAX_MARKUP:
            return ""
        if text:
            self._last = self._mark + text
        return self._last
