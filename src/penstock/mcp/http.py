"""The HTTP client for a server: headers, timeouts, and a cap on the size of a response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any

import httpx2
import msgspec
from mcp.client.streamable_http import streamable_http_client
from mcp_types import INTERNAL_ERROR

from penstock.jsontext.error_text import named_message
from penstock.mcp.errors import ServerError
from penstock.mcp.stdio import too_large

_SECONDS = 30.0
_READ_SECONDS = 300.0  # within which the next byte of a response must come


class TooLargeError(httpx2.StreamError):
    """A response is larger than the cap. The SDK reports a `StreamError` to the call that waits."""


class Body(httpx2.AsyncByteStream):
    """A replacement for the body of a response: `body` is read only in part, or not at all."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def aclose(self) -> None:
        await self._body.aclose()


class Capped(Body):
    """The body of a response, with an error at the size limit."""

    def __init__(self, body: httpx2.AsyncByteStream, limit: int) -> None:
        super().__init__(body)
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._body:
            size += len(piece)
            if size > self._limit:
                raise TooLargeError(too_large(self._limit))
            yield piece


class Refused(Body):
    """A JSON-RPC error with this message, in place of the body of a response."""

    def __init__(self, body: httpx2.AsyncByteStream, message: str) -> None:
        super().__init__(body)
        self._message = message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        error = {"code": INTERNAL_ERROR, "message": self._message}
        yield msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})


Headers = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""The headers of requests, or a function that returns them for each request: keys expire."""


@asynccontextmanager
async def connect(url: str, headers: Headers, limit: int) -> AsyncGenerator[Any]:
    """The message streams of the server at this URL, open until the end of the context."""
    async with (
        http_client(headers, limit) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield streams


def http_client(headers: Headers, limit: int) -> httpx2.AsyncClient:
    """A client that rejects JSON responses over the limit; event streams have their own cap."""

    async def cap(response: httpx2.Response) -> None:
        body, kind = response.stream, response.headers.get("content-type", "").lower()
        if not isinstance(body, httpx2.AsyncByteStream):
            return
        if problem := _problem(response, kind):
            response.status_code = max(response.status_code, 400)  # so that the SDK looks for an error in the body
            response.headers["content-type"] = "application/json"
            response.headers.pop("content-encoding", None)
            response.stream = Refused(body, problem)
        elif not kind.startswith("text/event-stream"):
            response.stream = Capped(body, limit)

    async def add_headers(request: httpx2.Request) -> None:
        request.headers.update(await _called(headers))

    fixed = {} if callable(headers) else headers
    return httpx2.AsyncClient(
        headers={**fixed, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_SECONDS, read=_READ_SECONDS),
        event_hooks={"response": [cap], "request": [add_headers] if callable(headers) else []},
    )


async def _called(headers: Any) -> dict[str, str]:
    """The headers from the caller's function; it is called in a thread, as it may block."""
    try:
        value: Any = await asyncio.to_thread(headers)
        made = dict(await value if isawaitable(value) else value)
    except Exception as error:
        raise ServerError(f"the function for its headers raised {named_message(error)}") from error
    if not all(isinstance(text, str) for field in made.items() for text in field):
        raise ServerError("the function for its headers must return a dict of strings")
    return made


def _problem(response: httpx2.Response, kind: str) -> str:
    """Why the body of a response is not read; empty if it is. The SDK would not report the status."""
    status = response.status_code
    if status in (401, 403):
        return f"status {status}: it needs a key, as in headers={{'authorization': 'Bearer …'}}"
    if status == 405 and response.request.method == "POST":
        return f"status {status}: if it is a server of the older transport SSE, use tools(lambda: sse_client(url))"
    if status >= 400 and status != 404 and not kind.startswith("application/json"):  # 404: the session has ended
        return f"status {status}"
    if response.headers.get("content-encoding", "identity") != "identity":
        return "the response is compressed, which was not asked for"  # it may hide any size
    return ""
