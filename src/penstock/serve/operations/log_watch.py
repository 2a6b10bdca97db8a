"""Looks at the log for metrics and probes: in a thread, not too often, and with a time limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.log.flusher import flusher_of
from penstock.log.retention.survey import RunCounts
from penstock.log.store import Store, StoreError

T = TypeVar("T")

COUNT_SECONDS = 5.0
"""How old counts of runs may be: each process that is asked counts as often at most."""

PING_SECONDS = 1.0
"""How long it is believed that the log can be reached, or cannot."""

PATIENCE = 3.0
"""How many seconds a question may take. A log that does not answer counts as one that cannot be reached."""


class Cached(Generic[T]):
    """The result of a question to the store, which is asked again when the last result is too old.

    Several who ask at the same time wait for one question. A question that takes too long goes on, and its result is
    used when it is there.
    """

    def __init__(self, ask: Callable[[], T], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self._asked: asyncio.Task[T] | None = None
        self._until = 0.0

    async def get(self) -> T:
        """The result; raises a `StoreError` if the store fails, or a `TimeoutError` if it does not answer."""
        task = self._asked
        if task is None or (task.done() and time.monotonic() >= self._until):
            task = self._asked = asyncio.create_task(asyncio.to_thread(self._ask))
            task.add_done_callback(self._answered)
        async with asyncio.timeout(PATIENCE):
            return await asyncio.shield(task)

    def _answered(self, task: asyncio.Task[T]) -> None:
        self._until = time.monotonic() + self._seconds
        if not task.cancelled():
            task.exception()  # whoever asked has it; nobody may have waited for it


class LogWatch:
    """What a process knows about its log."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts = Cached(store.survey.counts, COUNT_SECONDS)
        self._ping = Cached(self._look, PING_SECONDS)

    async def counts(self) -> RunCounts | None:
        """The counts of runs, some seconds old; None if the log cannot be reached."""
        try:
            return await self._counts.get()
        except (StoreError, TimeoutError):
            return None

    async def problem(self) -> str:
        """Why runs cannot be stored at the moment; empty if they can."""
        try:
            await self._ping.get()
        except (StoreError, TimeoutError):
            return "the log of runs cannot be reached"
        return "the log of runs does not accept events" if flusher_of(self._store).is_behind else ""

    def _look(self) -> None:
        self._store.find("")
