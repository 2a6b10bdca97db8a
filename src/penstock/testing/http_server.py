"""The HTTP server of the loopback provider: aiohttp's, as lenient as real providers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

_MAX_REQUEST = 64 * 1024 * 1024
_REQUEST_LINE = re.compile(rb"[A-Z]+ [^ \r\n]+ HTTP/1\.[01]\r\n")
_FRAMING = (b"host", b"content-length", b"transfer-encoding")
"""Headers that are never joined: two of them are an attack on the framing of requests."""


class HTTPServer(web.Server):
    """A server for one handler of all requests."""

    def __init__(self, handle: Callable[[Any], Awaitable[web.StreamResponse]]) -> None:
        super().__init__(handle, request_factory=_request, access_log=None, handler_cancellation=True)

    def __call__(self) -> web.RequestHandler:
        return _RequestHandler(self, loop=self._loop, **self._kwargs)


class _RequestHandler(web.RequestHandler):
    """Reads requests in which a header occurs twice, such as the `User-Agent` of an SDK and of a library around it."""

    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        super().data_received(join_repeated_headers(data))


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    return web.BaseRequest(
        message, payload, protocol, writer, task, protocol._loop, client_max_size=_MAX_REQUEST
    )  # fmt: skip


def join_repeated_headers(data: bytes) -> bytes:
    """A read that begins a request, with the values of repeated headers joined by commas; any other read unchanged."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end or not _REQUEST_LINE.match(data):
        return data
    first, *lines = head.split(b"\r\n")
    headers: dict[bytes, list[bytes]] = {}
    for line in lines:
        headers.setdefault(line.partition(b":")[0].lower(), []).append(line)
    if all(len(repeated) == 1 for repeated in headers.values()):
        return data
    kept = [line for name, repeated in headers.items() for line in _joined(name, repeated)]
    return b"\r\n".join([first, *kept]) + end + body


def _joined(name: bytes, lines: list[bytes]) -> list[bytes]:
    if name in _FRAMING or len(lines) == 1:
        return lines
    values = (line.partition(b":")[2].strip() for line in lines)
    return [lines[0].partition(b":")[0] + b": " + b", ".join(values)]
