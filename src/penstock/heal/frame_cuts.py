"""Cuts the bytes of a stream at the ends of its frames, and looks at frames without decoding them."""

from __future__ import annotations

import re

FRAME_END = re.compile(rb"\n\n|\r\n\r\n|\r\r")
LINE_END = re.compile(rb"\n")
REASON = re.compile(rb'"finish_reason"\s*:\s*"')


def is_readable(line: bytes) -> bool:
    """Whether every client reads a line of a frame without an event; a keep-alive that was sent as data is not JSON."""
    return not line.startswith(b"data:") or line[5:].strip().startswith((b"{", b"["))


class FrameCuts:
    """Cuts bytes at the ends of frames, or of lines. `size` is that of a frame which has not ended."""

    def __init__(self, end: re.Pattern[bytes] = FRAME_END) -> None:
        self._end = end
        self._pieces: list[bytes] = []
        self._last = b""  # the last bytes of the pieces: an end may be cut
        self.size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that these bytes complete."""
        offset, text = len(self._last), self._last + data if self._last else data
        ends = [end for match in self._end.finditer(text) if (end := match.end() - offset) > 0]
        if not self._pieces and ends == [len(data)]:
            self._last = b""
            return [data]  # as nearly all reads are
        frames, start = [], 0
        for end in ends:
            frames.append(b"".join([*self._pieces, data[start:end]]))
            self._pieces, self.size, start = [], 0, end
        if rest := data[start:]:
            self._pieces.append(rest)
            self.size += len(rest)
        self._last = text[offset + start :][-3:] if frames else text[-3:]
        return frames

    def close(self) -> bytes:
        """What has not ended."""
        rest, self._pieces, self.size = b"".join(self._pieces), [], 0
        return rest
