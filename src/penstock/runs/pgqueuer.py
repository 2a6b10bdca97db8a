"""Runs as jobs of pgqueuer: its queue, its concurrency limits and its dashboard, on the same PostgreSQL server.

    queuer = PgQueuer.from_psycopg_connection(connection)
    register(queuer, runs)
    await work(queuer, runs)

pgqueuer gives the job of a worker that died to another worker. If the first one was only slow and still owns the run,
the other one waits: a run has one owner, whatever the queue believes. Needs the extra `pgqueuer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from penstock.errors import UsageError
from penstock.log.store import StoreError
from penstock.loggers import get_logger
from penstock.runs.runs import Runs

try:
    from pgqueuer import PgQueuer, Queries
    from pgqueuer.models import Job
    from pgqueuer.ports import RepositoryPort
except ImportError as error:
    raise UsageError(f"this needs pgqueuer ({error}): pip install 'penstock-llm[pgqueuer]'") from error

ENTRYPOINT = "penstock"
"""The entrypoint of the jobs, unless another is named."""

SWEEP = 5.0
"""The seconds between two checks for runs without a job."""

PAGE = 500
"""How many jobs are added at a time."""

logger = get_logger("penstock.runs")


def register(queuer: PgQueuer, runs: Runs, *, entrypoint: str = ENTRYPOINT, concurrency_limit: int = 0) -> None:
    """Let jobs drive runs: over all workers at most `concurrency_limit` at once, or any number if it is 0."""

    @queuer.entrypoint(entrypoint, concurrency_limit=concurrency_limit)
    async def drive(job: Job) -> None:
        await runs.adrive((job.payload or b"").decode())


async def enqueue(
    queries: RepositoryPort, run_ids: Iterable[str], *, entrypoint: str = ENTRYPOINT, priority: int = 0
) -> list[str]:
    """Add jobs for runs; returns the ids of the runs that had no job."""
    added: list[str] = []
    waiting = list(run_ids)
    for page in (waiting[start : start + PAGE] for start in range(0, len(waiting), PAGE)):
        job_ids = await queries.enqueue(
            [entrypoint] * len(page), [run_id.encode() for run_id in page], [priority] * len(page),
            dedupe_key=[f"{entrypoint}:{run_id}" for run_id in page], on_conflict="skip",
        )  # fmt: skip
        added += [run_id for run_id, job_id in zip(page, job_ids, strict=True) if job_id is not None]
    return added


async def sweep(queries: RepositoryPort, runs: Runs, *, entrypoint: str = ENTRYPOINT) -> list[str]:
    """Add jobs for all runs that can continue and have no job; returns their ids.

    These are runs that were started or decided without `enqueue`, runs with an expired approval, and runs with a failed
    job.
    """
    return await enqueue(queries, await asyncio.to_thread(runs.claimable), entrypoint=entrypoint)


async def work(
    queuer: PgQueuer, runs: Runs, *, entrypoint: str = ENTRYPOINT, every: float = SWEEP, **options: Any
) -> None:
    """Do the jobs of a queue, and sweep, until the queuer is shut down; `options` are those of `PgQueuer.run`.

    Missing tables of pgqueuer are created. A job of a dead worker is found before the lease of its run ends, so that a
    run is taken over as fast as without a queue: pgqueuer itself would wait for 30 seconds.
    """
    await install(queuer.qm.queries)
    options.setdefault("heartbeat_timeout", timedelta(seconds=runs.lease / 2))
    options.setdefault("dequeue_timeout", timedelta(seconds=runs.lease / 4))
    sweeping = asyncio.create_task(_keep_sweeping(queuer.qm.queries, runs, entrypoint, every))
    try:
        await queuer.run(**options)
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)


async def install(queries: RepositoryPort) -> None:
    """Create the tables of pgqueuer, as `pgq install` does, if there are none."""
    if not isinstance(queries, Queries):  # in memory
        return
    async with queries.schema_lock():
        if not await queries.schema_is_installed():
            await queries.install()


async def _keep_sweeping(queries: RepositoryPort, runs: Runs, entrypoint: str, every: float) -> None:
    while True:
        try:
            await sweep(queries, runs, entrypoint=entrypoint)
        except Exception as error:  # noqa: BLE001  # errors of the store or of the queue's driver
            logger.warning("cannot look for runs: %s", error if isinstance(error, StoreError) else repr(error))
        await asyncio.sleep(every)
