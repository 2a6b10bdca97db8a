"""The HTTP client for a server: headers, timeouts, and a cap on the size of a response."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from penstock.mcp.stdio import too_large

_SECONDS = 30.0
_READ_SECONDS = 300.0  # within which the next byte of a response must come


class TooLargeError(httpx2.StreamError):
    """A response is larger than the cap. The SDK reports a `StreamError` to the call that waits."""


class Capped(httpx2.AsyncByteStream):
    """The body of a response, which ends with an error at the cap."""

    def __init__(self, body: httpx2.AsyncByteStream, limit: int) -> None:
        self._body = body
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._body:
            size += len(piece)
            if size > self._limit:
                raise TooLargeError(too_large(self._limit))
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


@asynccontextmanager
async def connect(url: str, headers: Mapping[str, str], limit: int) -> AsyncGenerator[Any]:
    """The streams of messages of a server at this URL, open until the end of the context."""
    async with (
        http_client(headers, limit) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield streams


def http_client(headers: Mapping[str, str], limit: int) -> httpx2.AsyncClient:
    """A client that refuses whole responses over the limit; those in a stream of events have their own cap."""

    async def cap(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise TooLargeError("the response is compressed, which was not asked for")  # it may hide any size
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if not is_stream and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = Capped(response.stream, limit)

    return httpx2.AsyncClient(
        headers={**headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_SECONDS, read=_READ_SECONDS),
        event_hooks={"response": [cap]},
    )
