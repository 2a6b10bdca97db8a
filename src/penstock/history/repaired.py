"""A history that was mended, and what is still known of the one that was given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from penstock.history.read import Reading, read
from penstock.messages import Message


class Repaired(list[Message]):
    """A history that was mended; `changes` says what was done, where, in words.

    `wire` is the shape in which it was given, as far as it was one, and `is_continued` says that it goes on from a
    history that the provider keeps: by both it is judged again.
    """

    def __init__(
        self, messages: Iterable[Message], changes: list[str], *, wire: str = "", is_continued: bool = False
    ) -> None:
        super().__init__(messages)
        self.changes = changes
        self.wire = wire
        self.is_continued = is_continued


def reading_of(messages: Any) -> Reading:
    """What was given, read; of what was mended with what is known of it."""
    reading = read(messages)
    if isinstance(messages, Repaired):
        return replace(reading, wire=messages.wire, is_continued=messages.is_continued)
    return reading
