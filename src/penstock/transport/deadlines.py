"""The time limits of an exchange: the timeout of each wait, and the error for the limit that was exceeded."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import TimedOut
from penstock.transport.commands import HTTPRequest, OpenRequest, ReadBytes, ReadTimedOut
from penstock.transport.policy import Timeouts


class Deadlines:
    """The deadlines of one exchange, whose total time begins now, and of its current attempt."""

    def __init__(self, timeouts: Timeouts, clock: Callable[[], float]) -> None:
        self._timeouts = timeouts
        self._clock = clock
        self._total = _after(clock(), timeouts.total)
        self._first_event: float | None = None
        self._last: float | None = None  # the deadline of the last wait
        self._idle_read = ReadBytes(timeouts.idle)
        self.has_event = False

    def open(self, request: HTTPRequest) -> OpenRequest:
        """Begin an attempt."""
        self.has_event = False
        self._first_event = _earlier(_after(self._clock(), self._timeouts.first_event), self._total)
        left = self._left(self._first_event)
        return OpenRequest(request, _earlier(self._timeouts.connect, left), left)

    def read(self) -> ReadBytes:
        """The next read of a response; keep-alives are not events."""
        if not self.has_event:
            return ReadBytes(self._left(self._first_event))
        if self._total is None:
            return self._idle_read
        return ReadBytes(self._left(_earlier(_after(self._clock(), self._timeouts.idle), self._total)))

    @property
    def are_steady(self) -> bool:
        """Whether all further reads of the response have the same timeout."""
        return self.has_event and self._total is None

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


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)
