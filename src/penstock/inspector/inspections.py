"""Keeps the latest exchanges, up to a cap, and notifies waiting readers of changes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from pathlib import Path

import msgspec

from penstock.inspector.entries import Ended, Note, Outcome, Responded, Summary
from penstock.inspector.exchange import (
    ERROR_STATUS,
    ExchangeRecorder,
    InspectedExchange,
    ProviderRequest,
    Received,
    ResponseEnd,
)
from penstock.model.recording import Recording, read_recordings
from penstock.transport.commands import HTTPRequest, HTTPResponseHead

MAX_EXCHANGES = 200
"""How many exchanges are kept; the oldest go first."""
MAX_BYTES = 64 * 1024 * 1024
"""How many bytes of all exchanges are kept; the oldest exchanges go first."""


class Inspections:
    """The last exchanges, in memory. As `record=` of a `Model`, it keeps each of its exchanges.

    Without `max_exchanges` and `max_bytes`, `MAX_EXCHANGES` and `MAX_BYTES` are kept.

    inspections = Inspections()
    model = penstock.Model("openai:gpt-5", record=inspections)
    app = penstock.inspector.app(inspections)
    """

    def __init__(self, max_exchanges: int = 0, max_bytes: int = 0) -> None:
        self._max_exchanges = max_exchanges or MAX_EXCHANGES
        self._max_bytes = max_bytes or MAX_BYTES
        self._exchanges: dict[str, InspectedExchange] = {}
        self._size = 0
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._changed: dict[str, int] = {}  # the number of the last change of each exchange
        self._changes = 0
        self._alert = ""
        self.is_closed = False
        self.reading: set[str] = set()  # the exchanges that a thread reads

    def open(self, id: str = "") -> InspectedExchange:
        """A new exchange; without an id, it gets one."""
        exchange = InspectedExchange(id or secrets.token_hex(8), changed=self._note)
        self._exchanges[exchange.id] = exchange
        self._note(exchange, 0)
        return exchange

    def recorder(self, wire: str, model: str, request: HTTPRequest) -> ExchangeRecorder:
        """Records the response to a request of a `Model` as an exchange of its own."""
        return WholeExchangeRecorder(self.open(), wire, model, request)

    def load(self, recordings: Iterable[Recording]) -> None:
        """Adds the exchanges of a recording."""
        for number, recording in enumerate(recordings, 1):
            _replay(recording, self.open(str(number)))

    def find(self, id: str) -> InspectedExchange | None:
        """The exchange with this id; None if it is unknown or no longer kept."""
        return self._exchanges.get(id)

    @property
    def alert(self) -> str:
        """What is wrong with the server itself, such as a mistake in its settings; the page shows it above all else."""
        return self._alert

    @alert.setter
    def alert(self, text: str) -> None:
        self._alert = text
        self._changes += 1
        self._wake()

    @property
    def changes(self) -> int:
        """The number of the last change."""
        return self._changes

    def summaries(self, after: int = 0) -> tuple[int, list[Summary]]:
        """The exchanges changed since this change number, and the number of the last change."""
        changed = [id for id, number in list(self._changed.items()) if number > after]
        return self._changes, [self._exchanges[id].summary() for id in changed if id in self._exchanges]

    async def wait(self, seconds: float) -> None:
        """Waits until something changes, or this many seconds."""
        event = asyncio.Event()
        self._waiting[event] = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(event, None)

    def close(self) -> None:
        """Ends the feeds of all readers."""
        self.is_closed = True
        self._wake()

    def _note(self, exchange: InspectedExchange, size: int) -> None:
        """Notes a change of an exchange, and drops the oldest exchanges over the cap."""
        if exchange.id not in self._exchanges:
            return  # it had to go
        self._size += size
        self._changes += 1
        self._changed[exchange.id] = self._changes
        while len(self._exchanges) > 1 and (len(self._exchanges) > self._max_exchanges or self._size > self._max_bytes):
            oldest = next(iter(self._exchanges))
            self._size -= self._exchanges.pop(oldest).kept_size
            self._changed.pop(oldest, None)
        self._wake()

    def _wake(self) -> None:
        for event, loop in list(self._waiting.items()):
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # the loop of a reader has been closed
                self._waiting.pop(event, None)


class WholeExchangeRecorder(ExchangeRecorder):
    """Records an exchange that consists of one request, and ends it."""

    _is_whole = False

    def begin(self, head: HTTPResponseHead, start: float, now: float) -> None:
        self._is_whole = False
        super().begin(head, start, now)

    def end(self, now: float) -> None:
        self._is_whole = True
        super().end(now)

    def close(self) -> None:
        has_failed = not self.status or self.status >= ERROR_STATUS
        outcome: Outcome = "failed" if has_failed else "complete" if self._is_whole else "cut"
        self._exchange.end(outcome)


def read_file(path: str | Path) -> Inspections:
    """The exchanges of a file written by `penstock record` or `record=` of a model."""
    recordings = read_recordings(path)
    inspections = Inspections(max_exchanges=max(len(recordings), 1), max_bytes=1 << 62)
    inspections.load(recordings)
    return inspections


def _replay(recording: Recording, exchange: InspectedExchange) -> None:
    """Adds a recorded exchange, with its own times."""
    request, response = recording.request, recording.response
    body = msgspec.json.encode(request.body)
    exchange.add(ProviderRequest(0.0, request.wire, request.model, request.url, body))
    exchange.add(Responded(response.at, response.status, response.headers))
    last = response.at
    for piece in recording.pieces:
        exchange.add(Received(piece.at, piece.data))
        last = piece.at
    exchange.add(ResponseEnd(last))
    if not recording.is_whole:
        exchange.add(Note(last, "the recording was interrupted"))
    is_failed = response.status >= ERROR_STATUS
    exchange.add(Ended(last, "failed" if is_failed else "complete" if recording.is_whole else "cut"))
    exchange.entries()
