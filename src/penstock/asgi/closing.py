"""Ends closing connections whose clients do not read the rest.

A closed transport first sends its buffer. If the client does not read it, the connection would stay open forever and
count towards the limit of connections.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

LONGEST_PAUSE = 1.0
"""The longest time between two checks, in seconds."""


class ClosingConnections:
    """The unsent bytes of closing connections, and since when their number is unchanged."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._left: dict[asyncio.WriteTransport, tuple[int, float]] = {}

    def end_stuck(self, transports: Iterable[asyncio.WriteTransport], now: float) -> None:
        """Abort connections whose clients have read nothing for too long."""
        before, self._left = self._left, {}
        for transport in transports:
            if not transport.is_closing():
                continue
            size = transport.get_write_buffer_size()
            last, since = before.get(transport, (size, now))
            if size < last:
                since = now
            self._left[transport] = size, since
            if now - since >= self._seconds:
                transport.abort()

    async def watch(self, protocols: Iterable[object]) -> None:
        """Look at the transports of these protocols again and again, until the task is cancelled."""
        while True:
            transports = [transport for each in protocols if (transport := getattr(each, "transport", None))]
            self.end_stuck(transports, time.monotonic())
            await asyncio.sleep(min(self._seconds / 4, LONGEST_PAUSE))
