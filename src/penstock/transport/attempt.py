"""One attempt at an exchange, without I/O: a request, and its response up to its end."""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.errors import ConnectionFailed, ProviderError, UnexpectedReplyError
from penstock.events import Error, Finish, Progress, StreamChunk, ToolCall, Unknown, Usage
from penstock.transport.commands import Command, Commands, Deliver, HTTPRequest, Parts, ReadTimedOut, SteadyBody
from penstock.transport.deadlines import Deadlines
from penstock.transport.error_responses import response_error
from penstock.transport.redacted import REDACTED, Redactor
from penstock.transport.retry_delay import body_delay
from penstock.transport.retry_rules import RetryRules

if TYPE_CHECKING:
    from penstock.transport.exchange import Exchange

MAX_ERROR_BODY = 64 * 1024
"""How many bytes of an error response are read; the rest is ignored."""
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
"""How many bytes of a response are read, without compression; beyond it, an `Error` with `response_too_large`."""
_NOTABLE = REDACTED | {ToolCall}
_SIGNS_OF_LIFE = (Usage, Unknown)


class Attempt:
    """One attempt at an exchange.

    A response ends with its end mark. Without one, it ends with the connection, or a moment after the provider sent the
    reason for the end; a timeout is then not an error.
    """

    def __init__(self, exchange: Exchange, deadlines: Deadlines, rules: RetryRules, redactor: Redactor) -> None:
        self.decoding = exchange.new_decoding()
        self._exchange = exchange
        self._deadlines = deadlines
        self._rules = rules
        self._redactor = redactor
        self._clock = exchange.clock
        self._recorder = exchange.recorder
        self._body = SteadyBody(exchange.timeouts.idle, self._feed, -inf, self._record if self._recorder else None)
        self._parts: Parts | None = getattr(self.decoding, "parts", None)
        self._progress: Progress = "open"
        self._size = 0
        self._held: list[StreamChunk] = []  # chunks that do not begin the response yet
        rules.begin()

    def commands(self) -> Commands:
        yield from self._open()
        yield from self._response()

    def _open(self) -> Commands:
        """Send the request; raises for an error response."""
        exchange, start = self._exchange, self._clock()
        request, memory = (yield from self._authorized()), exchange.memory
        head = yield self._deadlines.open(request if memory is None else memory.plan(request))
        if memory is not None:
            memory.begin(head)
        if not 200 <= head.status < 300:
            body = yield from self._error_body()
            if self._recorder is not None:
                self._recorder.refuse(head, body)
            raise response_error(head.status, head.headers, body, exchange.calendar(), exchange.request.server)
        self._rules.is_accepted = True
        if self._recorder is not None:
            self._recorder.begin(head, start, self._clock())

    def _response(self) -> Commands:
        while self._progress != "ended" and (data := (yield from self._next())) is not None:
            chunks = self._feed(data)
            if (chunks or self._has_parts) and (yield Deliver(chunks, self._steady_body())) is not None:
                break
        if not self._size:
            raise ConnectionFailed("the provider closed the connection without sending a response", retryable=True)
        chunks = [*self._held, *self.decoding.close()]
        self._check_end(chunks)
        yield Deliver(self._noted(chunks))
        if self._progress == "ended":
            yield from self._drain()
        if self._recorder is not None:
            self._recorder.end(self._clock())

    @property
    def _has_parts(self) -> bool:
        """Whether a part of the last read waits to be read by the stages."""
        return self._parts is not None and self._parts.has_more

    def _next(self) -> Generator[Command, Any, bytes | None]:
        """The next bytes to feed, empty for a part of the last read that waits; None at the end."""
        return b"" if self._has_parts else (yield from self._read()) or None

    def _read(self) -> Generator[Command, Any, bytes]:
        """The next bytes of the response; empty at its end, and if nothing follows the finish reason."""
        try:
            data: bytes = yield self._deadlines.read()
        except ProviderError as failure:
            is_late = self._progress != "open" and isinstance(failure, ReadTimedOut)
            if not is_late and not (self._progress == "finished" and failure.retryable):
                raise
            return b""
        return data

    def _drain(self) -> Commands:
        """Wait a moment for the end of the body; data after the end mark is only recorded."""
        try:
            while data := (yield self._deadlines.drain()):
                self._record(data)
        except ProviderError:
            pass

    def _check_end(self, chunks: list[StreamChunk]) -> None:
        """Raises if the response is incomplete and will be requested again."""
        is_cut = any(isinstance(chunk, Finish) and chunk.reason == "cut" for chunk in chunks)
        if is_cut and not any(isinstance(chunk, ToolCall) for chunk in chunks):
            self._rules.raise_if_retried(ConnectionFailed("the response ended before it was complete", retryable=True))

    def _feed(self, data: bytes) -> list[StreamChunk]:
        """Decode bytes of the response; returns the chunks to deliver. Raises if reading must stop."""
        if self._recorder is not None:
            self._record(data)
        self._size += len(data) + self._body.passed
        self._body.passed = 0
        if self._size > MAX_RESPONSE_BYTES:
            raise UnexpectedReplyError(
                f"the response is larger than {MAX_RESPONSE_BYTES} bytes (MAX_RESPONSE_BYTES)",
                code="response_too_large",
            )
        chunks = self.decoding.feed(data)
        if chunks:
            if not self._deadlines.has_event:
                self._deadlines.has_event = any(not isinstance(chunk, _SIGNS_OF_LIFE) for chunk in chunks)
            if self._rules.delivered == "nothing":
                self._held += chunks
                chunks = self._first()
            elif not _NOTABLE.isdisjoint(map(type, chunks)):
                chunks = self._noted(chunks)
        if self._parts is not None and self._parts.has_more:
            return chunks
        progress = self.decoding.progress()
        if progress != "open":
            self._note_end(progress, chunks)
        return chunks

    def _record(self, data: bytes) -> None:
        if self._recorder is not None:
            self._recorder.add(data, self._clock())

    def _note_end(self, progress: Progress, chunks: list[StreamChunk]) -> None:
        if progress != "finished":
            self._deadlines.end_grace()
        elif self._progress != "finished" or any(not isinstance(chunk, Unknown) for chunk in chunks):
            self._deadlines.begin_grace()
        self._progress, self._body.steady_until = progress, -inf

    def _steady_body(self) -> SteadyBody | None:
        """The body, if the reads that follow are steady."""
        if self._progress == "open":
            self._body.steady_until = self._deadlines.steady_until()
        return self._body if self._clock() <= self._body.steady_until else None

    def _first(self) -> list[StreamChunk]:
        """The held chunks, or none as long as they do not begin a response.

        Usage alone does not begin a response: some providers count the input tokens before they produce anything. Nor
        does what is unknown, for example a keep-alive that is sent as data.
        """
        first = next((chunk for chunk in self._held if not isinstance(chunk, _SIGNS_OF_LIFE)), None)
        if first is None:
            return []
        if isinstance(first, Error):
            self._rules.is_accepted = False  # the response is an error: nothing was done for the request
        chunks, self._held = self._noted(self._held), []
        if self._rules.delivered == "nothing":
            self._rules.delivered = "chunks"
        return chunks

    def _noted(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The chunks, with repeated secrets masked; notes whether there is a call.

        Raises errors of the provider that are retried.
        """
        if _NOTABLE.isdisjoint(map(type, chunks)):
            return chunks
        for chunk in chunks:
            if isinstance(chunk, ToolCall):
                self._rules.delivered = "call"
            elif isinstance(chunk, Error) and chunk.retryable and self._progress in ("open", "doubtful"):
                self._rules.raise_if_retried(_in_band_error(chunk))
        return [self._redactor.chunk(chunk) for chunk in chunks]

    def _authorized(self) -> Generator[Command, Any, HTTPRequest]:
        """The request, with credentials that are made for this attempt."""
        request, credentials = self._exchange.request, self._exchange.credentials
        if credentials is None:
            return request
        try:
            value = yield self._deadlines.authorize(credentials.call)
        except ReadTimedOut:
            raise self._deadlines.late_credentials() from None
        headers = credentials.headers(value)
        self._redactor.mask.learn(headers)
        if self._exchange.recorder is not None:
            self._exchange.recorder.hide(headers)
        return HTTPRequest(request.url, {**headers, **request.headers}, request.content, request.server)

    def _error_body(self) -> Generator[Command, Any, bytes]:
        """The start of the body of an error response, with secrets masked before the body is truncated and parsed."""
        body = bytearray()
        try:
            while len(body) < MAX_ERROR_BODY and (data := (yield self._deadlines.read_error())):
                body += data
        except ProviderError:  # the status says enough
            pass
        return self._redactor.mask.data(bytes(body))


def _in_band_error(error: Error) -> ProviderError:
    """The exception for an error that came in the stream."""
    delay = body_delay(error.raw)
    return ProviderError(error.message, code=error.code, retryable=True, retry_after=delay, raw=error.raw)
