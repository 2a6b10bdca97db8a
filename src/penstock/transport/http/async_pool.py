"""The connection pools of async code: sessions of aiohttp, shared by all models on one event loop.

The loop owns its pools: a timer that never fires refers to them, and they refer to the loop. `asyncio.run` closes them
in order, because an event loop closes its async generators when it shuts down. A loop that is closed without that, or
dropped, frees its timers, and with them the pools, which then close their sockets themselves.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

from penstock.transport.http.pools import Address, SharedPools
from penstock.transport.http.proxies import is_socks
from penstock.transport.threads.forks import after_fork, close_in_children

_NEVER = 1e9
"""Seconds until the timer that holds the pools of a loop would fire."""


class LoopPools(SharedPools[Any]):
    """The pools of one event loop."""

    def __init__(self) -> None:
        super().__init__(self._new_session)
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._closing: dict[asyncio.Task[None], Any] = {}  # the sessions that tasks close

    async def aclose(self, origin: str = "") -> None:
        """Close the connections to an origin, or all; those of responses that are being read close with these."""
        self.close(origin)
        while tasks := {task for task in self._closing if not task.done()}:
            await asyncio.wait(tasks)

    async def close_now(self) -> None:
        """Close all connections, also of responses that are being read."""
        for session in self._take_all():
            await session.close()

    def discard(self) -> None:
        """Close the sockets of a closed loop."""
        for session in self._take_all():
            connector = session.connector
            session.detach()  # else it warns
            for transport in _transports(connector):
                _discard(transport)
            _run_now(connector.close())
        for sock in list(self._sockets):
            sock.close()

    def shut_down(self) -> None:
        """Break all connections at once, from any thread."""
        for sock in list(self._sockets):
            with suppress(OSError):  # it is closed already
                sock.shutdown(socket.SHUT_RDWR)

    def _close_unused(self) -> None:
        for session in self._pools.take_unused():
            task = asyncio.get_running_loop().create_task(session.close())
            self._closing[task] = session
            task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        if self._closing[task].closed:  # else the task was cancelled, because the loop ends
            del self._closing[task]

    def _take_all(self) -> list[Any]:
        sessions = [*self._pools.take_all(), *self._closing.values()]
        return [session for session in sessions if not session.closed]

    def _new_session(self, address: Address) -> Any:
        import aiohttp

        if is_socks(address.proxy):
            from aiohttp_socks import ProxyConnector

            connector: Any = ProxyConnector.from_url(_socks_url(address.proxy or ""), limit=0, rdns=True)
        else:
            connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=300, socket_factory=self._new_socket)
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # a cookie set for one API key must not be sent with another
            proxy=None if is_socks(address.proxy) else address.proxy,
            timeout=aiohttp.ClientTimeout(total=None),
        )

    def _new_socket(self, info: Any) -> socket.socket:
        family, kind, protocol, _, _ = info
        sock = socket.socket(family, kind, protocol)
        self._sockets.add(sock)
        close_in_children(sock)
        return sock


class _Owner:
    """Holds the pools of a loop, and discards them when the loop has released it."""

    def __init__(self, pools: LoopPools, generator: AsyncGenerator[None, None]) -> None:
        self.pools = pools
        self._generator = generator

    def hold(self) -> None:
        """The callback of the timer."""

    def __del__(self) -> None:
        self.pools.discard()


_owners: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_Owner]] = WeakKeyDictionary()


async def loop_pools() -> LoopPools:
    """The pools of the running event loop."""
    loop = asyncio.get_running_loop()
    known = _owners.get(loop)
    owner = None if known is None else known()
    if owner is None:
        pools = LoopPools()
        generator = _close_at_shutdown(pools)
        await anext(generator)
        owner = _Owner(pools, generator)
        loop.call_later(_NEVER, owner.hold)
        _owners[loop] = ref(owner)
    return owner.pools


async def _close_at_shutdown(pools: LoopPools) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await pools.close_now()


def close_pools(origin: str = "") -> None:
    """Close the connections to an origin, or all, of all event loops, without waiting for them."""
    for loop, known in list(_owners.items()):
        owner = known()
        if owner is None:
            continue
        if loop.is_closed():
            owner.pools.discard()
            continue
        if not loop.is_running() and not origin:
            owner.pools.shut_down()
        with suppress(RuntimeError):  # the loop was closed in the meantime
            loop.call_soon_threadsafe(owner.pools.close, origin)


async def aclose_pools(origin: str = "") -> None:
    """Close the connections to an origin, or all; those of this event loop are closed when this returns."""
    loop = asyncio.get_running_loop()
    close_pools(origin)
    if (known := _owners.get(loop)) is not None and (owner := known()) is not None:
        await owner.pools.aclose(origin)


def _socks_url(proxy: str) -> str:
    """The URL of a proxy for aiohttp_socks, where an option selects remote DNS."""
    return proxy.replace("socks5h://", "socks5://", 1)


def _run_now(awaitable: Awaitable[Any]) -> None:
    """Run a coroutine that does not wait for anything, without an event loop."""
    try:
        next(awaitable.__await__())
    except Exception:  # noqa: BLE001  # StopIteration at its end, or what the client makes of a closed loop
        pass


def _transports(connector: Any) -> list[Any]:
    """The transports of a connector, which has no public name for them."""
    idle = [protocol for connections in getattr(connector, "_conns", {}).values() for protocol, _ in connections]
    transports = (protocol.transport for protocol in (*idle, *getattr(connector, "_acquired", ())))
    return [transport for transport in transports if transport is not None]


def _discard(transport: Any) -> None:
    """Close a transport of a closed loop: its own `close` would need the loop, and it would warn."""
    tls = getattr(transport, "_ssl_protocol", None)
    if tls is not None:
        transport._closed = True
        transport = tls._transport
    with suppress(Exception):  # its protocol may try to use the loop, but the socket is closed
        transport._call_connection_lost(None)


def _reset() -> None:
    """Start again in a child process; the pools of the parent's loops are kept, as freeing them would use the loops."""
    _inherited.extend(owner for known in _owners.values() if (owner := known()) is not None)
    _owners.clear()


_inherited: list[_Owner] = []
after_fork(_reset)
