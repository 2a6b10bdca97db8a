"""The framing of plain JSON: an array whose elements are streamed, or values in a row.

Gemini without `alt=sse` streams an array. Every provider answers some requests with a plain JSON body (QUIRKS 102,
119).
"""

from __future__ import annotations

import re

from penstock.framing.frames import MAX_FRAME_BYTES, Framed, Frames, Stray, too_large
from penstock.jsontext.scan import ValueScanner

_BETWEEN = re.compile(rb"[\s,\[\]]*")
_MAX_LISTS = 16  # how deep lists may be nested before the first object


class JSONValues:
    """The decoder of JSON values: one frame per object. `rest` is what follows the values and is not JSON."""

    def __init__(self) -> None:
        self.rest: bytes | None = None
        self._value = bytearray()
        self._scanner: ValueScanner | None = None
        self._is_skipping = False
        self._lists = 0  # how many lists began since the last object

    def feed(self, data: bytes) -> list[Framed]:
        out: list[Framed] = []
        text = data.decode("latin-1")
        start = 0
        while start < len(data):
            if self._scanner is None:
                start = self._skip_separators(data, start, out)
                if start < len(data) and not self._begin(data, start):
                    break
                continue
            end = self._scanner.feed(text, start)
            stop = len(data) if end < 0 else end
            self._keep(data[start:stop], out)
            if end >= 0:
                if not self._is_skipping:
                    _add_value(bytes(self._value), out)
                self._reset()
            start = stop
        return out

    def _skip_separators(self, data: bytes, start: int, out: list[Framed]) -> int:
        """Returns the position of the next value. Lists that are nested too deeply are reported once."""
        end = _BETWEEN.match(data, start).end()  # type: ignore[union-attr]  # it matches the empty string
        before, self._lists = self._lists, self._lists + data.count(b"[", start, end)
        if before <= _MAX_LISTS < self._lists:
            out.append(Stray(b"[" * (_MAX_LISTS + 1), f"more than {_MAX_LISTS} nested lists"))
        return end

    def close(self) -> list[Framed]:
        if not self._value:
            return []
        cut = Stray(bytes(self._value), "an incomplete JSON value at the end of the body")
        self._reset()
        return [cut]

    def _begin(self, data: bytes, start: int) -> bool:
        if data[start : start + 1] != b"{":
            self.rest = data[start:]
            return False
        self._scanner = ValueScanner()
        self._lists = 0
        return True

    def _keep(self, piece: bytes, out: list[Framed]) -> None:
        if self._is_skipping:
            return
        self._value += piece
        if len(self._value) > MAX_FRAME_BYTES:
            out.append(too_large(bytes(self._value[:200])))
            self._value.clear()
            self._is_skipping = True

    def _reset(self) -> None:
        self._value.clear()
        self._scanner = None
        self._is_skipping = False


def _add_value(value: bytes, out: list[Framed]) -> None:
    """Appends a value, to the previous ones if there are any."""
    if out and isinstance(last := out[-1], Frames):
        last.data.append(value)
    else:
        out.append(Frames("", [value], is_json=True))
