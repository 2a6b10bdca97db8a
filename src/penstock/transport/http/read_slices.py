"""Large reads, cut into slices, so that an event loop can run other tasks while one read is decoded.

A network read may have hundreds of kilobytes. To decode them takes from a millisecond to a second, as it is text or
many small frames, which is known only afterwards. So the size of a slice follows the time that the last one took.
"""

from __future__ import annotations

import asyncio
import time

SLICE_SECONDS = 0.005
"""After how many seconds of work on one read other tasks run."""
FIRST_BYTES = 4 * 1024
"""The size of the first slice of a response; a read that is not larger is not cut."""
LEAST_BYTES = 512
MOST_BYTES = 16 * 1024
_SHORT, _LONG = 0.001, 0.002  # seconds for a slice, below and above which the next one is larger or smaller


class ReadSlices:
    """The slices of large reads, one read after the other. `size` is that of the next slice."""

    __slots__ = ("_begin", "_last", "_start", "rest", "size")

    def __init__(self) -> None:
        self.size = FIRST_BYTES
        self.rest = b""  # the read, until its last slice was returned
        self._start = 0
        self._begin = self._last = 0.0  # when other tasks ran, and when the last slice was returned

    def first(self, data: bytes) -> bytes:
        """The first slice of a read that is larger than one."""
        self.rest, self._start = data, 0
        self._begin = self._last = time.monotonic()
        return self._next()

    async def next(self) -> bytes:
        """The next slice, after a turn of the event loop if the last ones took long."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        if seconds > _LONG:
            self.size = max(self.size // 2, LEAST_BYTES)
        elif seconds < _SHORT:
            self.size = min(self.size * 2, MOST_BYTES)
        if now - self._begin > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._begin = self._last = time.monotonic()
        return self._next()

    def _next(self) -> bytes:
        """The next slice, up to the end of a frame, which is decoded faster than a part of one."""
        data, start = self.rest, self._start
        end = start + self.size
        if end >= len(data):
            self.rest = b""
        elif (gap := data.rfind(b"\n\n", start, end)) >= 0:
            end = gap + 2
        self._start = end
        return data[start:end]
