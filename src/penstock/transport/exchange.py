"""One request and its response, without I/O: what to do next, when to retry, and which chunks to deliver.

`Exchange.commands` is a generator. A driver, sync or async, carries out each command and sends back its result, or
throws the `ProviderError` that it raised into the generator. The drivers decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from penstock.errors import ProviderError, RateLimitError
from penstock.events import Error, Progress, Retry, StreamChunk
from penstock.redaction import Mask
from penstock.transport.attempt import Attempt
from penstock.transport.commands import (
    CloseConnection,
    Commands,
    Credentials,
    Deliver,
    HTTPRequest,
    HTTPResponseHead,
    ReadTimedOut,
    Sleep,
)
from penstock.transport.deadlines import Deadlines
from penstock.transport.policy import Retries, Timeouts
from penstock.transport.redacted import Redactor
from penstock.transport.retry_rules import RetryRules

NOT_SENT = "not_sent"
"""The error code of a request that was not sent because of a shared rate limit."""


class Decoding(Protocol):
    """The stages that decode the bytes of a response into chunks."""

    def feed(self, data: bytes) -> list[StreamChunk]: ...
    def progress(self) -> Progress: ...
    def close(self) -> list[StreamChunk]: ...


class Recorder(Protocol):
    """Records the bytes of a response; `start` and `now` are readings of the exchange's clock.

    `refuse` is called with an error response, which may be followed by another response to the same request.
    """

    def hide(self, headers: Mapping[str, str]) -> None: ...
    def refuse(self, head: HTTPResponseHead, body: bytes) -> None: ...
    def begin(self, head: HTTPResponseHead, start: float, now: float) -> None: ...
    def add(self, data: bytes, now: float) -> None: ...
    def end(self, now: float) -> None: ...
    def close(self) -> None: ...


class SendTime(Protocol):
    """When a request may be sent: at `start`, after a pause that ends at `until`."""

    @property
    def start(self) -> float: ...
    @property
    def until(self) -> float: ...


class SharedLimit(Protocol):
    """A rate limit that this exchange shares with others: see `shared_limits`."""

    def pause(self, now: float, seconds: float) -> None: ...
    def next_send(self, now: float) -> SendTime | None: ...
    def is_current(self, time: Any, /) -> bool: ...


class Memory(Protocol):
    """What the server remembers of a conversation, so that a request need not repeat it.

    `plan` returns the request to send, which may continue from what is remembered. `is_lost` is called with the error
    of a request before any event was delivered: True if the server had forgotten it, and the next plan is whole.
    """

    def plan(self, request: HTTPRequest) -> HTTPRequest: ...
    def begin(self, head: HTTPResponseHead) -> None: ...
    def is_lost(self, error: ProviderError) -> bool: ...


class Exchange(Struct, frozen=True, kw_only=True):
    """A request, and the rules for its response: how it is decoded, how long to wait, when to retry.

    `clock` measures durations; `calendar` is the time of day, for a `Retry-After` that is a date. `limit` is the rate
    limit that it shares with other exchanges, `memory` what the server remembers of the conversation.
    """

    request: HTTPRequest
    new_decoding: Callable[[], Decoding]
    timeouts: Timeouts
    retries: Retries
    clock: Callable[[], float]
    calendar: Callable[[], float]
    recorder: Recorder | None = None
    credentials: Credentials | None = None
    limit: SharedLimit | None = None
    memory: Memory | None = None

    def commands(self) -> Commands:
        """The commands that carry out this exchange."""
        try:
            yield from self._attempts()
        finally:
            if self.recorder is not None:
                self.recorder.close()

    def _attempts(self) -> Commands:
        """Send the request until a response has been read to its end, or an error is not retried."""
        deadlines = Deadlines(self.timeouts, self.clock)
        rules = RetryRules(self.retries, deadlines)
        redactor = Redactor(Mask(self.request.headers, self.request.url))
        while True:
            attempt = Attempt(self, deadlines, rules, redactor)
            try:
                yield from self._wait_for_limit(deadlines)
                yield from attempt.commands()
                yield CloseConnection()
                return
            except ProviderError as failure:
                error = deadlines.error() if isinstance(failure, ReadTimedOut) else failure
            error = redactor.error(error)
            yield CloseConnection()
            if self.memory is not None and rules.delivered == "nothing" and self.memory.is_lost(error):
                rules.repeat()  # the whole request, at once: nothing has failed
                continue
            delay = rules.next_delay(error)
            self._share(error, delay)
            if delay is None and rules.delivered == "nothing":
                raise error
            if delay is None:
                chunk = Error(error.message, error.code or type(error).__name__, error.retryable)
                yield Deliver([*map(redactor.chunk, [chunk, *attempt.decoding.close()])])
                return
            if rules.delivered != "nothing":
                yield Deliver([Retry(error.message)])
            yield Sleep(delay)

    def _share(self, error: ProviderError, delay: float | None) -> None:
        """Let others wait too, if this error is a rate limit."""
        is_limit = isinstance(error, RateLimitError) or error.retry_after is not None
        if self.limit is not None and is_limit and error.retryable and error.code != NOT_SENT:
            self.limit.pause(self.clock(), error.retry_after or delay or 0.0)

    def _wait_for_limit(self, deadlines: Deadlines) -> Commands:
        """Wait until a rate limit that another exchange met ends; raises if that takes too long."""
        if self.limit is None or not self.retries.attempts:
            return
        while (time := self.limit.next_send(now := self.clock())) is not None:
            wait = time.until - now
            if wait > self.retries.longest_wait or not deadlines.allows(time.start - now):
                message = f"the request was not sent: the provider limits the rate for {wait:.1f} seconds more"
                raise RateLimitError(message, code=NOT_SENT, retryable=True, retry_after=max(0.0, wait))
            yield Sleep(time.start - now, is_retry=False)
            if self.limit.is_current(time):
                return
