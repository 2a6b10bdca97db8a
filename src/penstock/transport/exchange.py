"""One request and its response, without I/O: what to do next, when to retry, and which chunks to deliver.

`Exchange.commands` is a generator. A driver, sync or async, carries out each command and sends back its result, or
throws the `ProviderError` that it raised into the generator. The drivers decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from penstock.errors import ProviderError
from penstock.events import Error, Progress, Retry, StreamChunk
from penstock.redaction import Mask
from penstock.transport.attempt import Attempt
from penstock.transport.commands import (
    CloseConnection,
    Commands,
    Credentials,
    Deliver,
    HTTPRequest,
    ReadTimedOut,
    ResponseHead,
    Sleep,
)
from penstock.transport.deadlines import Deadlines
from penstock.transport.policy import Retries, Timeouts
from penstock.transport.redacted import Redactor
from penstock.transport.retry_rules import RetryRules


class Decoding(Protocol):
    """The stages that decode the bytes of a response into chunks."""

    def feed(self, data: bytes) -> list[StreamChunk]: ...
    def progress(self) -> Progress: ...
    def close(self) -> list[StreamChunk]: ...


class Recorder(Protocol):
    """Records the bytes of a response; `start` and `now` are readings of the exchange's clock."""

    def hide(self, headers: Mapping[str, str]) -> None: ...
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
    credentials: Credentials | None = None

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
        mask = Mask(self.request.headers, self.request.url)
        redactor = Redactor(mask)
        while True:
            attempt = Attempt(self, deadlines, rules, mask)
            try:
                yield from attempt.commands()
                yield CloseConnection()
                return
            except ProviderError as failure:
                error = deadlines.error() if isinstance(failure, ReadTimedOut) else failure
            error = redactor.error(error)
            yield CloseConnection()
            delay = rules.next_delay(error)
            if delay is None and rules.delivered == "nothing":
                raise error
            if delay is None:
                chunk = Error(error.message, error.code or type(error).__name__, error.retryable)
                yield Deliver([*map(redactor.chunk, [chunk, *attempt.decoding.close()])])
                return
            if rules.delivered != "nothing":
                yield Deliver([Retry(error.message)])
            yield Sleep(delay)
