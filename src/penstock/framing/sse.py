"""The SSE framing: Server-Sent Events by the WHATWG rules, and by what gateways really send.

Work is done per read. Consecutive blocks mostly have the same heading (`data: `, or an event name and `data: `), so the
heading of the last plain block is remembered.

Three lanes give the same frames. `parse_block`, which parses a block line by line, is the reference. `_split_run`
splits a read that consists of blocks with the remembered heading, and `single_frame` takes a read that is exactly one
block with a known heading. test_framing compares them with a simple parser of the same rules, cut anywhere, block by
block and whole.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate

from penstock.framing.frames import MAX_FRAME_BYTES, Comments, Framed, Frames, missing_line_ends, too_large
from penstock.framing.sse_block import is_json, parse_block

_BOM = b"\xef\xbb\xbf"
_BLOCK_END = re.compile(rb"(?>\r\n|[\r\n])(?>\r\n|[\r\n])")
_PLAIN = re.compile(rb"((?:event: ?([^\r\n]*)(?:\r\n|[\r\n]))?data: ?)")
_STRIPPED = re.compile(rb"(?:event: ?[\w.-]*?)?data:([^\r\n]*?[}\]]) *(?:event:|data:)[^\r\n]*\Z")
_REPLACED = "\ufffd"  # stands for bytes that are not UTF-8
_MAX_HEADINGS = 64
_LONG_HEAD = 128  # a longer heading is not kept for other streams
_OVERLAP = 3  # the end of a block has at most four bytes, so up to three of them may be in the last read


class SSE:
    """The SSE decoder. A last block without its blank line is a frame too (QUIRKS 110)."""

    def __init__(self) -> None:
        self._open = bytearray()  # the block whose end has not arrived
        self._skipped = 0  # how many bytes of it were dropped because it is larger than the cap
        self._comments = Comments()
        self._may_be_bom = True
        self._is_between = False  # a block begins with the next byte
        self._is_after_cr = False  # the last byte was a CR: a following LF belongs to the same line end
        self.event = ""  # the name of the event of the last heading
        self._use(_heading(b"data: ", b"", b"\n"))
        self._headings: dict[tuple[bytes, bytes], Heading] = {}  # all that occurred: event names alternate

    def single_frame(self, data: bytes) -> bytes | None:
        """Returns the payload of a read that is exactly one block with a known heading; `event` is then its name.

        None for any other read, of which nothing was read then.
        """
        if self._is_between:
            head, payload_slice, line_end, other_end, gap = self._shape
            if data.startswith(head):
                if not data.endswith(gap):
                    return None
                payload = data[payload_slice]
                is_one = line_end not in payload and other_end not in payload and len(data) < MAX_FRAME_BYTES
                return payload if is_one else None
            for heading in self._headings.values():
                if heading is not self._heading and data.startswith(heading.head):
                    self._use(heading)
                    return self.single_frame(data)
        return None

    def _use(self, heading: Heading) -> None:
        self._heading, self._shape = heading, heading.shape
        self.event = heading.event

    def feed(self, data: bytes) -> list[Framed]:
        out: list[Framed] = []
        self._feed(data, out)
        self._is_between = not (self._open or self._is_after_cr or self._may_be_bom)
        return out

    def _feed(self, data: bytes, out: list[Framed]) -> None:
        if self._may_be_bom or self._is_after_cr:
            data = self._trim(data)
        start = self._end_open_block(data, out) if self._open else 0
        exhausted: Heading | None = None  # no further block with this heading ends in this read
        while start < len(data):
            heading = self._heading
            end = 0 if heading is exhausted else self._split_run(data, start, out)
            if not end:
                exhausted = heading
                end = self._parse_block(data, start, out)
            if not end:
                self._hold(data[start:], out)
                return
            start = end
        self._is_after_cr = data.endswith(b"\r") and not self._open

    def close(self) -> list[Framed]:
        out: list[Framed] = []
        if self._open and not self._skipped:
            stripped = _STRIPPED.match(self._open)
            if stripped and is_json(stripped[1]):
                if self._open.startswith(b"data:"):  # a stream that is cut after this frame has it
                    out.append(Frames("", [stripped[1].removeprefix(b" ")]))
                out.append(missing_line_ends(bytes(self._open)))
            else:
                self._dispatch(bytes(self._open), out)
        self._open.clear()
        return out

    def _trim(self, data: bytes) -> bytes:
        """Removes a byte order mark (QUIRKS 109), and the LF of a CRLF that was split between reads (QUIRKS 106)."""
        if self._is_after_cr and data:
            self._is_after_cr = False
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
        """Returns where the open block ends in the data; if it does not, all of the data is added to it."""
        stop = self._open_block_end(data)
        if not stop:
            if data:
                self._hold(data, out)
            return len(data)
        if not self._skipped:
            self._dispatch_open(b"".join((self._open, data[:stop])), out)
        self._open.clear()
        self._skipped = 0
        return stop

    def _open_block_end(self, data: bytes) -> int:
        """Returns where the open block ends in the data, after its blank line; 0 if that has not arrived."""
        last = bytes(self._open[-_OVERLAP:])
        end = _BLOCK_END.search(last + data[: _OVERLAP + 1])
        if end is not None and end.start() < len(last):
            return max(end.end() - len(last), 0)
        end = _BLOCK_END.search(data)
        return end.end() if end else 0

    def _dispatch_open(self, block: bytes, out: list[Framed]) -> None:
        """Parses a block that was split between reads, which mostly has the heading of the last one."""
        head, payload_slice, line_end, other_end, gap = self._shape
        if block.startswith(head) and block.endswith(gap):
            payload = block[payload_slice]
            if line_end not in payload and other_end not in payload and len(block) < MAX_FRAME_BYTES:
                out.append(Frames(self.event, [payload], payload.isascii()))
                return
        self._dispatch(block, out)

    def _hold(self, data: bytes, out: list[Framed]) -> None:
        self._open += data
        if len(self._open) > MAX_FRAME_BYTES and (self._skipped or len(self._open.strip(b"\r\n")) > MAX_FRAME_BYTES):
            if not self._skipped:
                out.append(too_large(bytes(self._open[:300]).lstrip(b"\r\n")))
            self._skipped += len(self._open) - _OVERLAP
            del self._open[:-_OVERLAP]

    def _split_run(self, data: bytes, start: int, out: list[Framed]) -> int:
        """Splits all complete blocks from `start` on and returns their end.

        0 if the first has another heading than the remembered one, or if no block is complete.
        """
        heading = self._heading
        if not data.startswith(heading.head, start) or len(data) - start > MAX_FRAME_BYTES:
            return 0
        end = data.rfind(heading.gap, start)
        if end < 0:
            return 0
        payloads = data[start + heading.start : end].split(heading.separator)
        text = b"".join(payloads)  # to search it is faster than to count the line ends
        is_ascii = text.isascii()
        if not _is_one_line(text):
            self._mixed_run(heading, payloads, text, out)
        elif out and isinstance(last := out[-1], Frames) and last.event == heading.event:
            last.data += payloads  # the last one is the block that was split between this read and the one before
            last.is_ascii = last.is_ascii and is_ascii
        else:
            out.append(Frames(heading.event, payloads, is_ascii))
        return end + heading.stop

    def _mixed_run(self, heading: Heading, parts: list[bytes], text: bytes, out: list[Framed]) -> None:
        """Handles a run in which some parts are more than a payload: other blocks, comments, further lines.

        `text` is all parts in a row: the line ends in it lead to these parts.
        """
        is_ascii = text.isascii()
        ends = list(accumulate(map(len, parts)))
        line_feed, carriage_return = _find(text, b"\n", 0), _find(text, b"\r", 0)
        start = 0  # the first part that was not handled
        while (line_end := min(line_feed, carriage_return)) < len(text):
            number = bisect_right(ends, line_end)
            first, *others = parts[number].split(heading.gap)
            pure = parts[start:number]
            if others and _is_one_line(first):
                pure.append(first)
            else:
                others = [heading.head + parts[number]]
            if pure:
                out.append(Frames(heading.event, pure, is_ascii))
            for block in others:
                self._parse_known(block, heading.gap, is_ascii, out)
            start, end = number + 1, ends[number]
            line_feed = line_feed if line_feed >= end else _find(text, b"\n", end)
            carriage_return = carriage_return if carriage_return >= end else _find(text, b"\r", end)
        if start < len(parts):
            out.append(Frames(heading.event, parts[start:], is_ascii))

    def _parse_known(self, block: bytes, gap: bytes, is_ascii: bool, out: list[Framed]) -> None:
        """Parses a block, which is mostly one with a heading that occurred before."""
        for heading in self._headings.values():
            if heading.gap == gap and block.startswith(heading.head):
                payload = block[heading.start :]
                if _is_one_line(payload):
                    self._use(heading)
                    out.append(Frames(heading.event, [payload], is_ascii))
                    return
        self._parse_blocks(block + gap, out)

    def _parse_blocks(self, data: bytes, out: list[Framed]) -> None:
        """Parses blocks of any kind, the last of which ends with the data."""
        start = 0
        while end := self._parse_block(data, start, out):
            start = end
        self._dispatch(data[start:], out)

    def _parse_block(self, data: bytes, start: int, out: list[Framed]) -> int:
        """Parses one block of any kind and returns its end; 0 if that has not arrived."""
        end = _block_end(data, start)
        if end:
            self._dispatch(data[start:end], out)
        return end

    def _dispatch(self, block: bytes, out: list[Framed]) -> None:
        """Parses a block of any kind; one without data is not a frame (QUIRKS 116)."""
        lines = block.strip(b"\r\n")
        if not lines or (lines.startswith(b":") and _is_one_line(lines)):
            self._comments.add(len(block), out)
            return
        if len(lines) > MAX_FRAME_BYTES:
            out.append(too_large(lines))
            return
        plain = _PLAIN.match(lines)
        if plain and _is_one_line(payload := lines[plain.end() :]):
            event = (plain[2] or b"").decode("utf-8", "replace")
            if _REPLACED not in event:
                self._remember(plain, block)
                out.append(Frames(event, [payload]))
                if not payload:
                    self._comments.add(len(block), out)
                return
        count = len(out)
        parse_block(lines, out)
        if len(out) == count:
            self._comments.add(len(block), out)

    def _remember(self, plain: re.Match[bytes], block: bytes) -> None:
        """Remembers the heading of this block, unless its space is missing, which the next payload might begin with."""
        if plain[1].endswith(b" "):
            line_end = b"\r\n" if block.endswith(b"\r\n") else b"\r" if block.endswith(b"\r") else b"\n"
            key = plain[1], line_end
            heading = self._headings.get(key)
            if heading is None:
                heading = _heading(plain[1], plain[2] or b"", line_end)
                if len(self._headings) < _MAX_HEADINGS:
                    self._headings[key] = heading
            self._use(heading)


class Heading:
    """The bytes around the payload in a run of similar blocks."""

    __slots__ = ("event", "gap", "head", "separator", "shape", "start", "stop")

    def __init__(self, head: bytes, name: bytes, line_end: bytes) -> None:
        self.head = head
        self.gap = line_end * 2
        self.start = len(head)
        self.stop = len(self.gap)
        self.separator = self.gap + head
        self.event = name.decode("utf-8", "replace")
        other_end = b"\r" if line_end == b"\n" else b"\n"
        # The line ends are numbers, because bytes are searched for these without a detour.
        self.shape = head, slice(self.start, -self.stop), line_end[0], other_end[0], self.gap


_usual_heading = lru_cache(maxsize=256)(Heading)


def _heading(head: bytes, name: bytes, line_end: bytes) -> Heading:
    """A heading, which does not change: those of the usual event names are made once."""
    return (_usual_heading if len(head) <= _LONG_HEAD else Heading)(head, name, line_end)


def _block_end(data: bytes, start: int) -> int:
    """Returns the end of the block that begins at `start`, after its blank line; 0 if that has not arrived."""
    end = data.find(b"\n", start)
    if end >= 0 and not data.startswith(b"\n", end + 1):
        end = data.find(b"\n", end + 1)
    if end >= 0 and data.startswith(b"\n", end + 1) and data.find(b"\r", start, end) < 0:
        return end + 2  # most blocks have one or two lines
    blank = _BLOCK_END.search(data, start)
    return blank.end() if blank else 0


def _find(data: bytes, part: bytes, start: int) -> int:
    """Where the part is from `start` on; the end of the data if it is not there."""
    position = data.find(part, start)
    return position if position >= 0 else len(data)


def _is_one_line(data: bytes) -> bool:
    return data.find(b"\n") < 0 and data.find(b"\r") < 0
