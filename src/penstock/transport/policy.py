"""Timeouts and retries of a request: how long to wait, and how often to try again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from penstock.errors import ProviderError, UsageError


class Timeouts(Struct, frozen=True, kw_only=True):
    """Timeouts in seconds; None waits without limit.

    - `connect`: until the connection is open.
    - `first_event`: from the request to the response, for each attempt, and from there to its first event. Signs of
      life (keep-alive comments, `ping`, `response.in_progress`) start it again.
    - `idle`: between two pieces of the response.
    - `total`: for everything, including retries and delays.
    """

    connect: float | None = 10.0
    first_event: float | None = 120.0
    idle: float | None = 60.0
    total: float | None = 1800.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            if value is not None and not (_is_count(value) and value < math.inf):
                raise UsageError(f"Timeouts.{name} must be a number of seconds of 0 or more, or None, not {value!r}")


class Retries(Struct, frozen=True, kw_only=True):
    """How often a request is retried, and how long to wait before.

    - `attempts`: how often to retry: 2 means at most three requests; 0 never retries.
    - `first_delay`: seconds before the first retry; the delay doubles each time.
    - `longest_delay`: the longest of these delays.
    - `longest_wait`: the longest `Retry-After` of the provider that is waited for; if it is longer, the error is raised
      at once.
    - `after_start`: also retry a request that the provider accepted (with the status 200), if the response times out,
      breaks off, ends too early or ends with a temporary error, unless it had a complete call. A `Retry` event says
      that what came before is void. Without it, only a response that begins with a temporary error is requested again.
    - `shared`: after a 429, or another temporary error with a `Retry-After`, all requests of this process to the same
      model with the same key wait, and then start one after another. With False, or without `attempts`, a request is
      sent at once.
    """

    attempts: int = 2
    first_delay: float = 0.5
    longest_delay: float = 8.0
    longest_wait: float = 60.0
    after_start: bool = False
    shared: bool = True

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            is_valid, expected = _RULES.get(name, (_is_count, "a number of seconds of 0 or more"))
            if not is_valid(value):
                raise UsageError(f"Retries.{name} must be {expected}, not {value!r}")

    def delay(self, attempt: int, error: ProviderError) -> float | None:
        """How long to wait before the next attempt; None if the error is not retried."""
        if not error.retryable or attempt >= self.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest_wait else None
        doubled = self.first_delay * 2.0 ** min(attempt, 1000)  # a float cannot hold 2**1024
        delay: float = min(doubled, self.longest_delay)
        return delay * random.uniform(0.75, 1.0)  # spread the retries of many clients


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "attempts": (lambda value: _is_count(value) and isinstance(value, int), "a whole number of 0 or more"),
    "after_start": (lambda value: isinstance(value, bool), "True or False"),
    "shared": (lambda value: isinstance(value, bool), "True or False"),
}
