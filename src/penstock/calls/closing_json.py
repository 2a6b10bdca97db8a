"""Detects that the JSON object of growing arguments has closed."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.calls.arguments import checked_object, strict_object
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

    __slots__ = ("_ended_at", "_parsed_size", "_rope", "_scanner", "_tried", "arguments")

    def __init__(self, rope: Rope, *, is_scanned: bool = True) -> None:
        self._rope = rope
        self._scanner = ValueScanner() if is_scanned else None
        self._ended_at: tuple[int, bool | None] = -1, None  # what the parser found last, and at which length
        self._parsed_size = -1
        self._tried = 0  # how many characters the parser has read
        self.arguments: dict[str, Any] | None = None  # as of `_parsed_size`

    def closes(self, size: int) -> bool:
        """Whether the value closes in the text that is new since the last call."""
        scanner = self._scanner
        if scanner is None:
            return False
        known_size, has_ended = self._ended_at
        if known_size != size:
            has_ended = self._has_ended(join_surrogates(self._rope.text()), size)
        if has_ended is None:
            has_ended = scanner.feed(self._rope.read_new()) >= 0
        if has_ended:
            self._scanner = None
            self.parse(size)
        return has_ended

    def is_open_before(self, text: str, size: int) -> bool:
        """Whether the value has not closed before the end of this text, which has the next arguments too.

        False if that is not known.
        """
        self._ended_at = size, self._has_ended(join_surrogates(text), size)
        return self._ended_at[1] is not None

    def _has_ended(self, text: str, size: int) -> bool | None:
        """Whether the text is a whole value or the beginning of one; None if it is neither, or is not to be read."""
        is_first = not self._tried
        self._tried += size
        if self._tried > _MAX_TRIES * size:
            return None
        try:
            if is_first:  # mostly the arguments have no objects in them, so that this is their end
                value = msgspec.json.decode(text)
                self._parsed_size, self.arguments = size, checked_object(text, value)
            else:
                _skip_value(text)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return False if "truncated" in str(error) else None  # if it is not JSON, its brackets may be closed
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
