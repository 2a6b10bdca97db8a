"""The open WebSockets of a model, per event loop: which one a request is sent on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from weakref import WeakKeyDictionary, WeakSet

from penstock.transport.threads.forks import after_fork
from penstock.transport.websocket.open_socket import Place, WebSocket

MAX_UNUSED = 8
"""How many unused connections a model keeps open; the least recently used is closed, or takes the next request."""


class SocketPool:
    """The unused connections on one event loop, the least recently used first."""

    def __init__(self) -> None:
        self._idle: list[WebSocket] = []

    def take(self, place: Place, headers: Mapping[str, str]) -> WebSocket | None:
        """The connection of a place, if it is unused, and nothing was sent on it since."""
        is_there = place.socket in self._idle and place.number == place.socket.requests
        return self._use(place.socket) if is_there and self._suits(place.socket, headers) else None

    def take_any(self, last: WebSocket | None, headers: Mapping[str, str]) -> WebSocket | None:
        """A connection for a whole request: the last one of its conversation, or one of many unused ones.

        A server may remember something on the others, for a conversation that goes on later.
        """
        if last is not None and last in self._idle and self._suits(last, headers):
            return self._use(last)
        if len(self._idle) < MAX_UNUSED:
            return None
        oldest = next((socket for socket in self._idle if self._suits(socket, headers)), None)
        return None if oldest is None else self._use(oldest)

    def give_back(self, socket: WebSocket) -> None:
        """Keep a connection whose response is over for later requests."""
        socket.release()
        if not socket.is_usable:
            socket.abort()
            return
        socket.on_close = self._forget
        self._idle.append(socket)
        while len(self._idle) > MAX_UNUSED:
            self._idle[0].abort()

    def close(self) -> None:
        """Close the unused connections."""
        for socket in [*self._idle]:
            socket.abort()

    def _suits(self, socket: WebSocket, headers: Mapping[str, str]) -> bool:
        """Whether a connection can take a request: it was opened with the same key, and is not too old."""
        if not socket.is_usable:
            socket.abort()
        return socket.is_usable and socket.headers == headers

    def _use(self, socket: WebSocket) -> WebSocket:
        self._idle.remove(socket)
        socket.on_close = lambda _: None
        return socket

    def _forget(self, socket: WebSocket) -> None:
        if socket in self._idle:
            self._idle.remove(socket)


class SocketPools:
    """The pools of a model, by event loop."""

    def __init__(self) -> None:
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, SocketPool] = WeakKeyDictionary()
        _all.add(self)

    def of_loop(self) -> SocketPool:
        """The pool of the running event loop."""
        return self._pools.setdefault(asyncio.get_running_loop(), SocketPool())

    def close(self) -> None:
        """Close the unused connections of all event loops, soon."""
        for loop, pool in [*self._pools.items()]:
            with suppress(RuntimeError):  # the loop is closed, and so are its connections
                loop.call_soon_threadsafe(pool.close)

    def close_here(self) -> None:
        """Close the unused connections of the running event loop now, and those of others soon."""
        self.of_loop().close()
        self.close()

    def reset(self) -> None:
        """Start again in a child process, whose sockets are closed."""
        self._inherited = self._pools  # kept: freeing them would use the event loops of the parent
        self._pools = WeakKeyDictionary()


_all: WeakSet[SocketPools] = WeakSet()


def close_sockets() -> None:
    """Close the unused connections of all models, soon."""
    for pools in [*_all]:
        pools.close()


def _reset() -> None:
    for pools in [*_all]:
        pools.reset()


after_fork(_reset)
