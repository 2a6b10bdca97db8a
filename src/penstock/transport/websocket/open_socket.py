"""An open WebSocket: a reader that never stops, and the frames of the request that uses it.

The reader runs as long as the connection is open, also while nobody uses it: only so pings are answered, and the
announcement of its end is seen. A frame that arrives while no request waits for it is no part of any response: the
connection is then closed, unless the frame is one that means nothing to us.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from penstock.errors import ConnectionFailed, ProviderError, UnexpectedReplyError, UsageError
from penstock.transport.attempt import MAX_RESPONSE_BYTES
from penstock.transport.commands import OpenRequest
from penstock.transport.http.proxies import environment_proxy
from penstock.transport.threads.forks import close_in_children
from penstock.transport.websocket.answer import FrameRules

LIFETIME = 50 * 60.0
"""The seconds after which a connection takes no new request: servers close it after 60 minutes."""
MAX_UNREAD = MAX_RESPONSE_BYTES
"""How many bytes of frames may wait for their reader; a response may not have more."""
TOO_BIG = 1009
"""The code with which a connection is closed after a frame that is too large."""


class Place(Struct, frozen=True):
    """A connection right after one of its responses; the next request there ends it."""

    socket: WebSocket
    number: int


class WebSocket:
    """An open connection, and the requests that were sent on it."""

    def __init__(self, connection: Any, rules: FrameRules, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self.requests = 0  # how many were sent
        self.on_close: Callable[[WebSocket], None] = lambda _: None
        self._connection = connection
        self._rules = rules
        self._loop = asyncio.get_running_loop()
        self._opened = self._loop.time()
        self._frames: deque[str | bytes] = deque()
        self._size = 0
        self._is_used = False
        self._news: asyncio.Future[None] | None = None
        self._failure: ProviderError | None = None  # why it is closed
        self._descriptor = _Descriptor(connection)
        close_in_children(self._descriptor)
        self._reader = self._loop.create_task(self._read(), name="penstock-websocket")

    @property
    def is_usable(self) -> bool:
        """Whether a new request can be sent on it: it is open, unused and not too old."""
        is_fresh = self._loop.time() - self._opened < LIFETIME
        return self._failure is None and not self._is_used and is_fresh

    @property
    def place(self) -> Place:
        """Where the next request can continue."""
        return Place(self, self.requests)

    async def send(self, frame: bytes) -> None:
        """Send a request; its response is what `frames` returns from here on."""
        self.requests += 1
        self._is_used = True
        self._frames.clear()
        self._size = 0
        if self._failure is not None:
            raise self._failure
        try:
            await self._connection.send(frame, text=True)
        except Exception as error:
            raise self._closed(error) from error

    async def frames(self, seconds: float | None) -> list[str | bytes]:
        """The frames that have arrived, at least one; raises a `TimeoutError`, or why the connection is closed."""
        if not self._frames:
            if self._failure is not None:
                raise self._failure
            self._news = self._loop.create_future()
            try:
                async with asyncio.timeout(seconds):
                    await self._news
            finally:
                self._news = None
        if not self._frames and self._failure is not None:
            raise self._failure
        frames, self._size = [*self._frames], 0
        self._frames.clear()
        return frames

    def release(self) -> None:
        """The response is over: another request may use the connection."""
        self._is_used = False
        if self._frames:  # sent after the end of the response
            self._check_idle(self._frames)

    def abort(self) -> None:
        """Break the connection at once, on its event loop."""
        self.shut_down()
        self._fail(ConnectionFailed("the connection was closed here"))
        self._reader.cancel()
        self._connection.transport.abort()

    def shut_down(self) -> None:
        """Shut down the socket, from any thread: a wait on it ends soon."""
        transport = self._connection.transport
        if transport.is_closing():
            return
        sock = transport.get_extra_info("socket")
        with suppress(OSError, AttributeError), socket.fromfd(sock.fileno(), sock.family, sock.type) as copy:
            copy.shutdown(socket.SHUT_RDWR)

    async def _read(self) -> None:
        receive = self._connection.recv
        try:
            while True:
                frame = await receive()
                self._frames.append(frame)
                self._size += len(frame)
                if not self._is_used:
                    self._check_idle([frame])
                elif self._size > MAX_UNREAD:
                    raise UnexpectedReplyError(
                        f"more than {MAX_UNREAD} bytes of frames were not read (MAX_UNREAD)", code="response_too_large"
                    )
                if self._news is not None and not self._news.done():
                    self._news.set_result(None)
        except ProviderError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  # an exception of the library: whoever reads gets it
            self._fail(self._closed(error))
        finally:
            self._fail(ConnectionFailed("the event loop of the connection has ended"))
            self._connection.transport.abort()

    def _check_idle(self, frames: Any) -> None:
        """Forget frames that arrived while the connection was not used; closes it if they mean something."""
        is_harmless = all(isinstance(frame, str) and self._rules.read(frame).kind == "other" for frame in frames)
        self._frames.clear()
        self._size = 0
        if not is_harmless:
            self.abort()

    def _fail(self, error: ProviderError) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self.on_close(self)
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _closed(self, error: Exception) -> ProviderError:
        """The error for an exception of the library, which has the frames that closed the connection."""
        received, sent = getattr(error, "rcvd", None), getattr(error, "sent", None)
        if received is None and sent is not None and sent.code == TOO_BIG:
            return UnexpectedReplyError(
                f"a frame is larger than {MAX_RESPONSE_BYTES} bytes (MAX_RESPONSE_BYTES)", code="response_too_large"
            )
        if received is None:
            return ConnectionFailed("the WebSocket was closed without a close frame", retryable=True)
        reason = " ".join(received.reason.split())
        message = f"the server closed the WebSocket with the code {received.code}{f': {reason}' if reason else ''}"
        return ConnectionFailed(message, retryable=True)


class _Descriptor:
    """The file descriptor of a connection, which a child process closes without notifying the server."""

    def __init__(self, connection: Any) -> None:
        self._transport = connection.transport

    def close(self) -> None:
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            os.close(sock.fileno())


async def connect(command: OpenRequest, rules: FrameRules) -> WebSocket:
    """Open a connection for a request; raises what the library raises."""
    try:
        from penstock.transport.websocket.library import Connect
    except ImportError:
        raise UsageError("transport='websocket' needs another package: pip install 'penstock-llm[ws]'") from None
    request = command.request
    url = urlsplit(request.url)
    address = urlunsplit(url._replace(scheme="wss" if url.scheme == "https" else "ws"))
    tls: dict[str, Any] = {"ssl": _tls()} if url.scheme == "https" else {}
    connection = await Connect(
        address,
        additional_headers={name: value for name, value in request.headers.items() if name not in _BODY_HEADERS},
        user_agent_header=None,
        compression=None,
        proxy=environment_proxy(request.url),
        open_timeout=command.connect,
        ping_interval=20,
        ping_timeout=None,  # a server that is busy may answer late; the timeouts of the exchange decide
        close_timeout=1,
        max_size=MAX_RESPONSE_BYTES,
        logger=_SILENT,
        max_queue=None,  # the reader never stops, and counts the bytes
        **tls,
    )
    return WebSocket(connection, rules, request.headers)


_SILENT = logging.Logger("penstock.websockets", logging.CRITICAL)
"""The logger of the library, which would log the API key with the headers."""
_BODY_HEADERS = ("content-type", "accept-encoding")
"""The headers of a request that are about its body."""


@cache
def _tls() -> ssl.SSLContext:
    """The TLS settings of all connections, made once because the certificates take long to load."""
    return ssl.create_default_context()
