"""Top-level JSON values, one after the other or as the elements of one array, cut anywhere.

Gemini without `alt=sse` streams an array; every provider answers some requests with a plain JSON body (QUIRKS 102,
119).
"""

from __future__ import annotations

import re

from penstock.framing.frames import MAX_FRAME_BYTES, Framed, Stray, add_frame, too_large
from penstock.jsontext.scan import ValueScanner

_BETWEEN = re.compile(rb"[\s,\[\]]*")
_MAX_LISTS = 16  # how many lists may begin before the first value in them


class JSONValues:
    """Bytes to frames, an object each. `rest` is what follows the values and is no JSON, if anything does."""

    def __init__(self) -> None:
        self.rest: bytes | None = None
        self._value = bytearray()
        self._scanner: ValueScanner | None = None
        self._is_skipping = False
        self._lists = 0  # how many have begun since the last value

    def feed(self, data: bytes) -> list[Framed]:
        out: list[Framed] = []
        text = data.decode("latin-1")
        start = 0
        while start < len(data):
            if self._scanner is None:
                start = self._pass(data, start, out)
                if start < len(data) and not self._begin(data, start):
                    break
                continue
            end = self._scanner.feed(text, start)
            stop = len(data) if end < 0 else end
            self._keep(data[start:stop], out)
            if end >= 0:
                if not self._is_skipping:
                    add_frame(bytes(self._value), out)
                self._reset()
            start = stop
        return out

    def _pass(self, data: bytes, start: int, out: list[Framed]) -> int:
        """Where what stands between values ends. Lists in lists in lists are no stream: that is told."""
        end = _BETWEEN.match(data, start).end()  # type: ignore[union-attr]  # it matches the empty string
        before, self._lists = self._lists, self._lists + data.count(b"[", start, end)
        if before <= _MAX_LISTS < self._lists:
            out.append(Stray(b"[" * (_MAX_LISTS + 1), f"more than {_MAX_LISTS} lists within each other"))
        return end

    def close(self) -> list[Framed]:
        if not self._value:
            return []
        cut = Stray(bytes(self._value), "a JSON value that was cut")
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
