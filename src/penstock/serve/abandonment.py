"""Cancels runs without readers: `abandon_after=`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial

from penstock.errors import UsageError
from penstock.log.store import StoreError
from penstock.log.store_retries import awith_retries
from penstock.loggers import get_logger
from penstock.runs.runs import Runs

logger = get_logger("penstock.serve")

LONGEST_PAUSE = 5.0
"""The longest time between two checks, in seconds."""


class Abandonment:
    """Cancels driven runs that had no reader in this process for some seconds. Waiting runs are left alone."""

    def __init__(
        self, runs: Runs, seconds: float, driven: Callable[[], Iterable[str]], readers: Callable[[str], int]
    ) -> None:
        if not seconds > 0:
            raise UsageError("abandon_after must be a number of seconds greater than 0")
        self._runs = runs
        self._seconds = seconds
        self._driven = driven
        self._readers = readers
        self._last_read: dict[str, float] = {}

    async def watch(self) -> None:
        """Check at intervals, until the task is cancelled."""
        while True:
            for run_id in self.abandoned(time.monotonic()):
                try:
                    await awith_retries(partial(self._runs.cancel, run_id, self._why))
                except StoreError as error:
                    logger.warning("the run %s could not be cancelled: %s", run_id, error)
            await asyncio.sleep(min(self._seconds / 4, LONGEST_PAUSE))

    def abandoned(self, now: float) -> list[str]:
        """The runs without a reader for too long. The time of a new or claimed run begins now."""
        self._last_read = {
            run_id: now if self._readers(run_id) else self._last_read.get(run_id, now) for run_id in self._driven()
        }
        return [run_id for run_id, last in self._last_read.items() if now - last >= self._seconds]

    @property
    def _why(self) -> str:
        return f"nobody has read the run for {self._seconds:g} seconds"
