"""Circuits: an upstream that fails again and again is not asked for a while.

| state | meaning | next |
|---|---|---|
| closed | requests are sent | open, after FAILURES failures in a row |
| open | others are asked instead | half-open, after OPEN_SECONDS |
| half-open | one request is sent as a probe | closed if it succeeds, else open |

A response succeeds when it ends well. One that has begun lets requests through again, and the next failure opens the
circuit. A circuit only chooses between upstreams: the only upstream of a request is always asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FAILURES = 3
OPEN_SECONDS = 15.0


class Circuit:
    """The circuit of one upstream."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether requests should go to another upstream."""
        return self._failures >= FAILURES and self._clock() < self._open_until

    def begin(self) -> None:
        """Count a request. In a half-open circuit it is the probe, and others go elsewhere meanwhile."""
        if self._failures >= FAILURES:
            self._open_until = self._clock() + OPEN_SECONDS

    def answers(self) -> None:
        """The upstream has started a response, which may still break off."""
        self._failures = min(self._failures, FAILURES - 1)

    def succeeded(self) -> None:
        """The upstream has answered."""
        self._failures = 0

    def failed(self, seconds: float | None = None) -> None:
        """The upstream has failed; `seconds` is the pause that it asked for, if any."""
        self._failures += 1
        if self._failures >= FAILURES:
            self._open_until = self._clock() + max(OPEN_SECONDS, seconds or 0.0)
