"""Surrogate pairs: some servers split their text between the two surrogates of one character (QUIRKS 50)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def join_surrogates(text: str) -> str:
    """Joins surrogate pairs into characters and replaces lone surrogates by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def join_all_surrogates(value: Any) -> Any:
    """Applies `join_surrogates` to every string of a JSON value."""
    # `map`, because up to Python 3.11 a comprehension is another level of recursion.
    match value:
        case str():
            return join_surrogates(value)
        case Mapping():
            return dict(zip(map(join_all_surrogates, value), map(join_all_surrogates, value.values()), strict=True))
        case list() | tuple():
            return [*map(join_all_surrogates, value)]
        case _:
            return value


class SurrogateJoiner:
    """Joins surrogate pairs across the pieces of a text: a high surrogate at the end of a piece waits for the next."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending = ""  # the high surrogate that waits

    def feed(self, text: str) -> str:
        """Returns the text with its pairs joined; a high surrogate at its end is kept for the next piece."""
        if self.pending:
            text, self.pending = self.pending + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self.pending = text[:-1], text[-1]
        return join_surrogates(text)

    def close(self) -> str:
        """Returns U+FFFD if a surrogate is still waiting, else the empty string."""
        rest = "\ufffd" if self.pending else ""
        self.pending = ""
        return rest
