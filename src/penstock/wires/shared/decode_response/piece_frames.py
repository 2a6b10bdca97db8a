"""Reads frames of pieces without parsing them: most servers send frames that differ only in their piece of text.

A frame that is known to be a piece of the open text, or of the arguments of one call, and nothing else, becomes a
template: the bytes before its piece, and those after it. A later frame with the same bytes around a string is a piece
of the same text or call. The decoder of the wire is the reference: it reads all other frames, and any that is not such
a piece ends the template.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from penstock.events import Text, ToolCallDelta
from penstock.framing import MAX_FRAME_BYTES

ATTEMPTS = 8
"""After this many templates in a row that fitted no frame, no more are made: the frames differ elsewhere too."""

Piece = TypeVar("Piece", Text, ToolCallDelta)

ReadText = Callable[[bytes], Text | None]
"""Returns the piece of text in a read; None if the read has to be parsed."""
ReadTexts = Callable[[bytes], list[Text] | None]
"""Returns the pieces of text in a read of several frames; None if the read has to be parsed."""
ReadPiece = Callable[[bytes], ToolCallDelta | None]
"""Returns the piece of a call's arguments in a read, which then counts as fed; None if the read has to be parsed."""

_plain = re.compile(rb'[^\x00-\x1f"\\]+').fullmatch
_ESCAPE = rb'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})'  # but not half of a character
_STRING = re.compile(rb'(?:[^\x00-\x1f"\\]++|%b)+' % _ESCAPE)
_escaped = _STRING.fullmatch
_NOTHING = slice(0)
_unquote = msgspec.json.Decoder(str).decode


class PieceFrames(Generic[Piece]):
    """The template of one response, once there is one."""

    __slots__ = (
        "_after",
        "_between",
        "_block",
        "_choice",
        "_has_fitted",
        "_key",
        "_kind",
        "_piece",
        "_wasted",
        "before",
    )

    def __init__(self, key: bytes, kind: type[Piece]) -> None:
        self._key = key  # the quoted name of the field with the piece
        self._kind: Callable[[int, str, int], Piece] = kind
        self._wasted = 0  # templates that fitted no frame
        self._has_fitted = False
        self._block, self._choice = -1, 0  # of the last piece
        self.clear()

    def clear(self) -> None:
        """Forget the template: something else has come."""
        self.before = self._between = self._after = b""  # without a template
        self._piece = _NOTHING

    def read(self, data: bytes) -> Piece | None:
        """The piece in a read, if the read is one frame that fits the template."""
        before = self.before
        if before and data.startswith(before) and data.endswith(self._after) and len(data) < MAX_FRAME_BYTES:
            piece = data[self._piece]
            try:
                if _plain(piece):
                    text = piece.decode()
                elif _escaped(piece):
                    text = _unquote(b'"%b"' % piece)
                else:
                    return None
            except (UnicodeDecodeError, msgspec.DecodeError):
                return None
            self._has_fitted, kind = True, self._kind
            return kind(self._block, text, self._choice)
        return None

    def read_several(self, data: bytes) -> list[Piece] | None:
        """The pieces in a read, if the read is several frames that fit the template.

        A server that is faster than its reader sends such reads, and one that is busy receives them.
        """
        if not self.before or self._between not in data or not self._fits(data) or len(data) >= MAX_FRAME_BYTES:
            return None
        pieces = data[self._piece].split(self._between)
        if not all(map(_escaped, pieces)):
            return None
        try:
            texts = [_unquote(b'"%b"' % piece) for piece in pieces]
        except (UnicodeDecodeError, msgspec.DecodeError):
            return None
        self._has_fitted = True
        return [self._kind(self._block, text, self._choice) for text in texts]

    def learn(self, data: bytes, event: Piece, text: str) -> None:
        """Make a template from a read that is one frame with only this piece of text."""
        may_try = self._wasted < ATTEMPTS
        if self.before:
            is_same = event.block == self._block and event.choice == self._choice
            if is_same and (not may_try or self._fits(data)):
                return
            self.clear()
        if not may_try or data.count(self._key) != 1:
            return  # or the field is not the only one of its name
        for colon in (b':"', b': "'):
            before, mark, rest = data.partition(self._key + colon)
            piece = _STRING.match(rest) if mark else None
            if piece is not None and self._is_template(before, piece[0], after := rest[piece.end() :], text):
                self._wasted = 0 if self._has_fitted else self._wasted + 1
                self._has_fitted = False
                self.before, self._after = before + mark, after
                self._between = after + self.before
                self._piece = slice(len(self.before), -len(after))
                self._block, self._choice = event.block, event.choice

    def _is_template(self, before: bytes, piece: bytes, after: bytes, text: str) -> bool:
        """Whether the bytes around a piece are a template; nothing else in them may be escaped, such as another key."""
        if b"\\" in before or b"\\" in after or not after.startswith(b'"'):
            return False
        try:
            return _unquote(b'"%b"' % piece) == text
        except (UnicodeDecodeError, msgspec.DecodeError):
            return False

    def _fits(self, data: bytes) -> bool:
        """Whether a read begins and ends as the template does."""
        return bool(self.before) and data.startswith(self.before) and data.endswith(self._after)
