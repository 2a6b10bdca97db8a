"""The endpoints of the inspector: its page, the exchanges, and feeds of changes. They can be mounted anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from penstock.asgi.limits import ServerLimits
from penstock.asgi.page import Page
from penstock.asgi.request import HTTPRequest, RejectedRequest, Send
from penstock.asgi.response import respond, respond_json
from penstock.asgi.routes import Route
from penstock.asgi.stream import ResponseStream
from penstock.inspector.exchange import InspectedExchange
from penstock.inspector.inspections import Inspections
from penstock.inspector.quirk_table import quirk_json
from penstock.inspector.vectors import vector

Parts = Mapping[str, str]
InspectorEndpoint = Callable[[HTTPRequest, Send, Parts], Awaitable[None]]
CallEndpoint = Callable[[Any, Any], Awaitable[None]]

PREFIX = "/inspect"
"""Where the page is."""
SLICE = 64 * 1024
"""How many bytes of an exchange are read before the event loop gets a turn."""
BATCH = 250
"""How many entries are sent in one piece of a feed."""
PAUSE_SECONDS = 0.05
"""The shortest time between two pieces of a feed: changes in between are sent together."""
WAIT_SECONDS = 5.0
"""How long a feed waits for changes before it checks whether it still has a reader."""


class InspectorEndpoints:
    """The paths below `PREFIX` and their endpoints. All but the page show requests to models."""

    def __init__(self, inspections: Inspections, limits: ServerLimits | None = None) -> None:
        self.inspections = inspections
        self._limits = limits or ServerLimits()

    def routes(self) -> list[tuple[str, InspectorEndpoint]]:
        """The paths for `GET`, and their endpoints; the first one is the page, which holds no data."""
        return [
            (PREFIX, self.page),
            (f"{PREFIX}/quirks", self.quirks),
            (f"{PREFIX}/exchanges", self.list),
            (f"{PREFIX}/exchanges/{{id}}", self.show),
            (f"{PREFIX}/exchanges/{{id}}/recording", self.recording),
            (f"{PREFIX}/exchanges/{{id}}/vector", self.vector),
        ]

    def mounted(self) -> list[Route[CallEndpoint]]:
        """The routes for an app whose endpoints take a context and a call."""

        def adapted(endpoint: InspectorEndpoint) -> CallEndpoint:
            return lambda _context, call: endpoint(call.request, call.send, call.parts)

        return [Route("GET", path, adapted(endpoint)) for path, endpoint in self.routes()]

    async def page(self, request: HTTPRequest, send: Send, parts: Parts) -> None:
        """The page."""
        await page().respond(request, send)

    async def quirks(self, request: HTTPRequest, send: Send, parts: Parts) -> None:
        """The explanations of quirks, by number."""
        await respond(request, send, 200, quirk_json())

    async def list(self, request: HTTPRequest, send: Send, parts: Parts) -> None:
        """A feed of summaries: first all exchanges, then each changed one."""
        await ResponseStream(request, send, self._limits).send_all(self._summaries())

    async def show(self, request: HTTPRequest, send: Send, parts: Parts) -> None:
        """A feed of the entries of an exchange, from `?after=` on; it ends with the exchange."""
        feed = self._entries(self._find(parts), _count(request.query.get("after", "")))
        await ResponseStream(request, send, self._limits).send_all(feed)

    async def recording(self, request: HTTPRequest, send: Send, parts: Parts) -> None:
        """The exchange as a recording."""
        exchange = self._find(parts)
        headers = {"content-disposition": f'attachment; filename="{_file_name(exchange.id)}.jsonl"'}
        await respond(request, send, 200, exchange.recording(), "application/x-ndjson", headers)

    async def vector(self, request: HTTPRequest, send: Send, parts: Parts) -> None:
        """The last response of the exchange as a test vector."""
        exchange = self._find(parts)
        await respond_json(request, send, vector(exchange.entries(), exchange.turn()))

    def _find(self, parts: Parts) -> InspectedExchange:
        exchange = self.inspections.find(parts["id"])
        if exchange is None:
            raise RejectedRequest(404, "unknown_exchange", "there is no such exchange, or it is no longer kept")
        return exchange

    async def _summaries(self) -> AsyncIterator[bytes]:
        seen = 0

        def has_news() -> bool:
            return self.inspections.changes > seen

        while not self.inspections.is_closed:
            seen, summaries = self.inspections.summaries(seen)
            yield _piece(summaries)
            await self._pause(has_news)

    async def _entries(self, exchange: InspectedExchange, after: int) -> AsyncIterator[bytes]:
        while not self.inspections.is_closed:
            entries = exchange.entries(SLICE)
            while after < len(entries):
                batch = entries[after : after + BATCH]
                after += len(batch)
                yield _piece(batch)
            if exchange.has_news():
                await asyncio.sleep(0)
                continue
            if exchange.is_over:
                yield b"event: end\ndata: {}\n\n"
                return
            await self._pause(exchange.has_news)

    async def _pause(self, has_news: Callable[[], bool]) -> None:
        await asyncio.sleep(PAUSE_SECONDS)
        while not has_news() and not self.inspections.is_closed:
            await self.inspections.wait(WAIT_SECONDS)


def _count(text: str) -> int:
    """The number in a text; 0 if there is none."""
    try:
        return max(0, int(text))
    except ValueError:  # also if it has thousands of digits
        return 0


def _piece(values: object) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(values)


def _file_name(id: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in id)[:80]


@cache
def page() -> Page:
    """The page."""
    return Page(files("penstock.inspector").joinpath("page"))
