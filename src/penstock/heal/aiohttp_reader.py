"""A middleware for sessions of aiohttp that heals responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import ClientRequest, ClientResponse, StreamReader

from penstock.heal.exchange import HealedExchange, Healer

Handler = Callable[[ClientRequest], Awaitable[ClientResponse]]
LIMIT = 2**16
"""The size of the buffer, as aiohttp has it."""


class HealedReader(StreamReader):
    """The body of a response, which is read from another reader and healed when somebody waits for more of it."""

    def __init__(self, inner: StreamReader, exchange: HealedExchange, response: ClientResponse) -> None:
        protocol: Any = inner._protocol
        super().__init__(protocol, LIMIT, loop=asyncio.get_running_loop())
        self._inner = inner
        self._exchange = exchange
        self._response = response

    async def _wait(self, func_name: str) -> None:
        """Read what comes next; aiohttp calls this when its buffer is empty."""
        exchange = self._exchange
        while not self._buffer and not self._eof:
            try:
                data = await self._inner.readany()
            except aiohttp.ClientError:
                for held in exchange.break_off():
                    self.feed_data(held)
                    return
                raise
            for healed in [exchange.stage.feed(data)] if data else exchange.end():
                self.feed_data(healed)
            if not data:
                self.feed_eof()


def middleware(healer: Healer) -> Callable[[ClientRequest, Handler], Awaitable[ClientResponse]]:
    """The middleware, for `aiohttp.ClientSession(middlewares=…)`."""

    async def heal(request: ClientRequest, handler: Handler) -> ClientResponse:
        response = await handler(request)
        exchange = await _begun(healer, request, response)
        if exchange is not None:
            response.content = HealedReader(response.content, exchange, response)
        return response

    return heal


async def _begun(healer: Healer, request: ClientRequest, response: ClientResponse) -> HealedExchange | None:
    if response.status != 200 or request.headers.get("content-encoding"):
        return None
    body: Any = request.body
    if not hasattr(body, "as_bytes"):
        return None
    try:
        content = await body.as_bytes()
    except (TypeError, ValueError, RuntimeError, OSError):  # a body that can be sent only once
        return None
    url = request.url
    kind = response.headers.get("content-type", "")
    return healer.begin(request.method, url.raw_path, url.raw_query_string, content, response.status, kind)
