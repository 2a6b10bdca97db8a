"""Characters that arrive in halves: some servers cut their text between the two surrogates of a pair (QUIRKS 50)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def heal(text: str) -> str:
    """The text with surrogate pairs joined and lone halves replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def healed(value: Any) -> Any:
    """A value of JSON with all its text healed. (To Python 3.11 a comprehension is a level more, a map is none.)"""
    match value:
        case str():
            return heal(value)
        case Mapping():
            return dict(zip(map(healed, value), map(healed, value.values()), strict=True))
        case list() | tuple():
            return [*map(healed, value)]
        case _:
            return value


class Halves:
    """Joins pieces at the halves of characters: a first half at the end of one waits for the next."""

    __slots__ = ("first",)

    def __init__(self) -> None:
        self.first = ""  # the half that waits

    def join(self, text: str) -> str:
        """The text with every character whole; the half at its end is kept for the next piece."""
        if self.first:
            text, self.first = self.first + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self.first = text[:-1], text[-1]
        return heal(text)

    def rest(self) -> str:
        """What is told of a half that stayed alone."""
        rest = "\ufffd" if self.first else ""
        self.first = ""
        return rest
