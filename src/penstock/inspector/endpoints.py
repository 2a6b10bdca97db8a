"""The endpoints of the inspector: its page, the exchanges, and feeds of changes. They can be mounted anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
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
from penstock.inspector.entries import Entry, FrameEntry, OddEntry, Requested, Responded
from penstock.inspector.exchange import InspectedExchange
from penstock.inspector.frame_reader import GENERAL
from penstock.inspector.inspections import Inspections
from penstock.inspector.quirk_table import quirk_json
from penstock.transport.threads.off_loop import run_off_loop

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
        """A feed of summaries: first all exchanges, then each changed one; and of alerts of the server."""
        await ResponseStream(request, send, self._limits).send_all(self._summaries())

    async def show(self, request: HTTPRequest, send: Send, parts: Parts) -> None:
        """A feed of the entries of an exchange, from `?after=` on; it ends with the exchange."""
        feed = self._entries(self._find(parts), _count(request.query.get("after", "")))
        await ResponseStream(request, send, self._limits).send_all(feed)

    async def recording(self, request: HTTPRequest, send: Send, parts: Parts) -> None:
        """The exchange as a recording."""
        exchange = self._find(parts)
        headers = {"content-disposition": f'attachment; filename="{_file_name(exchange.id)}.jsonl"'}
        lines = await run_off_loop(exchange.recording)
        await respond(request, send, 200, lines, "application/x-ndjson", headers)

    async def vector(self, request: HTTPRequest, send: Send, parts: Parts) -> None:
        """The last response of the exchange as a test vector."""
        exchange = self._find(parts)
        while exchange.has_news():
            await self._read(exchange)
            await asyncio.sleep(0)
        turn = await run_off_loop(exchange.turn)
        await respond_json(request, send, vector(exchange.entries(0), turn))

    def _find(self, parts: Parts) -> InspectedExchange:
        exchange = self.inspections.find(parts["id"])
        if exchange is None:
            raise RejectedRequest(404, "unknown_exchange", "there is no such exchange, or it is no longer kept")
        return exchange

    async def _summaries(self) -> AsyncIterator[bytes]:
        seen, alert = 0, self.inspections.alert

        def has_news() -> bool:
            return self.inspections.changes > seen

        yield _alert(alert)  # also an empty one: a page that reconnects may show an old one
        while not self.inspections.is_closed:
            seen, summaries = self.inspections.summaries(seen)
            yield _piece(summaries)
            if (text := self.inspections.alert) != alert:
                yield _alert(alert := text)
            await self._pause(has_news)

    async def _entries(self, exchange: InspectedExchange, after: int) -> AsyncIterator[bytes]:
        while not self.inspections.is_closed:
            entries = await self._read(exchange)
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

    async def _read(self, exchange: InspectedExchange) -> Sequence[Entry]:
        """The entries of an exchange, of which about a slice is read now; a long one in a thread."""
        reading = self.inspections.reading
        while exchange.id in reading:
            await self.inspections.wait(PAUSE_SECONDS)
        if not exchange.is_long(SLICE):
            return exchange.entries(SLICE)
        reading.add(exchange.id)
        try:
            return await run_off_loop(exchange.entries, SLICE)
        finally:
            reading.discard(exchange.id)

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


def _alert(text: str) -> bytes:
    return b"event: alert\n" + _piece(text)


def _file_name(id: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in id)[:80]


@cache
def page() -> Page:
    """The page."""
    return Page(files("penstock.inspector").joinpath("page"))


def vector(entries: list[Entry], turn: Any) -> dict[str, Any]:
    """The vector of the last response of an exchange; `turn` is the decoded response.

    It has the form of the files in tests/vectors, and lacks only a good name.
    """
    last = max((index for index, entry in enumerate(entries) if isinstance(entry, Requested | Responded)), default=0)
    wire = next((entry.wire for entry in reversed(entries) if isinstance(entry, Requested)), GENERAL)
    frames = [_frame(entry) for entry in entries[last:] if isinstance(entry, FrameEntry)]
    quirks = sorted({entry.quirk for entry in entries[last:] if isinstance(entry, OddEntry) and entry.quirk})
    return {"name": "name-me", "wire": wire, "quirks": quirks, "frames": frames, "expected": _expected(turn)}


def _frame(entry: FrameEntry) -> Any:
    """A frame as an object if encoding it gives the same bytes, else as text."""
    if entry.name == ":":
        return f"{entry.text}\n\n"
    if entry.name == "?":
        return entry.text
    try:
        value = msgspec.json.decode(entry.text)
    except (msgspec.MsgspecError, ValueError):
        return f"data: {entry.text}\n\n"
    is_named = isinstance(value, dict) and entry.name in ("", value.get("type"))
    return value if is_named else f"event: {entry.name}\ndata: {entry.text}\n\n"


def _expected(turn: Any) -> dict[str, Any]:
    expected: dict[str, Any] = {}
    for name in ("text", "reasoning", "refusal"):
        if value := getattr(turn, name):
            expected[name] = value
    if turn.tool_calls:
        expected["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in turn.tool_calls
        ]
    if turn.invalid_calls:
        expected["invalid_calls"] = [{"id": call.id, "name": call.name, "why": call.why} for call in turn.invalid_calls]
    if turn.unknown:
        expected["unknown"] = len(turn.unknown)
    if turn.error is not None:
        expected["error"] = turn.error.message
    return {**expected, "finish_reason": turn.finish_reason}
