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
from typing import Any, Literal

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

    def __init__(
        self, store: Store, take: TakeRuns, drive: Callable[[Claim], Coroutine[Any, Any, None]], owner: str = ""
    ) -> None:
        self.unclaimed = Unclaimed()
        self.is_draining = False  # whether it claims no runs any more
        self._store = store
        self._take = take
        self._drive = drive
        self._owner = owner
        self._is_store_away = False

    async def work(self, parallel: int, poll: float, *, announced: bool, driven: Callable[[], int] = lambda: 0) -> None:
        """Drive runs, this many at the same time, with those that this process has `driven` by other ways.

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
                    limit = 0 if self.is_draining else max(0, min(BATCH, parallel - max(len(tasks), driven())))
                    claims = await claim_runs(self._store, partial(self.take, limit), math.inf) if limit else ()
                    for claim in claims:
                        task = asyncio.create_task(self._drive(claim), name=claim.run_id)
                        tasks.add(task)
                        task.add_done_callback(tasks.discard)
                        task.add_done_callback(partial(_log_failure, claim, self._owner))
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


def _log_failure(claim: Claim, owner: str, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        problem = error if isinstance(error, PenstockError) else repr(error)
        fields = {"fields": log_fields(claim, owner)}
        logger.error("run %s: it could not be continued: %s", claim.run_id, problem, extra=fields)


def log_fields(claim: Claim, owner: str) -> dict[str, str]:
    """What a record of the log has besides its message, for programs."""
    return {"run": claim.run_id, "tenant": claim.tenant, "owner": owner, "agent": claim.agent}


ClaimKind = Literal["started", "continued", "taken_over"]


def claim_kind(claim: Claim) -> ClaimKind:
    """How a worker has found a run: new, given back or answered, or without its owner."""
    if claim.previous_state == "running":
        return "taken_over"
    return "started" if claim.epoch == 1 else "continued"


def beginning_text(claim: Claim) -> str:
    """What a worker does with a claimed run, for the log."""
    kind = claim_kind(claim)
    return "taken over from a worker that has died or did not renew its lease" if kind == "taken_over" else kind


def ending_text(done: Done | None) -> str:
    """How a worker left a run, for the log."""
    if done is None:
        return "given back, so that another worker can continue it"
    if done.reason == "paused":
        return "waits for a decision or a result"
    return f"ended, {done.reason}" + (f": {done.why}" if done.why else "")
