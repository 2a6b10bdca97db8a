"""Reads frames of text without parsing them: most servers send frames that differ only in their piece of text.

A frame that is known to be a piece of the open text, and nothing else, becomes a template: the bytes before its text,
and those after it. A later frame with the same bytes around a string without escapes is a piece of the same text. The
decoder of the wire is the reference: it reads all other frames, and any that is not plain text ends the template.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.events import StreamChunk, Text
from penstock.framing import MAX_FRAME_BYTES

ATTEMPTS = 8
"""After this many templates in a row that fitted no frame, no more are made: the frames differ elsewhere too."""

ReadText = Callable[[bytes], Text | None]
"""Returns the piece of text in a read; None if the read has to be parsed."""
ReadTexts = Callable[[bytes], list[Text] | None]
"""Returns the pieces of text in a read of several frames; None if the read has to be parsed."""

_plain = re.compile(rb'[^\x00-\x1f"\\]+').fullmatch


class TextFrames:
    """The template of one response, once there is one."""

    __slots__ = ("_after", "_before", "_between", "_has_fitted", "_key", "_place", "_text", "_wasted")

    def __init__(self, key: bytes) -> None:
        self._key = key  # the quoted name of the field with the text
        self._wasted = 0  # templates that fitted no frame
        self._has_fitted = False
        self.clear()

    def clear(self) -> None:
        """Forget the template: something else has come."""
        self._before = self._between = self._after = b""
        self._text = slice(0)

    @property
    def is_ready(self) -> bool:
        """Whether there is a template."""
        return bool(self._before)

    def read(self, data: bytes) -> Text | None:
        """The piece of text in a read, if the read is one frame that fits the template."""
        before = self._before
        if before and data.startswith(before) and data.endswith(self._after) and len(data) < MAX_FRAME_BYTES:
            text = data[self._text]
            if _plain(text):
                self._has_fitted = True
                try:
                    return Text(self._place[0], text.decode(), self._place[1])
                except UnicodeDecodeError:
                    return None
        return None

    def read_several(self, data: bytes) -> list[Text] | None:
        """The pieces of text in a read, if the read is several frames that fit the template.

        A server that is faster than its reader sends such reads, and one that is busy receives them.
        """
        if not self._before or self._between not in data or not self._fits(data) or len(data) >= MAX_FRAME_BYTES:
            return None
        pieces = data[self._text].split(self._between)
        if not all(map(_plain, pieces)):
            return None
        self._has_fitted = True
        try:
            return [Text(self._place[0], piece.decode(), self._place[1]) for piece in pieces]
        except UnicodeDecodeError:
            return None

    def keep(self, data: bytes, chunks: list[StreamChunk]) -> None:
        """Keep the template after several frames that fit it, though their texts are escaped; else forget it.

        An escape may be half of a character, which the decoder holds back: such frames end the template.
        """
        fits = self._fits(data) and b"\\u" not in data and data.count(self._between) + 1 == len(chunks)
        if not fits or any(type(chunk) is not Text or (chunk.block, chunk.choice) != self._place for chunk in chunks):
            self.clear()

    def learn(self, data: bytes, text: Text | None) -> None:
        """Make a template from a read that is one frame with only this text; None for any other read."""
        if text is None:
            self.clear()
            return
        fits = bool(self._before) and data.startswith(self._before) and data.endswith(self._after)
        if fits or self._wasted == ATTEMPTS:
            return
        self._wasted = 0 if self._has_fitted else self._wasted + 1
        self._has_fitted = False
        self.clear()
        if b"\\" in data or data.count(self._key) != 1:
            return  # the text is escaped, or the field is not the only one of its name
        value = text.text.encode()
        for colon in (b':"', b': "'):
            before, match, after = data.partition(b'%s%s%s"' % (self._key, colon, value))
            if match:
                self._before, self._after = before + self._key + colon, b'"' + after
                self._between = self._after + self._before
                self._text = slice(len(self._before), -len(self._after))
                self._place = text.block, text.choice

    def _fits(self, data: bytes) -> bool:
        """Whether a read begins and ends as the template does."""
        return bool(self._before) and data.startswith(self._before) and data.endswith(self._after)
