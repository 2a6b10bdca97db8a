"""Timeouts and retries of a request: how long to wait, and how often to try again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from penstock.errors import ProviderError, UsageError


class Timeouts(Struct, frozen=True, kw_only=True):
    """How many seconds to wait; None waits for ever.

    `connect` for a connection, `first_event` from the request to the first event of the answer, `idle` between two
    pieces of it, `total` for all of it.
    """

    connect: float | None = 10.0
    first_event: float | None = 120.0
    idle: float | None = 60.0
    total: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            if value is not None and not (_is_count(value) and value < math.inf):
                raise UsageError(f"Timeouts.{name} must be a number of seconds of 0 or more, or None, not {value!r}")


class Retries(Struct, frozen=True, kw_only=True):
    """How often to try again, and how long to wait before: `first_delay`, doubled each time, up to `longest_delay`.

    What the provider asks for in `Retry-After` counts, up to `longest_wait`; beyond, the error is raised at once. Until
    the answer has begun, a retry is not seen. With `after_start` an answer that broke off is also begun anew, unless it
    had a whole call in it, and a `Retry` event says that what was shown of it is void.
    """

    attempts: int = 2
    first_delay: float = 0.5
    longest_delay: float = 8.0
    longest_wait: float = 60.0
    after_start: bool = False

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            is_valid, expected = _RULES.get(name, (_is_count, "a number of seconds of 0 or more"))
            if not is_valid(value):
                raise UsageError(f"Retries.{name} must be {expected}, not {value!r}")

    def delay(self, attempt: int, error: ProviderError) -> float | None:
        """How long to wait before the next attempt; None if there is to be none."""
        if not error.retryable or attempt >= self.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest_wait else None
        delay: float = min(self.first_delay * 2**attempt, self.longest_delay)
        return delay * random.uniform(0.75, 1.0)  # so that many clients do not come back at one time


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "attempts": (lambda value: _is_count(value) and isinstance(value, int), "a whole number of 0 or more"),
    "after_start": (lambda value: isinstance(value, bool), "True or False"),
}
