"""Detects that the JSON object of growing arguments has closed."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.calls.arguments import strict_object
from penstock.calls.rope import Rope
from penstock.jsontext.scan import ValueScanner
from penstock.jsontext.surrogates import join_surrogates

_MAX_TRIES = 8  # how often the parser may read the text, so that the costs stay linear
_skip_value = msgspec.json.Decoder(msgspec.Raw).decode


class ClosingJSON:
    """The JSON of a call's arguments: scanned once for its end, and parsed at most once per length.

    `size` is always the present length of the arguments. The scanner is the reference. The parser of JSON is much
    faster, but has to begin at the start of the text: so it is tried first, unless it has read the text too often.
    """

    __slots__ = ("_parsed_size", "_rope", "_scanner", "_tried", "arguments")

    def __init__(self, rope: Rope, *, is_scanned: bool = True) -> None:
        self._rope = rope
        self._scanner = ValueScanner() if is_scanned else None
        self._parsed_size = -1
        self._tried = 0  # how many characters the parser has read
        self.arguments: dict[str, Any] | None = None  # as of `_parsed_size`

    def closes(self, size: int) -> bool:
        """Whether the value closes in the text that is new since the last call."""
        if self._scanner is None or not self._has_ended(self._scanner, size):
            return False
        self._scanner = None
        self.parse(size)
        return True

    def _has_ended(self, scanner: ValueScanner, size: int) -> bool:
        self._tried += size
        if self._tried <= _MAX_TRIES * size:
            try:
                _skip_value(join_surrogates(self._rope.text()))
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                if "truncated" in str(error):
                    return False  # else it is not JSON, but its brackets may be closed
            else:
                return True
        return scanner.feed(self._rope.read_new()) >= 0

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
