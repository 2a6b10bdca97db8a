"""Reads frames of text without parsing them: most servers send frames that differ only in their piece of text.

A frame that is known to be a piece of the open text, and nothing else, becomes a template: the bytes before its text,
and those after it. A later frame with the same bytes around a string without escapes is a piece of the same text. The
decoder of the wire is the reference: it reads all other frames, and any that is not plain text ends the template.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.events import Text
from penstock.framing import MAX_FRAME_BYTES

ATTEMPTS = 8
"""After this many templates in a row that fitted no frame, no more are made: the frames differ elsewhere too."""

ReadText = Callable[[bytes], Text | None]
"""Returns the piece of text in a read; None if the read has to be parsed."""

_plain = re.compile(rb'[^\x00-\x1f"\\]+').fullmatch


class TextFrames:
    """The template of one response, once there is one."""

    __slots__ = ("_after", "_before", "_has_fitted", "_key", "_place", "_text", "_wasted")

    def __init__(self, key: bytes) -> None:
        self._key = key  # the quoted name of the field with the text
        self._wasted = 0  # templates that fitted no frame
        self._has_fitted = False
        self.clear()

    def clear(self) -> None:
        """Forget the template: something else has come."""
        self._before = self._after = b""
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
                self._text = slice(len(self._before), -len(self._after))
                self._place = text.block, text.choice
