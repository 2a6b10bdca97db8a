"""The events of a run as they come, for readers in any process.

A reader looks at the log; the doorbell of the store tells it when.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from penstock.errors import UsageError
from penstock.log.store import RunRow, Store, StoreError, unknown_run
from penstock.log.store_retries import awith_retries, with_retries
from penstock.log.take_up import PAGE, hole, read_log, read_run
from penstock.run.events import Done, LogEvent

WAIT = 2.0
"""How many seconds a plain reader waits for events at a time: then it checks whether the run was set aside."""


def follow(store: Store, run_id: str, after: int = 0) -> Iterator[tuple[int, LogEvent]]:
    """The events of a run after a number, with their numbers, as they come; ends with `Done`.

    There are none after `Done`. A `UsageError` if the run has fewer events.
    """
    if with_retries(partial(_has_ended, store, run_id, after)):
        return
    while True:
        events = with_retries(partial(next_events, store, run_id, after))
        for number, _, event in events:
            after = number
            yield number, event
            if isinstance(event, Done):
                return
        if not events:
            with_retries(partial(store.wait, run_id, after, WAIT))


async def afollow(store: Store, run_id: str, after: int = 0) -> AsyncIterator[tuple[int, LogEvent]]:
    """The same for async code. It blocks no thread while it waits."""
    if await awith_retries(partial(_has_ended, store, run_id, after)):
        return
    with ringing(store, run_id) as bell:
        while True:
            bell.clear()
            events = await awith_retries(partial(next_events, store, run_id, after))
            for number, _, event in events:
                after = number
                yield number, event
                if isinstance(event, Done):
                    return
            if not events:
                await wait_for_ring(bell, store.poll)


def next_events(store: Store, run_id: str, after: int, limit: int = PAGE) -> list[tuple[int, float, LogEvent]]:
    """The next events of a run, at most this many, with their numbers and times.

    A `DamagedRunError` if there will be none until the log is repaired.
    """
    row = _row_with(store, run_id, after)
    if row.seq == after:
        if row.state == "damaged":
            read_run(store, row)  # says why there is nothing more
        return []
    events: list[tuple[int, float, LogEvent]] = []
    try:
        events.extend(read_log(store, run_id, after, after + limit))
    except StoreError:
        if not events:  # else those before it are read first
            raise
    if not events:
        _row_with(store, run_id, after)  # the run may have been deleted meanwhile
        raise hole(run_id, after + 1)
    return events


def _has_ended(store: Store, run_id: str, after: Any) -> bool:
    """Whether a run has finished and has no event after a number."""
    if not isinstance(after, int) or isinstance(after, bool) or after < 0:
        raise UsageError(f"after must be the number of an event, or 0, not {after!r}")
    row = _row_with(store, run_id, after)
    return row.state == "over" and row.seq == after


def _row_with(store: Store, run_id: str, number: int) -> RunRow:
    """The row of a run with at least this many events; raises otherwise."""
    row = store.find(run_id)
    if row is None:
        raise unknown_run(run_id)
    if row.seq < number:
        raise UsageError(f"the run {run_id!r} has {row.seq} events: none can be read after event {number}")
    return row


@contextmanager
def ringing(store: Store, run_id: str) -> Generator[asyncio.Event]:
    """An event of this loop that is set when a run may have new events."""
    bell, loop = asyncio.Event(), asyncio.get_running_loop()

    def ring(_: object) -> None:  # from any thread
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(bell.set)

    with store.watch(run_id, ring):
        yield bell


async def wait_for_ring(bell: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, at most this many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await bell.wait()
    except TimeoutError:
        pass
