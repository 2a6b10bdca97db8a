"""One request and its answer, without I/O: what to do next, when to try again, and what to tell.

`Exchange.commands` is a generator. A driver carries out each command, in its own colour, and sends back what came of
it, or throws what went wrong (a `ProviderError`) into the generator. The two drivers have nothing to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from itertools import count
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import ConnectionFailed, ProviderError, TimedOut
from penstock.events import Error, Retry, StreamChunk, ToolCall, Usage
from penstock.redaction import Mask
from penstock.transport.policy import HTTPRequest, Retries, Timeouts, response_error

MAX_ERROR_BODY = 64 * 1024
"""How many bytes of a refusal are read."""
_NOTABLE = frozenset({Error, ToolCall})


class OpenRequest(Struct, frozen=True):
    """Send the request; send back its `ResponseHead`."""

    request: HTTPRequest
    connect: float | None
    first_byte: float | None


class ResponseHead(Struct, frozen=True):
    """How an answer begins."""

    status: int
    headers: Mapping[str, str]


class ReadBytes(Struct, frozen=True):
    """Wait for the next bytes, at most so long; send them back, none at the end."""

    timeout: float | None


class ReadTimedOut(TimedOut):
    """A wait took longer than was allowed; which of the times is up, the exchange knows."""


class Sleep(Struct, frozen=True):
    """Wait."""

    seconds: float


class Deliver(Struct, frozen=True):
    """Give these to whoever reads the stream."""

    chunks: list[StreamChunk]


class CloseConnection(Struct, frozen=True):
    """Close the connection, if there is one."""


Command = OpenRequest | ReadBytes | Sleep | Deliver | CloseConnection
Commands = Generator[Command, Any, None]


class Decoding(Protocol):
    """What turns the bytes of an answer into events."""

    def feed(self, data: bytes) -> list[StreamChunk]: ...
    def close(self) -> list[StreamChunk]: ...


class Recorder(Protocol):
    """What keeps the bytes of an answer."""

    def begin(self, head: ResponseHead, asked: float, now: float) -> None: ...
    def add(self, data: bytes, now: float) -> None: ...
    def end(self, now: float) -> None: ...
    def close(self) -> None: ...


class Exchange:
    """A request and its answer, and the rules that they are under."""

    def __init__(
        self,
        request: HTTPRequest,
        decoder: Callable[[], Decoding],
        *,
        timeouts: Timeouts,
        retries: Retries,
        clock: Callable[[], float],
        calendar: Callable[[], float],
        recorder: Recorder | None = None,
    ) -> None:
        self._request = request
        self._new_decoder = decoder
        self._timeouts = timeouts
        self._retries = retries
        self._clock = clock
        self._calendar = calendar  # for a `Retry-After` that is a date
        self._mask = Mask(request.headers, request.url)
        self._recorder = recorder
        self._deadline: float | None = None
        self._due: float | None = None  # the deadline of the last wait
        self._idle = ReadBytes(timeouts.idle)  # the same for all waits, if there is no other limit
        self._attempt = 0
        self._has_begun = False
        self._has_event = False  # this attempt
        self._has_call = False

    def commands(self) -> Commands:
        """All that is to be done."""
        return self._attempts() if self._recorder is None else self._recorded(self._recorder)

    def _recorded(self, recorder: Recorder) -> Commands:
        try:
            yield from self._attempts()
        finally:
            recorder.close()

    def _attempts(self) -> Commands:
        self._deadline = _after(self._clock(), self._timeouts.total)
        for self._attempt in count():
            decoder = self._new_decoder()
            try:
                first = yield from self._opening()
                yield from self._answer(decoder, first)
                yield CloseConnection()
                return
            except ProviderError as why:
                error = self._too_late() if isinstance(why, ReadTimedOut) else why
            yield CloseConnection()
            delay = self._delay(self._attempt, error)
            if delay is None and not self._has_begun:
                raise error
            if delay is None:
                yield Deliver(
                    [Error(error.message, error.code or type(error).__name__, error.retryable), *decoder.close()]
                )
                return
            if self._has_begun:
                yield Deliver([Retry(error.message)])
            yield Sleep(delay)

    def _delay(self, attempt: int, error: ProviderError) -> float | None:
        """How long to wait before the next attempt; None if there is to be none."""
        if self._has_begun and (self._has_call or not self._retries.after_start):
            return None
        delay = self._retries.delay(attempt, error)
        is_too_long = delay is not None and self._deadline is not None and self._clock() + delay >= self._deadline
        return None if is_too_long else delay

    def _opening(self) -> Generator[Command, Any, float | None]:
        """Ask; until when there is to be an event."""
        started, self._has_event = self._clock(), False
        first = _earlier(_after(started, self._timeouts.first_event), self._deadline)
        left = self._left(first)
        head = yield OpenRequest(self._request, _earlier(self._timeouts.connect, left), left)
        if not 200 <= head.status < 300:
            body = yield from self._refusal(first)
            raise response_error(head.status, head.headers, body, self._calendar())
        if self._recorder is not None:
            self._recorder.begin(head, started, self._clock())
        return first

    def _answer(self, decoder: Decoding, first: float | None) -> Commands:
        is_empty, read = True, ReadBytes(self._left(first))
        held: list[StreamChunk] = []  # what is no beginning yet
        while data := (yield read):
            is_empty = False
            if self._recorder is not None:
                self._recorder.add(data, self._clock())
            if chunks := decoder.feed(data):
                self._has_event = True
                if not self._has_begun:
                    held += chunks
                    self._has_begun = is_begun = self._begins_with(held)
                    chunks, held = (held, []) if is_begun else ([], held)
            if chunks:
                yield Deliver(self._fit_to_tell(chunks))
            if read is not self._idle:
                read = self._next_read(first)
        if is_empty:
            raise ConnectionFailed("the provider closed the connection without an answer", retryable=True)
        if self._recorder is not None:
            self._recorder.end(self._clock())
        yield Deliver(self._fit_to_tell([*held, *decoder.close()]))

    def _begins_with(self, chunks: list[StreamChunk]) -> bool:
        """Whether an answer begins. An error that may go away is raised, if there is to be another attempt.

        Tokens alone are no beginning: they are counted before anything is said.
        """
        first = next((chunk for chunk in chunks if not isinstance(chunk, Usage)), None)
        if isinstance(first, Error) and first.retryable:
            first = self._masked(first)
            error = ProviderError(first.message, code=first.code, retryable=True, raw=first.raw)
            if self._delay(self._attempt, error) is not None:
                raise error
        return first is not None

    def _next_read(self, first: float | None) -> ReadBytes:
        if not self._has_event:  # keep-alives are no events
            return ReadBytes(self._left(first))
        if self._deadline is None:
            return self._idle
        return ReadBytes(self._left(_earlier(_after(self._clock(), self._timeouts.idle), self._deadline)))

    def _left(self, deadline: float | None) -> float | None:
        """How long there is to wait; raises if the time is up."""
        self._due = deadline
        if deadline is None:
            return None
        now = self._clock()
        if now >= deadline:
            raise ReadTimedOut("the time is up")
        return deadline - now

    def _too_late(self) -> TimedOut:
        """Which of the times is up."""
        if self._due is not None and self._due == self._deadline:
            return TimedOut(f"the answer took longer than {self._timeouts.total} seconds (timeouts.total)")
        if self._has_event:
            return TimedOut(f"nothing came for {self._timeouts.idle} seconds (timeouts.idle)", retryable=True)
        waited = f"no event came within {self._timeouts.first_event} seconds (timeouts.first_event)"
        return TimedOut(waited, retryable=True)

    def _refusal(self, deadline: float | None) -> Generator[Command, Any, bytes]:
        """The body of a refusal, as far as it is needed, with the key taken out should it repeat it."""
        pieces: list[bytes] = []
        try:
            while sum(map(len, pieces)) < MAX_ERROR_BODY and (data := (yield ReadBytes(self._left(deadline)))):
                pieces.append(data)
        except ProviderError:  # the status says enough
            pass
        return self._mask.data(b"".join(pieces))

    def _fit_to_tell(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The chunks, with the key taken out of errors should they repeat it; a call is noted."""
        if _NOTABLE.isdisjoint(map(type, chunks)):
            return chunks
        self._has_call = self._has_call or any(isinstance(chunk, ToolCall) for chunk in chunks)
        return [self._masked(chunk) if isinstance(chunk, Error) else chunk for chunk in chunks]

    def _masked(self, error: Error) -> Error:
        return replace(error, message=self._mask.value(error.message), raw=self._mask.value(error.raw))


def _after(now: float, seconds: float | None) -> float | None:
    return None if seconds is None else now + seconds


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)
