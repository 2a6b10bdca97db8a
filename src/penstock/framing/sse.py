"""Server-Sent Events, by the WHATWG rules and by what gateways really send.

Work is per read. Neighbouring blocks mostly have the same heading (`data: `, or an event name and `data: `), so the
heading of the last plain block is remembered, and a read full of blocks with that heading is taken apart by one
`split`. Whatever differs goes line by line; the result is the same.
"""

from __future__ import annotations

import re

import msgspec

from penstock.framing.frames import MAX_FRAME_BYTES, Framed, Frames, Stray, too_large, without_line_ends

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|[\r\n]")  # and nothing else: U+2028 is text (QUIRKS 107)
_BLOCK_END = re.compile(rb"(?>\r\n|[\r\n])(?>\r\n|[\r\n])")
_PLAIN = re.compile(rb"((?:event: ?([^\r\n]*)(?:\r\n|[\r\n]))?data: ?)")
_WHOLE = re.compile(rb"\s*(?:\{.*\}|\[DONE\])\s*")  # no JSON value spans two such lines: their blank line is missing
_CUT = re.compile(rb"(?:d(?:at?)?|e(?:v(?:en?)?)?)?")  # what may be left of `data` or `event` when a stream is cut
_STRIPPED = re.compile(rb"(?:event: ?[\w.-]*?)?data:([^\r\n]*?[}\]]) *(?:event:|data:)[^\r\n]*\Z")
_STRIDE = 16  # how many parts are looked over at once
_MAX_HEADINGS = 64
_OVERLAP = 3  # a block's end is at most four bytes long, so this much of the last read may belong to it


class SSE:
    """Bytes to frames. A last block that lacks its blank line is a frame all the same (QUIRKS 110)."""

    def __init__(self) -> None:
        self.event = ""  # the name in the usual heading
        self._open = bytearray()  # what came of the block that has not ended
        self._skipped = 0  # how much of it was let go, once it outgrew the cap
        self._may_be_bom = True
        self._is_between = False  # nothing is open or pending: a block begins with the next byte
        self._after_cr = False  # an LF that comes next belongs to the line end before it
        self._heading = Heading(b"data: ", b"", b"\n")
        self._headings: dict[tuple[bytes, bytes], Heading] = {}  # those that were met, as they take turns

    def one(self, data: bytes) -> bytes | None:
        """The payload of a read that is one block with the usual heading and no more, as most are when a model streams.

        The event's name is then `event`. For any other read it is None, and nothing has happened.
        """
        if self._is_between:
            head, start, line_end, other_end, gap, stop = self._heading.shape
            if data.startswith(head):
                end = data.find(line_end, start)
                is_one = end == len(data) - stop < MAX_FRAME_BYTES and data.endswith(gap)
                if is_one and data.find(other_end, start, end) < 0:
                    return data[start:end]
        return None

    def feed(self, data: bytes) -> list[Framed]:
        out: list[Framed] = []
        self._feed_any(data, out)
        self._is_between = not (self._open or self._after_cr or self._may_be_bom)
        return out

    def _feed_any(self, data: bytes, out: list[Framed]) -> None:
        if self._may_be_bom or self._after_cr:
            data = self._trim(data)
        start = self._end_open_block(data, out) if self._open else 0
        hopeless: Heading | None = None  # no block with this heading ends in this read: to look once is enough
        while start < len(data):
            heading = self._heading
            end = 0 if heading is hopeless else self._run(data, start, out)
            if not end:
                hopeless = heading
                end = self._block(data, start, out)
            if not end:
                self._hold(data[start:], out)
                return
            start = end
        self._after_cr = data.endswith(b"\r") and not self._open

    def close(self) -> list[Framed]:
        out: list[Framed] = []
        if self._open and not self._skipped:
            stripped = _STRIPPED.match(self._open)
            if stripped and _is_json(stripped[1]):
                out.append(without_line_ends(bytes(self._open)))
            else:
                self._dispatch(bytes(self._open), out)
        self._open.clear()
        return out

    def _trim(self, data: bytes) -> bytes:
        """Take away a byte order mark (QUIRKS 109), or the LF of a CRLF that was cut in two (QUIRKS 106)."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if self._may_be_bom and data:
            data = bytes(self._open) + data
            self._open.clear()
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._open += data
                return b""
            self._may_be_bom = False
            data = data.removeprefix(_BOM)
        return data

    def _end_open_block(self, data: bytes, out: list[Framed]) -> int:
        """Look for the end of the open block in what is new, and say where it is; all of it is held if there is
        none."""
        last = bytes(self._open[-_OVERLAP:])
        end = _BLOCK_END.search(last + data)
        if end is None:
            if data:
                self._hold(data, out)
            return len(data)
        stop = end.end() - len(last)
        if not self._skipped:
            self._dispatch(bytes(self._open) + data[:stop], out)
        self._open.clear()
        self._skipped = 0
        return stop

    def _hold(self, data: bytes, out: list[Framed]) -> None:
        self._open += data
        if len(self._open) > MAX_FRAME_BYTES and (self._skipped or len(self._open.strip(b"\r\n")) > MAX_FRAME_BYTES):
            if not self._skipped:
                out.append(too_large(bytes(self._open[:300]).lstrip(b"\r\n")))
            self._skipped += len(self._open) - _OVERLAP
            del self._open[:-_OVERLAP]

    def _run(self, data: bytes, start: int, out: list[Framed]) -> int:
        """Take apart all blocks from `start` at once, if the first has the usual heading; else, or with no end, 0."""
        heading = self._heading
        if not data.startswith(heading.head, start) or len(data) - start > MAX_FRAME_BYTES:
            return 0
        end = data.rfind(heading.gap, start)
        if end < 0:
            return 0
        body = data[start + heading.start : end]
        payloads = body.split(heading.separator)
        if heading.is_pure(body, len(payloads) - 1):
            out.append(Frames(heading.event, payloads))
        else:
            self._mixed_run(heading, payloads, out)
        return end + heading.stop

    def _mixed_run(self, heading: Heading, parts: list[bytes], out: list[Framed]) -> None:
        """A run in which some parts hold more than a payload: other blocks, comments, further lines."""
        pure: list[bytes] = []
        for start in range(0, len(parts), _STRIDE):
            stride = parts[start : start + _STRIDE]
            if _is_one_line(b"".join(stride)):
                pure += stride
                continue
            for part in stride:
                if _is_one_line(part):
                    pure.append(part)
                    continue
                if pure:
                    out.append(Frames(heading.event, pure))
                    pure = []
                self._blocks(heading.head + part + heading.gap, out)
        if pure:
            out.append(Frames(heading.event, pure))

    def _blocks(self, data: bytes, out: list[Framed]) -> None:
        """Blocks of any kind, the last of which ends with the data."""
        start = 0
        while end := self._block(data, start, out):
            start = end
        self._dispatch(data[start:], out)

    def _block(self, data: bytes, start: int, out: list[Framed]) -> int:
        """One block, the general way; where it ends, or 0 if its end has not arrived."""
        end = _block_end(data, start)
        if end:
            self._dispatch(data[start:end], out)
        return end

    def _dispatch(self, block: bytes, out: list[Framed]) -> None:
        """The lines of a block become a frame; without data they are none (QUIRKS 116)."""
        lines = block.strip(b"\r\n")
        if not lines:
            return
        if len(lines) > MAX_FRAME_BYTES:
            out.append(too_large(lines))
            return
        plain = _PLAIN.match(lines)
        if plain and _is_one_line(payload := lines[plain.end() :]):
            self._remember(plain, block)
            out.append(Frames((plain[2] or b"").decode("utf-8", "replace"), [payload]))
            return
        if lines.startswith(b"{") or (lines.startswith(b"[") and _is_json(lines)):
            # JSON that was not framed at all, as Google sends late errors (QUIRKS 155)
            out.append(Frames("", [lines]))
            return
        event, payloads = "", list[bytes]()
        for line in _LINE_END.split(lines):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            match field:
                case b"data":
                    payloads.append(value)
                case b"event":  # may come after the data (QUIRKS 114)
                    event = value.decode("utf-8", "replace")
                case b"error":  # a bogus field, but it holds the only word of the failure (QUIRKS 96)
                    out.append(Frames("error", [value]))
                case b"" | b"id" | b"retry":
                    pass
                case _:
                    out.append(Stray(line, "not a line of an event stream", is_foreign=not _CUT.fullmatch(line)))
        if len(payloads) > 1 and not all(_WHOLE.fullmatch(line) for line in payloads):
            payloads = [b"\n".join(payloads)]
        if payloads:
            out.append(Frames(event, payloads))

    def _remember(self, plain: re.Match[bytes], block: bytes) -> None:
        """Take this block's heading for the usual one; not if it lacks its space, which the next payload might have."""
        if plain[1].endswith(b" "):
            line_end = b"\r\n" if block.endswith(b"\r\n") else b"\r" if block.endswith(b"\r") else b"\n"
            key = plain[1], line_end
            heading = self._headings.get(key)
            if heading is None:
                heading = Heading(plain[1], plain[2] or b"", line_end)
                if len(self._headings) < _MAX_HEADINGS:
                    self._headings[key] = heading
            self._heading, self.event = heading, heading.event


