"""The events of a run as they come, for readers in any process.

A reader looks at the log; the doorbell of the store tells it when.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import islice

from penstock.log.patience import apatiently, patiently
from penstock.log.store import Store, StoreError, unknown_run
from penstock.log.take_up import PAGE, check_log, read_log
from penstock.run.events import Done, LogEvent

WAIT = 2.0
"""How many seconds a plain reader waits for events at a time: then it looks whether the run was set aside."""


def follow(store: Store, run_id: str, after: int = 0) -> Iterator[tuple[int, LogEvent]]:
    """The events of a run after a number, with their numbers, as they come; ends with `Done`."""
    while True:
        events = patiently(partial(_page, store, run_id, after))
        for number, event in events:
            after = number
            yield number, event
            if isinstance(event, Done):
                return
        if not events:
            patiently(partial(store.wait, run_id, after, WAIT))


async def afollow(store: Store, run_id: str, after: int = 0) -> AsyncIterator[tuple[int, LogEvent]]:
    """The same for async code. It blocks no thread while it waits."""
    bell = asyncio.Event()
    with store.watch(run_id, _ringer(bell)):
        while True:
            bell.clear()
            events = await apatiently(partial(_page, store, run_id, after))
            for number, event in events:
                after = number
                yield number, event
                if isinstance(event, Done):
                    return
            if not events:
                await _wait(bell, store.poll)


def _page(store: Store, run_id: str, after: int) -> list[tuple[int, LogEvent]]:
    """The next events of a run, not too many."""
    row = store.find(run_id)
    if row is None:
        raise unknown_run(run_id)
    if row.seq <= after:
        if row.state == "damaged":
            check_log(store, row)  # says why there is nothing more
        return []
    events: list[tuple[int, LogEvent]] = []
    try:
        events.extend((number, event) for number, _, event in islice(read_log(store, run_id, after), PAGE))
    except StoreError:
        if not events:  # else those before it are read first
            raise
    if not events:
        raise StoreError(f"the log of the run {run_id} has no event {after + 1}: it was damaged")
    return events


def _ringer(bell: asyncio.Event) -> Callable[[], None]:
    """Sets an event of this loop, from any thread."""
    loop = asyncio.get_running_loop()

    def ring() -> None:
        try:
            loop.call_soon_threadsafe(bell.set)
        except RuntimeError:
            pass  # the loop was closed, and nobody waits any more

    return ring


async def _wait(bell: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await bell.wait()
    except TimeoutError:
        pass
