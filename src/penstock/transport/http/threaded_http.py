"""HTTP for the runs of sync code with the caller's own sync client: it blocks, so it is used in worker threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.transport.commands import HTTPResponseHead, OpenRequest
from penstock.transport.http.read_slices import ReadSlices
from penstock.transport.http.sync_http import HTTPConnection
from penstock.transport.threads.worker_threads import in_own_thread

T = TypeVar("T")


class ThreadedHTTPConnection:
    """The HTTP connection of one stream on an event loop, which uses a sync client."""

    def __init__(self, client: Any) -> None:
        self._connection = HTTPConnection(client)
        self._slices = ReadSlices()
        self._is_used = threading.Lock()  # by a thread: one that was left alone may still read

    async def open(self, command: OpenRequest) -> HTTPResponseHead:
        """Send a request and return the head of the response."""
        self._slices = ReadSlices()
        return await self._in_thread(lambda: self._connection.open(command))

    async def read(self, seconds: float | None) -> bytes:
        """The next bytes of the body, empty at its end."""
        if self._slices.rest:
            return await self._slices.next()
        data = await self._in_thread(lambda: self._connection.read(seconds))
        return data if len(data) <= self._slices.size else self._slices.first(data)

    def abort(self) -> None:
        """Break the connection now; the thread that reads ends soon."""
        self._connection.abort()

    async def close(self) -> None:
        """Close the connection."""
        await self._in_thread(self._connection.close)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        def work() -> T:
            with self._is_used:
                return call()

        try:
            return await in_own_thread(work, "model")
        except asyncio.CancelledError:
            self._connection.abort()
            raise
