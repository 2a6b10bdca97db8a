"""WebSocket for sync code: the connection of a stream lives on the event loop that drives sync runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from penstock.errors import ConnectionFailed
from penstock.transport.commands import HTTPResponseHead, OpenRequest
from penstock.transport.threads.loop_thread import LoopTask, LoopThread, driver_loop, shared_loop
from penstock.transport.websocket.async_websocket import AsyncWebSocketConnection

T = TypeVar("T")


class WebSocketConnection:
    """The connection of one stream in sync code. Only so its reader never stops, and it outlives the stream."""

    def __init__(self, connect: Callable[[], AsyncWebSocketConnection]) -> None:
        self._loop: LoopThread = shared_loop if driver_loop.is_here else driver_loop
        self._connection = connect()
        self._task: LoopTask | None = None
        self._has_entered = False

    def open(self, command: OpenRequest) -> HTTPResponseHead:
        """Send a request and return the head of the response."""
        if not self._has_entered:
            self._has_entered = True
            driver_loop.enter()  # which keeps it from being closed
        return self._wait_for(self._connection.open(command))

    def read(self, seconds: float | None) -> bytes:
        """The next data of the response, empty at its end."""
        return self._wait_for(self._connection.read(seconds))

    def abort(self) -> None:
        """Break the connection for good, from any thread; a wait in another thread ends at once."""
        self._connection.stop()
        if (task := self._task) is not None:
            task.stop()
        if self._has_entered:
            self._loop.call_soon(self._connection.abort)

    def close(self) -> None:
        """Leave the connection to later requests, if the response was read to its end; else close it."""
        if not self._has_entered:
            return
        try:
            self._loop.begin(self._connection.close(), copy_context()).result()
        finally:
            self._has_entered = False
            driver_loop.leave()

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        self._task = self._loop.begin(work, copy_context())
        try:
            result: T = self._task.result()
        except asyncio.CancelledError:
            raise ConnectionFailed("the connection was closed here") from None
        finally:
            self._task = None
        return result
