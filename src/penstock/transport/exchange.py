"""One request and its answer, without I/O: what to do next, when to try again, and what to tell.

`exchange` is a generator of commands. A driver carries each out, in its own colour, and sends back what came of it, or
throws what went wrong (a `ProviderError`) into the generator. The two drivers have nothing to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from itertools import count
from typing import Any, Protocol

from msgspec import Struct

from penstock.errors import ConnectionFailed, ProviderError, TimedOut
from penstock.events import Error, Retry, StreamChunk, ToolCall
from penstock.transport.policy import Outgoing, Retries, Timeouts, error_of

MAX_ERROR_BODY = 64 * 1024
"""How many bytes of a refusal are read."""


class Open(Struct, frozen=True):
    """Send the request; send back its `Head`."""

    outgoing: Outgoing
    connect: float | None
    first_byte: float | None


class Head(Struct, frozen=True):
    """How an answer begins."""

    status: int
    headers: Mapping[str, str]


class Read(Struct, frozen=True):
    """Wait for the next bytes, at most so long; send them back, none at the end."""

    timeout: float | None


class ReadTimedOut(TimedOut):
    """A wait took longer than was allowed; which of the times is up, the exchange knows."""


class Pause(Struct, frozen=True):
    """Wait."""

    seconds: float


class Tell(Struct, frozen=True):
    """Give these to whoever reads the stream."""

    chunks: list[StreamChunk]


class Close(Struct, frozen=True):
    """Close the connection, if there is one."""


Command = Open | Read | Pause | Tell | Close
Commands = Generator[Command, Any, None]


class Stage(Protocol):
    """What turns the bytes of an answer into events."""

    def feed(self, data: bytes) -> list[StreamChunk]: ...
    def close(self) -> list[StreamChunk]: ...


class Tape(Protocol):
    """What keeps the bytes of an answer."""

    def begin(self, head: Head, now: float) -> None: ...
    def add(self, data: bytes, now: float) -> None: ...
    def end(self, now: float) -> None: ...


class Exchange:
    """A request and its answer, and the rules that they are under."""

    def __init__(
        self,
        outgoing: Outgoing,
        decoder: Callable[[], Stage],
        *,
        timeouts: Timeouts,
        retries: Retries,
        clock: Callable[[], float],
        secrets: tuple[str, ...] = (),
        tape: Tape | None = None,
    ) -> None:
        self._outgoing = outgoing
        self._new_decoder = decoder
        self._timeouts = timeouts
        self._retries = retries
        self._clock = clock
        self._secrets = [secret.encode() for secret in secrets if len(secret) >= 4]
        self._tape = tape
        self._deadline = _after(clock(), timeouts.total)
        self._has_begun = False
        self._has_call = False

    def commands(self) -> Commands:
        """All that is to be done, attempt after attempt."""
        for attempt in count():
            decoder = self._new_decoder()
            try:
                yield from self._attempt(decoder)
                return
            except ProviderError as why:
                error = self._too_late() if isinstance(why, ReadTimedOut) else why
            yield Close()
            delay = self._retries.delay(attempt, error) if self._may_begin_anew else None
            if delay is None and not self._has_begun:
                raise error
            if delay is None:
                yield Tell(
                    [Error(error.message, error.code or type(error).__name__, error.retryable), *decoder.close()]
                )
                return
            if self._has_begun:
                yield Tell([Retry(error.message)])
            yield Pause(delay)

    @property
    def _may_begin_anew(self) -> bool:
        return not self._has_begun or (self._retries.after_start and not self._has_call)

    def _attempt(self, decoder: Stage) -> Commands:
        started = self._clock()
        first = _earlier(_after(started, self._timeouts.first_event), self._deadline)
        head = yield Open(self._outgoing, self._timeouts.connect, self._left(first))
        if not 200 <= head.status < 300:
            body = yield from self._refusal(first)
            raise error_of(head.status, head.headers, body, self._clock())
        if self._tape is not None:
            self._tape.begin(head, self._clock())
        yield from self._answer(decoder, first)
        yield Close()

    def _answer(self, decoder: Stage, first: float | None) -> Commands:
        is_empty = True
        deadline = first
        while data := (yield Read(self._left(deadline))):
            is_empty = False
            if self._tape is not None:
                self._tape.add(data, self._clock())
            if chunks := decoder.feed(data):
                self._begun(chunks)
                yield Tell(chunks)
            deadline = self._next_deadline(first)
        if is_empty and not self._has_begun:
            raise ConnectionFailed("the provider closed the connection without an answer", retryable=True)
        if self._tape is not None:
            self._tape.end(self._clock())
        yield Tell(decoder.close())

    def _begun(self, chunks: list[StreamChunk]) -> None:
        self._has_begun = True
        self._has_call = self._has_call or any(isinstance(chunk, ToolCall) for chunk in chunks)

    def _next_deadline(self, first: float | None) -> float | None:
        if not self._has_begun:  # keep-alives are no events
            return first
        return _earlier(_after(self._clock(), self._timeouts.idle), self._deadline)

    def _left(self, deadline: float | None) -> float | None:
        """How long there is to wait; raises if the time is up."""
        if deadline is None:
            return None
        now = self._clock()
        if now >= deadline:
            raise ReadTimedOut("the time is up")
        return deadline - now

    def _too_late(self) -> TimedOut:
        """Which of the times is up."""
        if self._deadline is not None and self._clock() >= self._deadline:
            return TimedOut(f"the answer took longer than {self._timeouts.total} seconds (timeouts.total)")
        if self._has_begun:
            return TimedOut(f"nothing came for {self._timeouts.idle} seconds (timeouts.idle)", retryable=True)
        waited = f"no event came within {self._timeouts.first_event} seconds (timeouts.first_event)"
        return TimedOut(waited, retryable=True)

    def _refusal(self, deadline: float | None) -> Generator[Command, Any, bytes]:
        """The body of a refusal, as far as it is needed, with the key taken out should it repeat it."""
        pieces: list[bytes] = []
        try:
            while sum(map(len, pieces)) < MAX_ERROR_BODY and (data := (yield Read(self._left(deadline)))):
                pieces.append(data)
        except ProviderError:  # the status says enough
            pass
        body = b"".join(pieces)
        for secret in self._secrets:
            body = body.replace(secret, b"***")
        return body


def _after(now: float, seconds: float | None) -> float | None:
    return None if seconds is None else now + seconds


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)
