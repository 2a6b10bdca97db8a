"""Notes in the log that this process is alive, so that people see which workers there are, also those without runs."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from penstock.log.retention.survey import BEAT_SECONDS, WorkerRow
from penstock.log.store import Store, StoreError

LEAVE_SECONDS = 2.0
"""How many seconds a process that stops waits for the store to forget it."""


async def beat_forever(store: Store, worker: WorkerRow) -> None:
    """Note now and then that a process is alive, until the task is cancelled, and then that it has stopped."""
    try:
        while True:
            with suppress(StoreError):  # others report it; the next one may work
                await asyncio.to_thread(store.survey.beat, worker)
            await asyncio.sleep(BEAT_SECONDS)
    finally:
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await asyncio.to_thread(store.survey.leave, worker.owner)
