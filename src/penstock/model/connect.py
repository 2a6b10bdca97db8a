"""Connections to a provider: the protocols that a stream reads through, and the connector for HTTP."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Literal, Protocol

from penstock.errors import UsageError
from penstock.transport.commands import HTTPResponseHead, OpenRequest
from penstock.transport.http.pools import origin_of
from penstock.transport.threads.loop_thread import driver_loop
from penstock.wires import find_websocket

if TYPE_CHECKING:
    from penstock.transport.websocket.async_websocket import AsyncWebSocketConnection


class Connection(Protocol):
    """A blocking connection: what a `Stream` reads from. `abort` may be called from any thread."""

    def open(self, command: OpenRequest) -> HTTPResponseHead: ...
    def read(self, seconds: float | None) -> bytes: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class AsyncConnection(Protocol):
    """A connection on an event loop: what an `AsyncStream` reads from. `abort` breaks it at once, without waiting."""

    async def open(self, command: OpenRequest) -> HTTPResponseHead: ...
    async def read(self, seconds: float | None) -> bytes: ...
    def abort(self) -> None: ...
    async def close(self) -> None: ...


class Connector(Protocol):
    """Makes the connections of a model: over HTTP, or to a script or a recording."""

    def connect(self) -> Connection: ...
    def aconnect(self) -> AsyncConnection: ...


Transport = Literal["http", "websocket"]
"""How requests are sent."""


def new_connector(transport: Transport | None, client: Any, wire: str) -> HTTPConnector | WebSocketConnector:
    """The connector of a model; raises a `UsageError` if its protocol is not spoken over this transport."""
    if transport in (None, "http"):
        return HTTPConnector(client)
    if transport != "websocket":
        raise UsageError(f"transport must be 'http' or 'websocket', not {transport!r}")
    if (rules := find_websocket(wire)) is None:
        raise UsageError(f"the protocol {wire} is not spoken over WebSocket: choose another wire")
    return WebSocketConnector(rules, HTTPConnector(client))


class HTTPConnector:
    """Makes HTTP connections with the caller's client, or with the client that all models share."""

    def __init__(self, client: Any = None) -> None:
        self._client = client

    def connect(self) -> Connection:
        from penstock.transport.http.sync_http import HTTPConnection

        return HTTPConnection(self._client)

    def aconnect(self) -> AsyncConnection:
        from penstock.transport.http.async_http import AsyncHTTPConnection

        if driver_loop.is_here and self._client is not None:  # a run of sync code: its client blocks
            from penstock.transport.http.threaded_http import ThreadedHTTPConnection

            return ThreadedHTTPConnection(self._client)
        return AsyncHTTPConnection(self._client)

    def close(self, url: str) -> None:
        """Close the shared connections to the address of a URL; the caller's client stays open."""
        if self._client is None:
            from penstock.transport.http.async_pool import close_pools
            from penstock.transport.http.sync_pool import sync_pools

            sync_pools.close(origin_of(url))
            close_pools(origin_of(url))

    async def aclose(self, url: str) -> None:
        """Close the shared connections to the address of a URL; those of this event loop are closed afterwards."""
        if self._client is None:
            from penstock.transport.http.async_pool import aclose_pools

            self.close(url)
            await aclose_pools(origin_of(url))


class WebSocketConnector:
    """Makes connections over WebSockets, which the requests of a conversation share, with HTTP as the fallback."""

    def __init__(self, rules: Any, http: HTTPConnector) -> None:
        from penstock.transport.websocket.async_websocket import ConversationSockets, Sockets

        self._http = http
        self._sockets = Sockets(rules)
        self._conversation: ConversationSockets | None = None  # set in a copy for one conversation

    def for_conversation(self) -> WebSocketConnector:
        """A copy for the requests of one conversation."""
        from penstock.transport.websocket.async_websocket import ConversationSockets

        other = copy(self)
        other._conversation = ConversationSockets(self._sockets)
        return other

    def connect(self) -> Connection:
        from penstock.transport.websocket.sync_websocket import WebSocketConnection

        return WebSocketConnection(self._new)

    def aconnect(self) -> AsyncConnection:
        return self._new()

    def _new(self) -> AsyncWebSocketConnection:
        from penstock.transport.websocket.async_websocket import AsyncWebSocketConnection, ConversationSockets

        conversation = self._conversation or ConversationSockets(self._sockets)
        return AsyncWebSocketConnection(conversation, self._http.aconnect)

    def close(self, url: str) -> None:
        """Close the connections that no request uses."""
        self._sockets.pools.close()
        self._http.close(url)

    async def aclose(self, url: str) -> None:
        """Close the connections that no request uses; those of this event loop are closed afterwards."""
        self._sockets.pools.close_here()
        await self._http.aclose(url)
