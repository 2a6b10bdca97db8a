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

    `connect` is for the connection, `idle` between two reads, `total` for the whole exchange including retries.
    `first_event` is from the request to the response, and from there to its first event; signs of life, such as
    keep-alive comments, start it again.
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
    """How often to retry, and how long to wait before: `first_delay`, doubled each time, up to `longest_delay`.

    A `Retry-After` of the provider is honoured up to `longest_wait`; if it is longer, the error is raised at once. A
    request is not sent again once the provider has accepted it (with the status 200), unless the response begins with
    an error that may be temporary. With `after_start` it is: a response that failed or broke off is requested again
    unless it had a complete tool call, and a `Retry` event says that what came before is void.

    Requests share rate limits: after a 429, or another error with a `Retry-After`, all requests of the process to the
    same model with the same key wait, and then start one after another. With `shared=False`, or without `attempts`,
    a request is sent at once.
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
