"""Operations on a store are tried again while it fails for the moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.log.store import StoreError

T = TypeVar("T")

PATIENCE = 60.0
"""How many seconds a store may fail before whoever needs it gives up."""


class Attempts:
    """The attempts at one operation."""

    def __init__(self, seconds: float | None = None) -> None:
        self._end = time.monotonic() + (PATIENCE if seconds is None else seconds)
        self._pause = 0.025

    def pause_after(self, error: StoreError) -> float:
        """How many seconds to wait until the next attempt. Raises the error if it will not pass, or has not."""
        self._pause = min(self._pause * 2, 1.0)
        if not error.is_temporary or time.monotonic() + self._pause > self._end:
            raise error
        return self._pause


def patiently(operation: Callable[[], T]) -> T:
    """What an operation on a store returns; it is tried again while the store fails for the moment."""
    attempts = Attempts()
    while True:
        try:
            return operation()
        except StoreError as error:
            pause = attempts.pause_after(error)
        time.sleep(pause)


async def apatiently(operation: Callable[[], T], seconds: float | None = None) -> T:
    """The same on a thread, for async code; cancelling it does not wait for the store to come back."""
    attempts = Attempts(seconds)
    while True:
        try:
            return await asyncio.to_thread(operation)
        except StoreError as error:
            pause = attempts.pause_after(error)
        await asyncio.sleep(pause)
