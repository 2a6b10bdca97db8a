"""HTTP for async code: with aiohttp, or with the caller's own aiohttp session or async httpx client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from inspect import iscoroutinefunction
from math import inf
from typing import Any

from penstock.errors import UsageError
from penstock.transport.commands import HTTPResponseHead, OpenRequest, ReadTimedOut
from penstock.transport.http.async_pool import LoopPools, loop_pools
from penstock.transport.http.client_logs import redacted_logs
from penstock.transport.http.decompression import DecompressedContent, content_encoding
from penstock.transport.http.failures import client_error
from penstock.transport.http.pools import AnyPool
from penstock.transport.http.read_slices import ReadSlices


class AsyncHTTPConnection:
    """The HTTP connection of one stream, with a timeout for each read.

    One timer serves all reads, because setting one for each read is slow. When it fires, the read has timed out, or the
    deadline has moved since and the timer is set again.
    """

    def __init__(self, client: Any = None) -> None:
        if hasattr(client, "build_request") and not iscoroutinefunction(client.send):
            raise UsageError(f"astream() needs an async client, not {type(client).__module__}.Client; use stream()")
        self._client = client
        self._lease: tuple[LoopPools, AnyPool] | None = None
        self._command: OpenRequest
        self._response: Any = None
        self._content: Any = None
        self._deadline: float | None = None  # deadline of the current read
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf  # when it fires
        self._is_expired = False
        self._slices = ReadSlices()
        self._loop: asyncio.AbstractEventLoop

    async def open(self, command: OpenRequest) -> HTTPResponseHead:
        """Send a request and return the head of the response."""
        self._command, self._loop = command, asyncio.get_running_loop()
        self._is_expired, self._deadline, self._slices = False, None, ReadSlices()
        client = await self._pooled(command.request.url) if self._client is None else self._client
        try:
            async with asyncio.timeout(command.first_byte):
                self._response = await _send(client, command)
        except Exception as error:
            raise client_error(error, command) from error
        self._content = _content(self._response)
        status = getattr(self._response, "status_code", None) or self._response.status
        return HTTPResponseHead(status, dict(self._response.headers))

    async def _pooled(self, url: str) -> Any:
        """The session of the pool for a URL."""
        pools = await loop_pools()
        self._lease = pools, pools.lease(url)
        return self._lease[1].client

    async def read(self, seconds: float | None) -> bytes:
        """The next bytes of the body, empty at its end: those of a network read, or a slice of them."""
        slices = self._slices
        if slices.rest:
            return await slices.next()
        if seconds is not None:
            self._deadline = deadline = self._loop.time() + seconds
            if deadline < self._timer_at:
                self._set_timer()
        try:
            data: bytes = await self._content.readany()
        except Exception as error:
            if self._is_expired:
                raise ReadTimedOut("no data received in time") from None
            if getattr(self._content, "_buffer", None):  # data before the error, which the next read raises again
                return bytes(self._content._read_nowait(-1))
            raise client_error(error, self._command) from error
        finally:
            self._deadline = None  # the time between reads does not count
        if not data and (reset := _hidden_reset(self._response, self._content)) is not None:
            raise client_error(reset, self._command) from reset
        return data if len(data) <= slices.size else slices.first(data)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, inf
        if self._deadline is not None:
            self._timer, self._timer_at = self._loop.call_at(self._deadline, self._on_timer), self._deadline

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, inf
        if self._deadline is not None and self._loop.time() < self._deadline:
            self._set_timer()
        elif self._deadline is not None:
            self._is_expired = True
            self._content.set_exception(TimeoutError())

    def abort(self) -> None:
        """Break the connection now: the socket itself, because closing it takes another turn of the event loop."""
        if self._response is not None:
            _shut_down(self._response)
            if not hasattr(self._response, "aclose"):
                self._response.close()

    async def close(self) -> None:
        """Close the connection; it is reused only if the response was read to its end."""
        response, self._response, self._deadline = self._response, None, None
        self._set_timer()
        try:
            if response is not None:
                await _close(response)
        finally:
            if self._lease is not None:
                (pools, pool), self._lease = self._lease, None
                pools.release(pool)


async def _close(response: Any) -> None:
    """Close a response; afterwards its socket is closed, unless the connection can be reused."""
    if hasattr(response, "aclose"):
        await response.aclose()
    elif response.content.at_eof():
        response.release()
    else:
        _shut_down(response)
        response.close()
        await asyncio.sleep(0)  # the event loop closes the socket in its next turn


def _hidden_reset(response: Any, content: Any) -> Exception | None:
    """The error that broke the connection of a body without a length; aiohttp reports it as the end of the body."""
    protocol = getattr(content, "_protocol", None)
    if protocol is None or response.headers.keys() & {"Content-Length", "Transfer-Encoding"}:
        return None
    error = protocol.exception()
    return error if isinstance(error, OSError) else None


def _shut_down(response: Any) -> None:
    """Shut down the socket of a response of aiohttp or httpx, if it is still open."""
    if hasattr(response, "aclose"):
        transport = response.extensions.get("network_stream")
    else:
        transport = None if response.connection is None else response.connection.transport
    if transport is None or (hasattr(transport, "is_closing") and transport.is_closing()):
        return  # its file descriptor may soon belong to another socket
    sock = transport.get_extra_info("socket")
    if sock is not None:
        # A copy, as sockets of uvloop have no `shutdown`. It may be closed already, or not one of the operating system.
        with suppress(OSError, AttributeError), socket.fromfd(sock.fileno(), sock.family, sock.type) as copy:
            copy.shutdown(socket.SHUT_RDWR)


def _content(response: Any) -> Any:
    """The body of a response, decompressed here and not by the client."""
    encoding = content_encoding(response.headers)
    if not hasattr(response, "aiter_bytes"):
        return DecompressedContent(response.content, encoding) if encoding else response.content
    if encoding and not response.is_stream_consumed:  # a response of a mock transport may have been read
        return DecompressedContent(_HTTPXContent(response.aiter_raw()), encoding)
    return _HTTPXContent(response.aiter_bytes())


class _HTTPXContent:
    """The body of an httpx response with the interface of aiohttp's."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._read: asyncio.Task[Any] | None = None
        self._error: Exception | None = None

    async def readany(self) -> bytes:
        self._read = asyncio.ensure_future(anext(self._pieces, b""))
        try:
            data: bytes = await self._read
        except asyncio.CancelledError:
            if self._error is not None:
                raise self._error from None
            raise
        return data

    def set_exception(self, error: Exception) -> None:
        self._error = error
        if self._read is not None:
            self._read.cancel()


async def _send(client: Any, command: OpenRequest) -> Any:
    sent = command.request
    if hasattr(client, "build_request"):
        waits = {"connect": command.connect, "pool": command.connect}
        request = client.build_request(
            "POST", sent.url, headers=dict(sent.headers), content=sent.body, extensions={"timeout": waits}
        )
        with redacted_logs(sent):
            return await client.send(request, stream=True, follow_redirects=False)
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=command.connect)
    return await client.post(
        sent.url, headers=sent.headers, data=sent.body, allow_redirects=False, raise_for_status=False,
        timeout=timeout, auto_decompress=False,
    )  # fmt: skip
