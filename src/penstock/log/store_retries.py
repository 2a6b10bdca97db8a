"""Retries of operations on a store that fails temporarily."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.log.store import StoreError

T = TypeVar("T")

RETRY_SECONDS = 60.0
"""How many seconds a store may fail before its last error is raised."""


class Attempts:
    """The attempts at one operation, since its first failure."""

    def __init__(self, seconds: float | None = None) -> None:
        self._end = time.monotonic() + (RETRY_SECONDS if seconds is None else seconds)
        self._pause = 0.025

    def pause_after(self, error: StoreError) -> float:
        """The seconds to wait before the next attempt. Raises the error if it is not temporary, or the time is over."""
        self._pause = min(self._pause * 2, 1.0)
        if not error.is_temporary or time.monotonic() + self._pause > self._end:
            raise error
        return self._pause


def with_retries(operation: Callable[[], T], on_failure: Callable[[], None] | None = None) -> T:
    """The result of an operation on a store, retried while the store fails temporarily."""
    attempts: Attempts | None = None
    while True:
        try:
            return operation()
        except StoreError as error:
            if on_failure is not None:
                on_failure()
            attempts = attempts or Attempts()
            pause = attempts.pause_after(error)
        time.sleep(pause)


async def awith_retries(operation: Callable[[], T], seconds: float | None = None) -> T:
    """`with_retries` for async code, on a thread; cancelling it does not wait for the store."""
    attempts = Attempts(seconds)
    while True:
        try:
            return await asyncio.to_thread(operation)
        except StoreError as error:
            pause = attempts.pause_after(error)
        await asyncio.sleep(pause)
