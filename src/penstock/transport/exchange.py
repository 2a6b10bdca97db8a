"""One request and its response, without I/O: what to do next, when to retry, and which chunks to deliver.

`Exchange.commands` is a generator. A driver, sync or async, carries out each command and sends back its result, or
throws the `ProviderError` that it raised into the generator. The drivers decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import count
from typing import Any, Literal, Protocol

from msgspec import Struct

from penstock.errors import ConnectionFailed, ProviderError
from penstock.events import Error, Retry, StreamChunk, ToolCall, Usage
from penstock.redaction import Mask
from penstock.transport.commands import (
    CloseConnection,
    Command,
    Commands,
    Deliver,
    HTTPRequest,
    ReadTimedOut,
    ResponseHead,
    Sleep,
    SteadyBody,
)
from penstock.transport.deadlines import Deadlines
from penstock.transport.error_responses import response_error
from penstock.transport.policy import Retries, Timeouts
from penstock.transport.redacted import REDACTED, Redactor

MAX_ERROR_BODY = 64 * 1024
"""How many bytes of an error response are read."""
_NOTABLE = REDACTED | {ToolCall}


class Decoding(Protocol):
    """The stages that decode the bytes of a response into chunks."""

    def feed(self, data: bytes) -> list[StreamChunk]: ...
    def close(self) -> list[StreamChunk]: ...


class Recorder(Protocol):
    """Records the bytes of a response; `start` and `now` are readings of the exchange's clock."""

    def begin(self, head: ResponseHead, start: float, now: float) -> None: ...
    def add(self, data: bytes, now: float) -> None: ...
    def end(self, now: float) -> None: ...
    def close(self) -> None: ...


class Exchange(Struct, frozen=True, kw_only=True):
    """A request, and the rules for its response: how it is decoded, how long to wait, when to retry.

    `clock` measures durations; `calendar` is the time of day, for a `Retry-After` that is a date.
    """

    request: HTTPRequest
    new_decoding: Callable[[], Decoding]
    timeouts: Timeouts
    retries: Retries
    clock: Callable[[], float]
    calendar: Callable[[], float]
    recorder: Recorder | None = None

    def commands(self) -> Commands:
        """The commands that carry out this exchange."""
        try:
            yield from _Attempts(self).commands()
        finally:
            if self.recorder is not None:
                self.recorder.close()


class _Attempts:
    """The attempts at an exchange: until a response has been read to its end, or an error is not retried."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._deadlines = Deadlines(exchange.timeouts, exchange.clock)
        self._mask = Mask(exchange.request.headers, exchange.request.url)
        self._redactor = Redactor(self._mask)
        self._attempt = 0
        self._delivered: Literal["nothing", "chunks", "call"] = "nothing"  # in all attempts
        self._decoding: Decoding
        self._held: list[StreamChunk] = []  # chunks that do not begin the response yet

    def commands(self) -> Commands:
        for self._attempt in count():
            decoding = self._exchange.new_decoding()
            try:
                yield from self._open()
                yield from self._response(decoding)
                yield CloseConnection()
                return
            except ProviderError as failure:
                error = self._deadlines.error() if isinstance(failure, ReadTimedOut) else failure
            error = self._redactor.error(error)
            yield CloseConnection()
            delay = self._delay(error)
            if delay is None and self._delivered == "nothing":
                raise error
            if delay is None:
                chunk = Error(error.message, error.code or type(error).__name__, error.retryable)
                yield Deliver(self._noted([chunk, *decoding.close()]))
                return
            if self._delivered != "nothing":
                yield Deliver([Retry(error.message)])
            yield Sleep(delay)

    def _delay(self, error: ProviderError) -> float | None:
        """How long to wait before the next attempt; None if the error is not retried."""
        retries = self._exchange.retries
        if self._delivered == "call" or (self._delivered == "chunks" and not retries.after_start):
            return None
        delay = retries.delay(self._attempt, error)
        return delay if delay is not None and self._deadlines.allows(delay) else None

    def _open(self) -> Commands:
        """Send the request; raises for an error response."""
        exchange, start = self._exchange, self._exchange.clock()
        head = yield self._deadlines.open(exchange.request)
        if not 200 <= head.status < 300:
            body = yield from self._error_body()
            raise response_error(head.status, head.headers, body, exchange.calendar())
        if exchange.recorder is not None:
            exchange.recorder.begin(head, start, exchange.clock())

    def _response(self, decoding: Decoding) -> Commands:
        deadlines, body = self._deadlines, SteadyBody(self._exchange.timeouts.idle, self._feed)
        self._decoding, self._held, is_empty = decoding, [], True
        while data := (yield deadlines.read()):
            is_empty = False
            chunks = self._feed(data)
            if chunks and (yield Deliver(chunks, body if deadlines.are_steady else None)) is not None:
                break
        if is_empty:
            raise ConnectionFailed("the provider closed the connection without sending a response", retryable=True)
        if (recorder := self._exchange.recorder) is not None:
            recorder.end(self._exchange.clock())
        yield Deliver(self._noted([*self._held, *decoding.close()]))

    def _feed(self, data: bytes) -> list[StreamChunk]:
        """Decode bytes of the response; returns the chunks to deliver."""
        if (recorder := self._exchange.recorder) is not None:
            recorder.add(data, self._exchange.clock())
        chunks = self._decoding.feed(data)
        if self._delivered != "nothing" and _NOTABLE.isdisjoint(map(type, chunks)):
            self._deadlines.has_event |= bool(chunks)
            return chunks
        return self._noted(self._first(chunks)) if chunks else chunks

    def _first(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The chunks, or none as long as they do not begin a response."""
        self._deadlines.has_event = True
        if self._delivered == "nothing":
            self._held += chunks
            if not self._begins_with(self._held):
                return []
            self._delivered, chunks, self._held = "chunks", self._held, []
        return chunks

    def _begins_with(self, chunks: list[StreamChunk]) -> bool:
        """Whether these chunks begin a response. A retryable error is raised if there will be another attempt.

        Usage alone does not begin a response: some providers count the input tokens before they produce anything.
        """
        first = next((chunk for chunk in chunks if not isinstance(chunk, Usage)), None)
        if isinstance(first, Error) and first.retryable:
            error = ProviderError(first.message, code=first.code, retryable=True, raw=first.raw)
            if self._delay(error) is not None:
                raise error
        return first is not None

    def _error_body(self) -> Generator[Command, Any, bytes]:
        """The start of the body of an error response, with secrets masked before the body is truncated and parsed."""
        pieces: list[bytes] = []
        try:
            while sum(map(len, pieces)) < MAX_ERROR_BODY and (data := (yield self._deadlines.read())):
                pieces.append(data)
        except ProviderError:  # the status says enough
            pass
        return self._mask.data(b"".join(pieces))

    def _noted(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The chunks, with secrets masked should the server repeat them; notes whether there is a call."""
        if _NOTABLE.isdisjoint(map(type, chunks)):
            return chunks
        if any(isinstance(chunk, ToolCall) for chunk in chunks):
            self._delivered = "call"
        return [self._redactor.chunk(chunk) for chunk in chunks]
