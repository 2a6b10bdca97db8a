"""Connections to a provider: the protocols that a stream reads through, and the connector for HTTP."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.transport.commands import OpenRequest, ResponseHead


class Connection(Protocol):
    """A blocking connection: what a `Stream` reads from. `abort` may be called from any thread."""

    def open(self, command: OpenRequest) -> ResponseHead: ...
    def read(self, seconds: float | None) -> bytes: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class AsyncConnection(Protocol):
    """A connection on an event loop: what an `AsyncStream` reads from. `abort` breaks it at once, without waiting."""

    async def open(self, command: OpenRequest) -> ResponseHead: ...
    async def read(self, seconds: float | None) -> bytes: ...
    def abort(self) -> None: ...
    async def close(self) -> None: ...


class Connector(Protocol):
    """Makes the connections of a model: over HTTP, or to a script or a recording."""

    def connect(self) -> Connection: ...
    def aconnect(self) -> AsyncConnection: ...


class HTTPConnector:
    """Makes HTTP connections with the caller's client, or with the client that all models share."""

    def __init__(self, client: Any = None) -> None:
        self._client = client

    def connect(self) -> Connection:
        from penstock.transport.sync_http import HTTPConnection

        return HTTPConnection(self._client)

    def aconnect(self) -> AsyncConnection:
        from penstock.transport.async_http import AsyncHTTPConnection

        return AsyncHTTPConnection(self._client)
