"""One block of an event stream, line by line: the reference for the lanes of `sse.py`.

Each line counts for itself, in the order of the lines. So a stream that is cut after any line of a block has a
beginning of what the whole block gives, and damage after a frame does not change it:

- The `data` lines of one JSON object are a frame, whatever follows them in the block: gateways that lose the blank
  lines send one object per line. Other `data` lines are joined, as SSE says.
- A line without a known field damages the object in which it stands. Before or after one it is reported there, as
  unknown; if it has a piece of JSON it may be a damaged frame, and is a hole.
- A name stands before its data, or after it (QUIRKS 114): then it names the frames before it that have no name.
"""

from __future__ import annotations

import re

import msgspec

from penstock.framing.frames import Framed, Frames, Stray, add_frame
from penstock.jsontext.leading import object_end
from penstock.jsontext.scan import ValueScanner

LINE_END = re.compile(rb"\r\n|[\r\n]")
"""And nothing else: U+2028 is text (QUIRKS 107)."""
_DONE = b"[DONE]"
_CUT = re.compile(rb"(?:d(?:at?)?|e(?:v(?:en?)?)?)?")  # a prefix of `data` or `event`, where a stream was cut
_JSON_PIECE = re.compile(rb'[{\[]\s*["{]|["}\]]\s*[}\]]|"\s*:|^[\s{}\[\],]+$')  # in what may be a damaged frame
_FIELD = re.compile(rb'[\w-]+:[^{}\[\]"\\]*')  # a field whose value cannot be a piece of JSON


def parse_block(lines: bytes, out: list[Framed]) -> None:
    """Appends the frames of a block, which has no line ends around it."""
    if lines.startswith(b"{") or (lines.startswith(b"[") and is_json(lines)):
        _unframed(lines, out)
        return
    block = _Block(out)
    for line in LINE_END.split(lines):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                block.data(value)
            case b"event":
                block.name(value, line)
            case b"error":  # not a field of SSE, but the only report of the failure (QUIRKS 96)
                out.append(Frames("error", [value]))
            case b"" | b"id" | b"retry":
                pass
            case _:
                block.stray(line)
    block.end()


class _Block:
    """The block so far: its name, the lines of its open frame, and the frames to which a later name belongs."""

    def __init__(self, out: list[Framed]) -> None:
        self._out = out
        self._name: str | None = ""  # None: it cannot be read
        self._unnamed: list[Frames] = []
        self._lines: list[bytes] = []
        self._object: ValueScanner | None = None  # scans the open frame, if that is an object
        self._is_damaged = False  # a line of the open frame cannot be read

    def data(self, value: bytes) -> None:
        if not self._lines and value.lstrip().startswith(b"{"):
            self._object = ValueScanner()
        self._lines.append(value)
        is_whole = self._object is not None and self._object.feed(value.decode("latin-1") + "\n") >= 0
        if is_whole or (len(self._lines) == 1 and value.strip() == _DONE):
            self.end()

    def name(self, value: bytes, line: bytes) -> None:
        try:
            name = value.decode()
        except UnicodeDecodeError:
            if self._unnamed:
                self._out.append(_unreadable_name(line))
            else:
                self._name = None
            return
        if not self._unnamed:
            self._name = name
        for frames in self._unnamed:
            frames.event = name
        self._unnamed.clear()

    def stray(self, line: bytes) -> None:
        stray = _stray(line)
        if self._lines and not stray.is_ignored:
            self._lines.append(line)
            self._is_damaged = True
        else:
            stray.is_ignored |= not _JSON_PIECE.search(line)
            self._out.append(stray)

    def end(self) -> None:
        """Ends the open frame."""
        if not self._lines:
            return
        payload = b"\n".join(self._lines)
        if self._name is None:  # it may be any event
            self._out.append(_unreadable_name(payload))
        elif self._is_damaged:
            self._out.append(
                Stray(payload, "a line between the data lines of an event cannot be read", is_foreign=True)
            )
        else:
            frames = Frames(self._name, [payload])
            self._out.append(frames)
            if not self._name:
                self._unnamed.append(frames)
        self._lines, self._object, self._is_damaged = [], None, False


def _unframed(lines: bytes, out: list[Framed]) -> None:
    """Reads JSON without SSE framing: one value, as Google sends late errors (QUIRKS 155), or one per line."""
    start = 0
    for end in LINE_END.finditer(lines):
        line = lines[start : end.start()]
        if not line.startswith(b"{") or not is_json(line):
            break
        add_frame(line, out)
        start = end.end()
    rest = lines[start:]
    if start and not rest.startswith(b"{"):
        parse_block(rest, out)
        return
    size = len(rest) if is_json(rest) else object_end(rest) or len(rest)
    add_frame(rest[:size], out)
    if rest[size:]:
        out.append(_stray(rest[size:]))


def _stray(line: bytes) -> Stray:
    """Reports a line without a known field. SSE ignores unknown fields, but a line with JSON may be a damaged frame."""
    is_foreign, is_ignored = not _CUT.fullmatch(line), _FIELD.fullmatch(line) is not None
    return Stray(line, "not a line of an event stream", is_foreign=is_foreign, is_ignored=is_ignored)


def _unreadable_name(data: bytes) -> Stray:
    return Stray(data, "the name of an event is not UTF-8", is_foreign=True)


def is_json(data: bytes) -> bool:
    """Whether these bytes are one JSON value."""
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True
