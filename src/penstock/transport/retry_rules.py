"""The failures of an exchange that are retried, by delivered chunks and by whether the request was accepted."""

from __future__ import annotations

from typing import Literal

from penstock.errors import ProviderError
from penstock.transport.deadlines import Deadlines
from penstock.transport.policy import Retries


class RetryRules:
    """The retries of one exchange. `delivered`: what the reader has received, in all attempts."""

    def __init__(self, retries: Retries, deadlines: Deadlines) -> None:
        self._retries = retries
        self._deadlines = deadlines
        self._attempt = -1
        self._decided: float | None = None
        self.delivered: Literal["nothing", "chunks", "call"] = "nothing"
        self.is_accepted = False

    def begin(self) -> None:
        """Begin an attempt."""
        self._attempt += 1
        self._decided, self.is_accepted = None, False

    def repeat(self) -> None:
        """Do not count the last attempt: the next one takes its place."""
        self._attempt -= 1

    def next_delay(self, error: ProviderError) -> float | None:
        """How long to wait after this error before the next attempt; None if it is not retried."""
        return self._delay(error) if self._decided is None else self._decided

    def raise_if_retried(self, error: ProviderError) -> None:
        """Raises the error if there will be another attempt."""
        self._decided = self._delay(error)
        if self._decided is not None:
            raise error

    def _delay(self, error: ProviderError) -> float | None:
        has_begun = self.is_accepted or self.delivered != "nothing"
        if self.delivered == "call" or (has_begun and not self._retries.after_start):
            return None
        delay = self._retries.delay(self._attempt, error)
        return delay if delay is not None and self._deadlines.allows(delay) else None
