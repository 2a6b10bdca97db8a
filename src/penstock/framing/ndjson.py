"""Newline-delimited JSON: a value a line, or, from servers that print prettily, a value over several lines."""

from __future__ import annotations

from penstock.framing.frames import MAX_FRAME_BYTES, Framed, Frames, add_frame, too_large, without_line_ends
from penstock.jsontext.scan import ValueScanner


class NDJSON:
    """Bytes to frames. A line that is no JSON is a frame too: it may be an error in plain words (QUIRKS 100)."""

    event = ""  # lines bear no names

    def __init__(self) -> None:
        self._line = bytearray()  # the line that has not ended
        self._is_skipping = False  # it outgrew the cap
        self._is_lost = False  # a line was skipped within a value: its other lines mean nothing
        self._value = Value()

    def one(self, data: bytes) -> bytes | None:
        """The payload of a read that is one line and no more, as they come when a model streams; None for any other."""
        if self._line or self._is_skipping or self._is_lost or self._value.is_open:
            return None
        end = len(data) - 1
        is_one = data.startswith(b"{") and data.endswith(b"}\n") and data.find(b"\n") == end <= MAX_FRAME_BYTES
        return data[:end] if is_one else None

    def feed(self, data: bytes) -> list[Framed]:
        out: list[Framed] = []
        lines = data.split(b"\n")
        tail = lines.pop()
        count = len(lines)
        if lines and (self._line or self._is_skipping):
            self._end_held(lines, out)
        if lines and len(lines) == count and self._is_run(lines, data[: len(data) - len(tail) - 1]):
            out.append(Frames("", lines))
        else:
            for line in lines:
                self._end_line(line, out)
        if tail:
            self._hold(tail, out)
        return out

    def _end_held(self, lines: list[bytes], out: list[Framed]) -> None:
        """The first line ends the one that was held, or what was skipped of it."""
        self._hold(lines[0], out)
        lines[0] = bytes(self._line)
        self._line.clear()
        if self._is_skipping:
            self._is_skipping = False
            del lines[0]

    def _is_run(self, lines: list[bytes], data: bytes) -> bool:
        """Whether every line is an object, as nearly always: then at each line's end a `}` and a `{` meet."""
        if self._is_lost or self._value.is_open or len(data) > MAX_FRAME_BYTES or len(lines[0]) > MAX_FRAME_BYTES:
            return False
        return lines[0].startswith(b"{") and data.endswith(b"}") and data.count(b"}\n{") == len(lines) - 1

    def close(self) -> list[Framed]:
        out: list[Framed] = []
        if self._line and not self._value.is_open and _is_several(self._line):
            out.append(without_line_ends(bytes(self._line)))
        elif self._line:
            self._end_line(bytes(self._line), out)
        self._value.give_up(out)
        self._line.clear()
        return out

    def _hold(self, data: bytes, out: list[Framed]) -> None:
        if self._is_skipping:
            return
        self._line += data
        if len(self._line) > MAX_FRAME_BYTES:
            self._skip(bytes(self._line[:200]), out)
            self._line.clear()
            self._is_skipping = True

    def _skip(self, line: bytes, out: list[Framed]) -> None:
        out.append(too_large(line))
        self._is_lost = self._value.is_open
        self._value = Value()

    def _end_line(self, line: bytes, out: list[Framed]) -> None:
        if len(line) > MAX_FRAME_BYTES:
            self._skip(line, out)
            return
        if self._is_lost and not line.startswith(b"{"):
            return
        self._is_lost = False
        if self._value.is_broken_by(line):
            self._value.give_up(out)
        text = line.strip()
        if self._value.is_open or (text.startswith(b"{") and not text.endswith(b"}")):
            self._value.add(line, out)
        elif text:
            add_frame(text, out)


class Value:
    """A value that spans several lines.

    An object that begins at the margin, where this one began, is the next value, and this one is broken; unless it is
    printed without any indentation, as its second line shows.
    """

    def __init__(self) -> None:
        self._lines = bytearray()
        self._has_margin = False
        self._scanner: ValueScanner | None = None
        self._is_skipping = False

    @property
    def is_open(self) -> bool:
        return self._scanner is not None

    def is_broken_by(self, line: bytes) -> bool:
        """Whether the line begins another value, though this one has not ended."""
        return self.is_open and self._has_margin and line.startswith(b"{")

    def add(self, line: bytes, out: list[Framed]) -> None:
        """One more line. No string goes on over a line's end: one that is open there shows that the value is broken."""
        if not self.is_open:
            self._has_margin = line.startswith(b"{")
        elif bytes(self._lines[:3]) == b"{\n" and line.startswith(b'"'):
            self._has_margin = False
        scanner = self._scanner = self._scanner or ValueScanner()
        line = line.strip()
        self._keep(line + b"\n", out)
        if scanner.feed(line.decode("latin-1") + "\n") >= 0 or scanner.is_in_string:
            self.give_up(out)

    def give_up(self, out: list[Framed]) -> None:
        """Let go of what there is, whole or not."""
        if self._lines:
            add_frame(bytes(self._lines), out)
        self._lines.clear()
        self._scanner = None
        self._is_skipping = False

    def _keep(self, line: bytes, out: list[Framed]) -> None:
        if self._is_skipping:
            return
        self._lines += line
        if len(self._lines) > MAX_FRAME_BYTES:
            out.append(too_large(bytes(self._lines[:200])))
            self._lines.clear()
            self._is_skipping = True


def _is_several(line: bytearray) -> bool:
    """Whether an object follows another in the line."""
    if not line.startswith(b"{"):
        return False
    text = line.decode("latin-1")
    end = ValueScanner().feed(text)
    return end >= 0 and text[end:].lstrip().startswith("{")
