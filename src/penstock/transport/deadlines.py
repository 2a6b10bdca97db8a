"""The time limits of an exchange: the timeout of each wait, and the error for the limit that was exceeded."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from penstock.errors import TimedOut
from penstock.transport.commands import Authorize, HTTPRequest, OpenRequest, ReadBytes, ReadTimedOut
from penstock.transport.policy import Timeouts

GRACE = 0.5
"""The seconds to wait for token counts and for the end mark after the reason for the end."""
REUSE_WAIT = 0.05
"""The seconds to wait after the end mark for the end of the body, without which a connection cannot be reused."""


class Deadlines:
    """The deadlines of one exchange, whose total time begins now, and of its current attempt."""

    def __init__(self, timeouts: Timeouts, clock: Callable[[], float]) -> None:
        self._timeouts = timeouts
        self._clock = clock
        self._total = _after(clock(), timeouts.total)
        self._first_event: float | None = None
        self._grace: float | None = None  # the deadline after the reason for the end
        self._drain: float | None = None
        self._last: float | None = None  # the deadline of the last wait
        self.has_event = False

    def authorize(self, call: Callable[[], Any]) -> Authorize:
        """The command for credentials, with the timeout of the first event."""
        return Authorize(call, self._left(_earlier(_after(self._clock(), self._timeouts.first_event), self._total)))

    def late_credentials(self) -> TimedOut:
        """The error for late credentials, which is not retried."""
        if self._last == self._total:
            return self.error()
        limit = f"{self._timeouts.first_event} seconds (timeouts.first_event)"
        return TimedOut(f"the function that returns the credentials took longer than {limit}")

    def open(self, request: HTTPRequest) -> OpenRequest:
        """Begin an attempt."""
        self.has_event, self._grace, self._drain = False, None, None
        self._first_event = _earlier(_after(self._clock(), self._timeouts.first_event), self._total)
        left = self._left(self._first_event)
        return OpenRequest(request, _earlier(self._timeouts.connect, left), left)

    def read_error(self) -> ReadBytes:
        """The next read of an error response, which must end within the time for the first event."""
        return ReadBytes(self._left(self._first_event))

    def read(self) -> ReadBytes:
        """The next read of a response. Before the first event, all data is a sign of life: each wait begins again."""
        seconds = self._timeouts.idle if self.has_event else self._timeouts.first_event
        deadline = _earlier(_after(self._clock(), seconds), self._total)
        return ReadBytes(self._left(_earlier(deadline, self._grace)))

    def drain(self) -> ReadBytes:
        """The next read after the end mark."""
        if self._drain is None:
            self._drain = self._clock() + REUSE_WAIT
        return ReadBytes(self._left(self._drain))

    def begin_grace(self) -> None:
        """Limit the wait from now on, because the provider has sent the reason for the end."""
        self._grace = self._clock() + GRACE

    def end_grace(self) -> None:
        """Wait as long as before: the response continues."""
        self._grace = None

    def steady_until(self) -> float:
        """The time until which each wait of a response that has begun is the idle timeout."""
        self._last = None  # the total time is not exceeded by such a wait
        if self._total is None:
            return inf
        return -inf if self._timeouts.idle is None else self._total - self._timeouts.idle

    def allows(self, delay: float) -> bool:
        """Whether there is time left after a delay."""
        return self._total is None or self._clock() + delay < self._total

    def error(self) -> TimedOut:
        """The error for the last wait: which time limit it exceeded."""
        if self._last is not None and self._last == self._total:
            return TimedOut(f"the response took longer than {self._timeouts.total} seconds (timeouts.total)")
        if self.has_event:
            return TimedOut(f"no data received for {self._timeouts.idle} seconds (timeouts.idle)", retryable=True)
        limit = f"{self._timeouts.first_event} seconds (timeouts.first_event)"
        return TimedOut(f"no event received within {limit}", retryable=True)

    def _left(self, deadline: float | None) -> float | None:
        """The seconds until a deadline; raises if it has passed."""
        self._last = deadline
        if deadline is None:
            return None
        now = self._clock()
        if now >= deadline:
            raise ReadTimedOut("the deadline has passed")
        return deadline - now


def _after(now: float, seconds: float | None) -> float | None:
    return None if seconds is None else now + seconds


def _earlier(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
