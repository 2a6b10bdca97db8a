"""Detects that the JSON object of growing arguments has closed."""

from __future__ import annotations

from typing import Any

from penstock.calls.arguments import strict_object
from penstock.calls.rope import Rope
from penstock.jsontext.scan import ValueScanner
from penstock.jsontext.surrogates import join_surrogates


class ClosingJSON:
    """The JSON of a call's arguments: scanned once for its end, and parsed at most once per length.

    `size` is always the present length of the arguments.
    """

    __slots__ = ("_parsed_size", "_rope", "_scanner", "arguments")

    def __init__(self, rope: Rope, *, is_scanned: bool = True) -> None:
        self._rope = rope
        self._scanner = ValueScanner() if is_scanned else None
        self._parsed_size = -1
        self.arguments: dict[str, Any] | None = None  # as of `_parsed_size`

    def closes(self, size: int) -> bool:
        """Whether the value closes in the text that is new since the last call."""
        if self._scanner is None or self._scanner.feed(self._rope.read_new()) < 0:
            return False
        self._scanner = None
        self.parse(size)
        return True

    def parse(self, size: int) -> dict[str, Any] | None:
        """Returns the arguments if they are one JSON object."""
        if self._parsed_size != size:
            self._parsed_size, self.arguments = size, strict_object(join_surrogates(self._rope.text()))
        return self.arguments

    @property
    def has_closed(self) -> bool:
        """Whether the value closed at some time, or is not scanned."""
        return self._scanner is None

    def is_closed(self, size: int) -> bool:
        """Whether the arguments were found to be one JSON object; costs nothing."""
        return self._parsed_size == size and self.arguments is not None
