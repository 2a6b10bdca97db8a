"""Finds the habits of a server: the quirks of its frames that decoding healed.

Frames are examined at the end of a response, and only if it has calls, so that a stream of text costs nearly nothing.
"""

from __future__ import annotations

import msgspec

from penstock.framing import Body, Frames, FramingName
from penstock.healing.report import HealingReport
from penstock.wires import WireName, find_habits, find_wire

MAX_EXAMINED = 256 * 1024
"""How many bytes of a response are looked at, from its first call on."""
_STARTS = (b"data", b"event", b":", b"{", b"[")
_CALLS, _LEGACY = b'"tool_calls"', b'"function_call"'
LONGEST_SIGN = max(len(_CALLS), len(_LEGACY)) - 1


class Habits:
    """Keeps the part of a response with calls, and reports its habits, independent of how the bytes are cut."""

    def __init__(self, wire: WireName, report: HealingReport) -> None:
        self._find = find_habits(wire)
        self._framing: FramingName = find_wire(wire).framing
        self._report = report
        self._kept: list[bytes] = []
        self._size = 0
        self._line: list[bytes] = []  # the reads since the last line break: a frame that has not ended
        self._line_size = 0
        self._last = b""  # the last read with text, or the end of other reads: a sign may be or begin in it

    @property
    def is_keeping(self) -> bool:
        """Whether a call has come, from which on everything is kept."""
        return bool(self._kept)

    def feed_text(self, data: bytes) -> None:
        """Skip a network read that contains only text, and perhaps the start of another frame."""
        if self._kept:
            self.feed(data)
        else:
            self._line, self._line_size, self._last = [data], len(data), data

    def feed(self, data: bytes) -> None:
        """Look at the bytes of a network read."""
        if self._find is None or self._size >= MAX_EXAMINED:
            return
        if self._kept:
            self._kept.append(data)
            self._size += len(data)
            return
        seen = self._last + data
        if _CALLS in seen or _LEGACY in seen:
            self._kept, self._size = [*self._line, data], self._line_size + len(data)
            return
        self._last = seen[-LONGEST_SIGN:]
        if ended := data.rfind(b"\n") + 1:
            self._line, self._line_size = [data[ended:]], len(data) - ended
        elif self._line_size < MAX_EXAMINED:
            self._line.append(data)
            self._line_size += len(data)

    def skip(self, size: int) -> None:
        """Count a frame that is like one before, except for its piece of arguments, in which no habit shows."""
        self._size += size

    def close(self) -> None:
        """Report the habits."""
        if self._find is None or not self._kept:
            return
        body, data = Body(self._framing), b"".join(self._kept)
        if not data.startswith(_STARTS):  # the first read began in the middle of a frame
            data = data.partition(b"\n")[2]
        framed = body.feed(data) + body.close()
        payloads = [payload for frames in framed if isinstance(frames, Frames) for payload in frames.data]
        for quirk, count in self._find(filter(None, map(_value, payloads))).items():
            if count:
                self._report.add(quirk, count)


def _value(payload: bytes) -> object:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
