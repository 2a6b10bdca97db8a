"""A connection to a PostgreSQL server with a timeout for every wait: it needs psycopg, and is imported with it."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


class NoAnswerError(psycopg.OperationalError):
    """The server hangs: it did not answer in time on an open connection."""


class BoundedConnection(psycopg.Connection[Any]):
    """Raises a `NoAnswerError` if a statement takes longer than `seconds`.

    Timeouts of the server do not help if the server hangs, and TCP timeouts do not if its machine still answers.
    """

    seconds: float = math.inf

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **options: Any) -> T:
        return super().wait(_bounded(gen, self.seconds), *arguments, **options)


def _bounded(steps: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """The steps of an operation. Between them psycopg waits for the connection, a moment each time."""
    end = time.monotonic() + seconds
    try:
        event = next(steps)
        while True:
            ready = yield event
            if not ready and time.monotonic() > end:
                raise NoAnswerError(f"the server has not answered for {seconds:g} seconds")
            event = steps.send(ready)
    except StopIteration as stop:
        result: T = stop.value
        return result