class Heading:
    """What stands before the payload in a run of like blocks."""

    __slots__ = ("_newlines", "_returns", "event", "gap", "head", "separator", "shape", "start", "stop")

    def __init__(self, head: bytes, name: bytes, line_end: bytes) -> None:
        self.head = head
        self.gap = line_end * 2
        self.start = len(head)
        self.stop = len(self.gap)
        self.separator = self.gap + head
        self.event = name.decode("utf-8", "replace")
        other_end = b"\r" if line_end == b"\n" else b"\n"
        self.shape = head, self.start, line_end[:1], other_end, self.gap, self.stop
        self._newlines = self.separator.count(b"\n")
        self._returns = self.separator.count(b"\r")

    def is_pure(self, body: bytes, gaps: int) -> bool:
        """Whether the body holds no line ends but those of its separators: then every part is one payload."""
        if body.count(b"\n") != gaps * self._newlines:
            return False
        return body.count(b"\r") == gaps * self._returns if self._returns else b"\r" not in body


def _block_end(data: bytes, start: int) -> int:
    """Where the block that begins at `start` ends, behind its blank line; 0 if that has not arrived."""
    end = data.find(b"\n", start)
    if end >= 0 and not data.startswith(b"\n", end + 1):
        end = data.find(b"\n", end + 1)
    if end >= 0 and data.startswith(b"\n", end + 1) and data.find(b"\r", start, end) < 0:
        return end + 2  # one line or two, as most blocks are
    blank = _BLOCK_END.search(data, start)
    return blank.end() if blank else 0


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def _is_one_line(data: bytes) -> bool:
    return data.find(b"\n") < 0 and data.find(b"\r") < 0
