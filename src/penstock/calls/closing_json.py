"""Detects that the JSON object of growing arguments has closed."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.calls.arguments import are_complex, checked_object, strict_object
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

    __slots__ = ("_ended_at", "_has_end", "_parsed_size", "_rope", "_scanner", "_tried", "arguments")

    def __init__(self, rope: Rope, *, is_scanned: bool = True) -> None:
        self._rope = rope
        self._scanner = ValueScanner() if is_scanned else None
        self._ended_at: tuple[int, bool | None] = -1, None  # what the parser found last, and at which length
        self._has_end = False  # the scanner has found the end, in text after which nothing was looked for
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
            has_ended = self._has_ended(self._rope.text(), size) if self._may_read(size) else None
        if self._scanner is None:
            return False
        if has_ended is None:
            has_ended = self._has_end or scanner.feed(self._rope.read_new()) >= 0
        if has_ended:
            self._scanner = None
            self.parse(size)
            self._rope.read_new()  # what comes now is after the value
        return has_ended

    def stays_open(self, piece: str) -> bool:
        """Whether the value does not close with this further piece; False if that is not known."""
        scanner = self._scanner
        if scanner is None:
            return True
        self._has_end = self._has_end or scanner.feed(self._rope.read_new()) >= 0
        return not self._has_end and scanner.depth > piece.count("}") + piece.count("]")

    def closing_pieces(self, pieces: list[str], size: int) -> list[int]:
        """The numbers of the further pieces with which the value may close, counted from 1; mostly that is the last.

        `size` is the length without them.
        """
        last = len(pieces)
        while last and not may_close(pieces[last - 1]):
            last -= 1
        more = "".join(pieces[:last])
        if more.count("}") < 2 or self._closes_at_most_after(more, size + len(more)):
            return [last] if last else []
        return [number for number, piece in enumerate(pieces[:last], 1) if may_close(piece)]

    def _closes_at_most_after(self, more: str, size: int) -> bool:
        """Whether the value does not close before the end of these further arguments; False if that is not known."""
        has_ended = self._has_ended(self._rope.text() + more, size) if self._may_read(size) else None
        self._ended_at = size, has_ended
        return has_ended is not None

    def _may_read(self, size: int) -> bool:
        """Whether the parser may read this many characters from the start."""
        self._tried += size
        return self._tried <= _MAX_TRIES * size

    def _has_ended(self, text: str, size: int) -> bool | None:
        """Whether the text is a whole value or the beginning of one; None if it is neither."""
        text = join_surrogates(text)
        if are_complex(text):
            self._scanner = None  # the call is invalid, wherever it ends
            return False
        try:
            if self._tried == size:  # the first time; mostly there are no objects in the arguments, and they end here
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
            if self._scanner is None:
                self._rope.read_new()
        return self.arguments

    @property
    def has_closed(self) -> bool:
        """Whether the value closed at some time, or is not scanned."""
        return self._scanner is None

    def is_closed(self, size: int) -> bool:
        """Whether the arguments were found to be one JSON object, and white space; costs what came after the object."""
        if self.arguments is not None and self._parsed_size < size and self._scanner is None:
            new = self._rope.read_new()
            if len(new) == size - self._parsed_size:  # else the arguments are too large, and are not kept
                self._parsed_size, self.arguments = size, None if new.strip(" \t\r\n") else self.arguments
        return self._parsed_size == size and self.arguments is not None


def may_close(piece: str) -> bool:
    """Whether the JSON may close with this piece."""
    return "}" in piece and piece.rstrip().endswith("}")
