"""The loop of a worker: claims runs without an owner, and drives several at once."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from msgspec import Struct

from penstock.errors import PenstockError
from penstock.log.ending import release_claimed
from penstock.log.flusher import flusher_of
from penstock.log.store import QUEUE, Claim, QueuedRuns, Store, StoreError
from penstock.log.store_retries import awith_retries
from penstock.loggers import get_logger
from penstock.run.events import Done

logger = get_logger("penstock.runs")

BATCH = 8
"""How many runs are claimed at a time: fewer cost more, and more leave less to other workers."""

STRANDED_SECONDS = 60.0
"""How long runs of an unknown agent are ready before a worker says so: other workers may have the agent."""

COUNTED = 1000
"""How many parked runs are counted at most."""

TakeRuns = Callable[[int], Sequence[Claim]]
"""Claims runs in a store, at most this many."""


class Unclaimed(Struct):
    """How many runs nobody claims, as of some seconds ago: of an agent that is not here, or parked."""

    stranded: int = 0
    parked: int = 0


class Worker:
    """Drives runs of a store until it is cancelled; `take` claims one, `drive` drives it."""

    def __init__(self, store: Store, take: TakeRuns, drive: Callable[[Claim], Coroutine[Any, Any, None]]) -> None:
        self.unclaimed = Unclaimed()
        self._store = store
        self._take = take
        self._drive = drive
        self._is_store_away = False

    async def work(self, parallel: int, poll: float, *, announced: bool) -> None:
        """Drive runs, this many at the same time.

        If there is none, wait until the store has `announced` one, or for `poll` seconds: nobody announces a run whose
        worker has died, or one of another process on SQLite.
        """
        tasks: set[asyncio.Task[None]] = set()
        news = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            with self._store.watch(QUEUE, lambda _: ring(loop, news)) if announced else nullcontext():
                while True:
                    news.clear()
                    limit = min(BATCH, parallel - len(tasks))
                    claims = await claim_runs(self._store, partial(self.take, limit), math.inf) if limit else ()
                    for claim in claims:
                        task = asyncio.create_task(self._drive(claim), name=claim.run_id)
                        tasks.add(task)
                        task.add_done_callback(tasks.discard)
                        task.add_done_callback(_log_failure)
                        task.add_done_callback(lambda _: news.set())
                    if len(claims) < limit or not limit:
                        with suppress(TimeoutError):
                            async with asyncio.timeout(poll):  # `wait_for` of Python 3.11 can lose a cancellation
                                await news.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def watch_queue(self, agents: Collection[str]) -> None:
        """Warn of runs that nobody claims, because no worker has their agent: it was renamed or removed."""
        known: set[str] = set()
        while True:
            with suppress(StoreError):  # `take` logs it
                queued = await asyncio.to_thread(self._store.queued)
                stranded = {name for name, runs in queued.items() if is_stranded(name, runs, agents)}
                for name in sorted(stranded - known):
                    logger.warning(
                        "%s of the agent %r waited for more than %g seconds, and this worker has no such agent: "
                        "start a worker with it, or cancel the runs",
                        count_runs(queued[name].count), name, STRANDED_SECONDS,
                    )  # fmt: skip
                known = stranded
                self.unclaimed.stranded = sum(queued[name].count for name in stranded)
                parked = await asyncio.to_thread(partial(self._store.list, state="parked", limit=COUNTED))
                self.unclaimed.parked = len(parked)
            await asyncio.sleep(STRANDED_SECONDS / 2)

    def take(self, limit: int) -> Sequence[Claim]:
        """Claim runs, if there are any. Logs when the store fails, and when it is back.

        After a failure, this worker's own leases are renewed first. Otherwise it could claim its own run again and lose
        unwritten events.
        """
        flusher = flusher_of(self._store)
        if flusher.is_behind or flusher.has_expired:
            return ()
        try:
            claims = self._take(limit)
        except StoreError as error:
            if not self._is_store_away:
                logger.warning("cannot look for runs: %s", error)
            self._is_store_away = True
            raise
        if self._is_store_away:
            self._is_store_away = False
            logger.info("looks for runs again")
        return claims


def is_stranded(agent: str, runs: QueuedRuns, agents: Collection[str]) -> bool:
    """Whether nobody seems to claim the runs of an agent that this worker does not have."""
    return agent not in agents and time.time() - runs.oldest > STRANDED_SECONDS


def count_runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def ring(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event of a loop, from any thread; a loop that was closed needs it no more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)


async def claim_runs(
    store: Store, take: Callable[[], Sequence[Claim]], seconds: float | None = None
) -> Sequence[Claim]:
    """Claim runs in a thread, and retry while the store fails. Cancelled claims are given back.

    Otherwise those runs would wait for the end of their leases.
    """
    claims: deque[Claim] = deque()
    is_cancelled = threading.Event()

    def claim() -> None:
        claims.extend(take())
        if is_cancelled.is_set():
            give_back()

    def give_back() -> None:  # in the thread that has claimed them, or here
        with suppress(IndexError):
            while True:
                with suppress(StoreError):
                    release_claimed(store, claims.popleft())

    try:
        await awith_retries(claim, seconds)
    except asyncio.CancelledError:
        is_cancelled.set()
        await asyncio.to_thread(give_back)
        raise
    return claims


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        problem = error if isinstance(error, PenstockError) else repr(error)
        logger.error("run %s: it could not be continued: %s", task.get_name(), problem)


def beginning_text(claim: Claim) -> str:
    """What a worker does with a claimed run, for the log."""
    if claim.previous_state == "running":
        return "taken over from a worker that has died or did not renew its lease"
    return "started" if claim.epoch == 1 else "continued"


def ending_text(done: Done | None) -> str:
    """How a worker left a run, for the log."""
    if done is None:
        return "given back, so that another worker can continue it"
    if done.reason == "paused":
        return "waits for a decision or a result"
    return f"ended, {done.reason}" + (f": {done.why}" if done.why else "")
