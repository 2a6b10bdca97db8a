"""The loop of a worker: claims runs without an owner, and drives several at once."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from penstock.errors import PenstockError
from penstock.log.ending import release_claimed
from penstock.log.flusher import flusher_of
from penstock.log.store import Claim, Store, StoreError
from penstock.log.store_retries import awith_retries

logger = logging.getLogger("penstock.runs")

TakeRun = Callable[[], Claim | None]
"""Claims a run in a store, if there is one."""


class Worker:
    """Drives runs of a store until it is cancelled; `take` claims one, `drive` drives it."""

    def __init__(self, store: Store, take: TakeRun, drive: Callable[[Claim], Coroutine[Any, Any, None]]) -> None:
        self._store = store
        self._take = take
        self._drive = drive
        self._is_store_away = False

    async def work(self, parallel: int, poll: float) -> None:
        """Drive runs, this many at the same time; `poll` is the seconds between two checks if there is none."""
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                claim = await claim_run(self._store, self.take, math.inf) if len(tasks) < parallel else None
                if claim is not None:
                    task = asyncio.create_task(self._drive(claim), name=claim.run_id)
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    task.add_done_callback(_log_failure)
                else:
                    await asyncio.sleep(poll)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def take(self) -> Claim | None:
        """Claim a run, if there is one. Logs when the store fails, and when it is back.

        After a failure, this worker's own leases are renewed first. Otherwise it could claim its own run again and lose
        unwritten events.
        """
        if flusher_of(self._store).is_behind:
            return None
        try:
            claim = self._take()
        except StoreError as error:
            if not self._is_store_away:
                logger.warning("cannot look for runs: %s", error)
            self._is_store_away = True
            raise
        if self._is_store_away:
            self._is_store_away = False
            logger.info("looks for runs again")
        return claim


async def claim_run(store: Store, take: TakeRun, seconds: float | None = None) -> Claim | None:
    """Claim a run in a thread, and retry while the store fails. A cancelled claim is given back.

    Otherwise that run would wait for the end of its lease.
    """
    claims: deque[Claim] = deque()
    is_cancelled = threading.Event()

    def claim() -> None:
        if (claimed := take()) is not None:
            claims.append(claimed)
            if is_cancelled.is_set():
                give_back()

    def give_back() -> None:  # in the thread that has claimed it, or here
        with suppress(IndexError, StoreError):
            release_claimed(store, claims.popleft())

    try:
        await awith_retries(claim, seconds)
    except asyncio.CancelledError:
        is_cancelled.set()
        await asyncio.to_thread(give_back)
        raise
    return claims.popleft() if claims else None


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        problem = error if isinstance(error, PenstockError) else repr(error)
        logger.error("run %s: it could not be continued: %s", task.get_name(), problem)
