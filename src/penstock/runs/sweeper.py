"""Deletes the runs that a log need not keep any more, while a worker or a server runs."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from penstock.errors import PenstockError
from penstock.log.retention.sweep import sweep_page
from penstock.log.store import RunRow, Store
from penstock.loggers import get_logger
from penstock.runs.worker import count_runs

logger = get_logger("penstock.runs")

FIRST_SECONDS = 5.0
"""How long after its start a worker deletes runs for the first time."""

SWEEP_SECONDS = 600.0
"""The seconds between two times. Several workers may do it at once: each run is deleted by one of them."""


async def sweep_forever(store: Store) -> None:
    """Delete the runs that the store need not keep, now and then, until the task is cancelled."""
    if store.keep is None or not store.keep.deletes:
        return
    await asyncio.sleep(FIRST_SECONDS)
    while True:
        try:
            count = await _sweep(store)
        except PenstockError as error:
            logger.warning("old runs could not be deleted: %s", error)
        else:
            if count:
                logger.info("%s deleted: they ended too long ago to be kept", count_runs(count))
        await asyncio.sleep(SWEEP_SECONDS)


async def _sweep(store: Store) -> int:
    """Delete all runs that may be deleted, page by page, so that it can be cancelled between them."""
    assert store.keep is not None
    cutoff = store.keep.cutoff(time.time())
    archive = None if store.keep.archive is None else Path(store.keep.archive)
    count, after = await asyncio.to_thread(sweep_page, store, cutoff, None, archive, _warn)
    while after is not None:
        deleted, after = await asyncio.to_thread(sweep_page, store, cutoff, after, archive, _warn)
        count += deleted
    return count


def _warn(row: RunRow, error: Exception) -> None:
    logger.warning("the run %s was not archived, and is kept: %s", row.id, error)
