"""Newline-delimited JSON: a value a line, or, from servers that print prettily, a value over several lines."""

from __future__ import annotations

from penstock.framing.frame import MAX_FRAME_BYTES, Framed, Frames, too_large
from penstock.jsonstream import ValueScanner


class NDJSON:
    """Bytes to frames. A line that is no JSON is a frame too: it may be an error in plain words (QUIRKS 100)."""

    def __init__(self) -> None:
        self._line = bytearray()  # the line that has not ended
        self._value = bytearray()  # the lines of a value that spans several
        self._scanner = ValueScanner()
        self._is_skipping = False

    def feed(self, data: bytes) -> list[Framed]:
        out: list[Framed] = []
        head, newline, rest = data.partition(b"\n")
        if not newline:
            self._hold(data, out)
            return out
        lines = rest.split(b"\n")
        first = head if not self._line else bytes(self._line) + head
        self._line.clear()
        tail = lines.pop()
        self._lines(lines if self._is_skipping else [first, *lines], out)
        self._is_skipping = False
        self._hold(tail, out)
        return out

    def close(self) -> list[Framed]:
        out: list[Framed] = []
        if self._line and not self._is_skipping:
            self._lines([bytes(self._line)], out)
        if self._value:
            out.append(Frames("", [bytes(self._value)]))
        return out

    def _hold(self, data: bytes, out: list[Framed]) -> None:
        if self._is_skipping:
            return
        self._line += data
        if len(self._line) > MAX_FRAME_BYTES:
            out.append(too_large(bytes(self._line[:200])))
            self._line.clear()
            self._is_skipping = True

    def _lines(self, lines: list[bytes], out: list[Framed]) -> None:
        frames = list[bytes]()
        for line in lines:
            line = line.strip()
            if self._value or (line.startswith(b"{") and not line.endswith(b"}")):
                self._extend_value(line, frames, out)
            elif line:
                frames.append(line)
        if frames:
            out.append(Frames("", frames))

    def _extend_value(self, line: bytes, frames: list[bytes], out: list[Framed]) -> None:
        self._value += line + b"\n"
        if self._scanner.feed(line.decode("latin-1") + "\n") >= 0:
            frames.append(bytes(self._value))
        elif len(self._value) > MAX_FRAME_BYTES:
            out.append(too_large(bytes(self._value[:200])))
        else:
            return
        self._value.clear()
        self._scanner = ValueScanner()
