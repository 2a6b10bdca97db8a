"""WebSocket for async code: the connection of one stream, with HTTP as its fallback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from penstock.errors import ConnectionFailed, ProviderError, TimedOut, UsageError
from penstock.transport.commands import NO_WEBSOCKET, ON_SOCKET, PLACE_LOST, HTTPResponseHead, OpenRequest, ReadTimedOut
from penstock.transport.http.failures import client_error
from penstock.transport.websocket.answer import Answer, FrameRules
from penstock.transport.websocket.open_socket import Place, WebSocket, connect
from penstock.transport.websocket.pool import SocketPool, SocketPools

NEVER_HERE = 426
"""The status with which a server refuses WebSocket for good."""
_AS_POST = (401, 429)
"""The statuses of a handshake that mean the same for a POST request; so do those from 500 on."""


class Fallback(Protocol):
    """A connection over HTTP."""

    async def open(self, command: OpenRequest) -> HTTPResponseHead: ...
    async def read(self, seconds: float | None) -> bytes: ...
    def abort(self) -> None: ...
    async def close(self) -> None: ...


class Sockets:
    """The WebSockets of a model; `is_refused` once its server has refused WebSocket for good."""

    def __init__(self, rules: FrameRules) -> None:
        self.rules = rules
        self.pools = SocketPools()
        self.is_refused = False


class ConversationSockets:
    """The WebSockets of one conversation: its last one, and whether it uses HTTP since a handshake failed."""

    def __init__(self, sockets: Sockets) -> None:
        self.sockets = sockets
        self.last: WebSocket | None = None
        self.has_failed = False

    @property
    def uses_http(self) -> bool:
        return self.has_failed or self.sockets.is_refused


class AsyncWebSocketConnection:
    """The connection of one stream on an event loop.

    It takes a WebSocket that is open, or opens one. Before anything was sent, a server that does not speak WebSocket is
    asked over HTTP; a request that continues on a WebSocket is never sent anywhere else.
    """

    def __init__(self, conversation: ConversationSockets, fallback: Callable[[], Fallback]) -> None:
        self._conversation = conversation
        self._rules = conversation.sockets.rules
        self._new_fallback = fallback
        self._fallback: Fallback | None = None
        self._pool: SocketPool
        self._socket: WebSocket | None = None
        self._answer = Answer(self._rules)
        self._data: list[bytes] = []
        self._failure: ProviderError | None = None  # raised once the data before it was read
        self._is_aborted = False

    async def open(self, command: OpenRequest) -> HTTPResponseHead:
        """Send a request and return the head of the response, once its first frame is there."""
        self._data, self._answer, self._failure = [], Answer(self._rules), None
        self._pool = self._conversation.sockets.pools.of_loop()
        try:
            async with asyncio.timeout(command.first_byte):
                if self._conversation.uses_http and not isinstance(command.request.place, Place):
                    return await self._open_fallback(command)
                self._socket = await self._find(command)
                if self._socket is not None:
                    return await self._send(self._socket, command)
                return self._answer.head or await self._open_fallback(command)
        except TimeoutError:
            raise ReadTimedOut("no response received in time") from None

    async def _find(self, command: OpenRequest) -> WebSocket | None:
        """The WebSocket for a request; None if the server refused to open one."""
        request = command.request
        if not isinstance(request.place, Place):
            return self._pool.take_any(self._conversation.last, request.headers) or await self._connect(command)
        if (socket := self._pool.take(request.place, request.headers)) is None:
            raise _place_lost()
        return socket

    async def _connect(self, command: OpenRequest) -> WebSocket | None:
        """Open a WebSocket; None if the server refused it: then HTTP is used, unless it would be refused as well."""
        conversation = self._conversation
        try:
            return await connect(command, self._rules)
        except UsageError:
            raise
        except Exception as error:
            conversation.has_failed = True
            response = getattr(error, "response", None) if type(error).__name__ == "InvalidStatus" else None
            if response is None:
                raise _handshake_error(error, command) from error
        if response.status_code in _AS_POST or response.status_code >= 500:
            self._answer.refuse(HTTPResponseHead(response.status_code, dict(response.headers)))
            self._data = [bytes(response.body or b"")]
        conversation.sockets.is_refused |= response.status_code == NEVER_HERE
        return None

    async def _send(self, socket: WebSocket, command: OpenRequest) -> HTTPResponseHead:
        answer = self._answer
        self._conversation.last = socket
        if self._is_aborted:
            socket.abort()
        try:
            await socket.send(self._rules.request(command.request.content))
        except ProviderError:
            if socket.requests == 1 or self._is_aborted:
                raise
            raise _place_lost() from None  # it was closed while nobody used it
        while answer.head is None:
            self._feed(await socket.frames(None))
            if self._failure is not None and answer.head is None:
                raise self._failure
        return HTTPResponseHead(answer.head.status, answer.head.headers, socket.place)

    async def _open_fallback(self, command: OpenRequest) -> HTTPResponseHead:
        if command.request.place == ON_SOCKET:
            raise ConnectionFailed("the server does not speak WebSocket", code=NO_WEBSOCKET)
        self._fallback = self._new_fallback()
        if self._is_aborted:
            self._fallback.abort()
        return await self._fallback.open(command)

    async def read(self, seconds: float | None) -> bytes:
        """The data of the frames that have arrived since, empty at the end of the response."""
        if self._fallback is not None:
            return await self._fallback.read(seconds)
        while not any(self._data) and not self._answer.is_over and self._socket is not None:
            try:
                frames = await self._socket.frames(seconds)
            except TimeoutError:
                raise ReadTimedOut("no data received in time") from None
            self._feed(frames)
        data, self._data = b"".join(self._data), []
        if self._failure is not None and not data:
            raise self._failure
        return data

    def _feed(self, frames: list[str | bytes]) -> None:
        """Read frames; the socket is closed if there are more after the end of the response."""
        answer = self._answer
        for frame in frames:
            if not answer.is_over:
                try:
                    self._data.append(answer.feed(frame))
                except ProviderError as error:  # raised after the data before it
                    self._failure = error
            elif isinstance(frame, bytes) or self._rules.read(frame).kind != "other":
                answer.phase = "broken"

    def stop(self) -> None:
        """Send nothing from here on, and shut down the socket if there is one; from any thread."""
        self._is_aborted = True
        if (socket := self._socket) is not None:
            socket.shut_down()

    def abort(self) -> None:
        """Break the connection now."""
        self._is_aborted = True
        if self._fallback is not None:
            self._fallback.abort()
        elif self._socket is not None:
            self._socket.abort()

    async def close(self) -> None:
        """Leave the WebSocket to later requests, if the response was read to its end; else close it."""
        socket, self._socket = self._socket, None
        fallback, self._fallback = self._fallback, None
        if fallback is not None:
            await fallback.close()
        if socket is None:
            return
        if self._answer.phase in ("ended", "refused") and not self._is_aborted:
            self._pool.give_back(socket)
        else:
            socket.abort()
            await asyncio.sleep(0)  # the event loop closes the socket in its next turn


def _place_lost() -> ConnectionFailed:
    """The error of a request on a connection that was closed or used since; nothing was sent."""
    return ConnectionFailed("the connection was closed or used since", code=PLACE_LOST, retryable=True)


def _handshake_error(error: Exception, command: OpenRequest) -> ProviderError:
    """The error for a connection that could not be opened."""
    if isinstance(error, TimeoutError):
        return TimedOut(f"no connection within {command.connect} seconds (timeouts.connect)", retryable=True)
    if isinstance(error, OSError):
        return client_error(error, command)
    host = command.request.server or urlsplit(command.request.url).netloc.rpartition("@")[2]
    return ConnectionFailed(f"the WebSocket handshake with {host} failed: {type(error).__name__}", retryable=True)
