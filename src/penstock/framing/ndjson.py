"""The NDJSON framing: one JSON value per line, or, from servers that pretty-print, one over several lines.

`feed` is the reference; `single_frame` is its fast lane for a read that is exactly one line. test_framing reads every
stream line by line through both and expects the same frames.
"""

from __future__ import annotations

from penstock.framing.frames import MAX_FRAME_BYTES, Comments, Framed, Frames, add_frame, missing_line_ends, too_large
from penstock.jsontext.scan import ValueScanner

_LF = 10  # a number, because bytes are searched for it without a detour


class NDJSON:
    """The decoder of NDJSON. A line that is not JSON is a frame too: it may be an error as plain text (QUIRKS 100)."""

    event = ""  # lines have no event name

    def __init__(self) -> None:
        self._line = bytearray()  # the beginning of the current line
        self._comments = Comments()
        self._is_skipping = False  # the line is longer than the cap
        self._is_lost = False  # a line within a value was skipped: the rest of the value is ignored
        self._value = Value()

    def single_frame(self, data: bytes) -> bytes | None:
        """Returns the payload of a read that is exactly one line; None for any other."""
        if self._line or self._is_skipping or self._is_lost or self._value.is_open:
            return None
        if not data.startswith(b"{") or not data.endswith(b"}\n"):
            return None
        payload = data[:-1]
        return payload if _LF not in payload and len(payload) <= MAX_FRAME_BYTES else None

    def feed(self, data: bytes) -> list[Framed]:
        out: list[Framed] = []
        lines = data.split(b"\n")
        tail = lines.pop()
        count = len(lines)
        if lines and (self._line or self._is_skipping):
            self._complete_line(lines, out)
        if lines and len(lines) == count and self._are_objects(lines, data[: len(data) - len(tail) - 1]):
            out.append(Frames("", lines))
        else:
            for line in lines:
                self._end_line(line, out)
        if tail:
            self._hold(tail, out)
        return out

    def _complete_line(self, lines: list[bytes], out: list[Framed]) -> None:
        """Joins the first of the lines to the current line, or drops it if the current line is skipped."""
        self._hold(lines[0], out)
        lines[0] = bytes(self._line)
        self._line.clear()
        if self._is_skipping:
            self._is_skipping = False
            del lines[0]

    def _are_objects(self, lines: list[bytes], data: bytes) -> bool:
        """Whether every line is an object, as it nearly always is: then each line end stands between `}` and `{`."""
        if self._is_lost or self._value.is_open or len(data) > MAX_FRAME_BYTES or len(lines[0]) > MAX_FRAME_BYTES:
            return False
        return lines[0].startswith(b"{") and data.endswith(b"}") and data.count(b"}\n{") == len(lines) - 1

    def close(self) -> list[Framed]:
        out: list[Framed] = []
        if self._line and not self._value.is_open and (end := _first_of_two(self._line)):
            add_frame(bytes(self._line[:end]), out)  # a stream that is cut there has it
            out.append(missing_line_ends(bytes(self._line)))
        elif self._line:
            self._end_line(bytes(self._line), out)
        self._value.flush(out)
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
            self._value.flush(out)
        text = line.strip()
        if self._value.is_open or (text.startswith(b"{") and not text.endswith(b"}")):
            self._value.add(line, out)
        elif text:
            add_frame(text, out)
        else:
            self._comments.add(len(line) + 1, out)


class Value:
    """A value that spans several lines.

    A line that begins with `{` in the first column, as this value did, begins the next value, and this one is
    incomplete. That does not hold for values printed without indentation, which the second line shows.
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
        """Whether the line begins another value although this one is incomplete."""
        return self.is_open and self._has_margin and line.startswith(b"{")

    def add(self, line: bytes, out: list[Framed]) -> None:
        """Adds a line. A string that is open at the end of a line shows that the value is damaged."""
        if not self.is_open:
            self._has_margin = line.startswith(b"{")
        elif bytes(self._lines[:3]) == b"{\n" and line.startswith(b'"'):
            self._has_margin = False
        scanner = self._scanner = self._scanner or ValueScanner()
        line = line.strip()
        self._keep(line + b"\n", out)
        if scanner.feed(line.decode("latin-1") + "\n") >= 0 or scanner.is_in_string:
            self.flush(out)

    def flush(self, out: list[Framed]) -> None:
        """Emits the value as a frame, complete or not."""
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


def _first_of_two(line: bytearray) -> int:
    """Where an object ends that another one follows; 0 if the line does not begin with two objects."""
    if not line.startswith(b"{"):
        return 0
    text = line.decode("latin-1")
    end = ValueScanner().feed(text)
    return end if end >= 0 and text[end:].lstrip().startswith("{") else 0
