"""Keeps a feed up to date, with the commits of this process and the writes of others.

The store hands over committed events, from the thread that wrote them. As long as each event follows the last one, the
log is not read at all; after a gap, a hint without events, or a while, it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from penstock.agent.driver.caller_loop import mailbox_of
from penstock.log.bodies import event_of
from penstock.log.store import Committed, Store
from penstock.serve.feeds.feed import STEP, Feed, Item, Newest

MAX_POLL = 0.5
"""The seconds between two checks of a log that was silent for a while, if nothing rings."""

FED_POLL = 2.0
"""The seconds between two checks of a log that this process writes: another worker may take the run over."""

ReadLog = Callable[[str, int], Awaitable[list[Item]]]


class FeedSource:
    """Adds the events of a run to its feed, in their order, each once."""

    def __init__(self, feed: Feed, read: ReadLog) -> None:
        self._feed = feed
        self._read = read
        self._rows = Newest[Committed]()  # what is dropped is read from the log
        self._look = asyncio.Event()  # the log must be read
        self._is_reading = False

    async def run(self, store: Store) -> None:
        """Add events until the run has finished; an unreadable log is reported to the readers."""
        post = mailbox_of(asyncio.get_running_loop()).post

        def on_rows(rows: Sequence[Committed]) -> None:  # from any thread
            self._rows.add(rows)
            post(self._take if rows else self._look.set)

        with store.watch(self._feed.run_id, on_rows):
            try:
                await self._keep_reading(store.poll)
            except Exception as error:  # noqa: BLE001  # it is reported to the readers
                self._feed.fail(error)

    async def _keep_reading(self, poll: float) -> None:
        feed, pause = self._feed, poll
        while not feed.is_over:
            self._look.clear()
            self._is_reading = True
            items = await self._read(feed.run_id, feed.seq)
            self._is_reading = False
            feed.add(items)
            self._take()
            if len(items) >= STEP or feed.is_over:
                continue
            seq = feed.seq
            if await _is_set(self._look, pause):
                pause = MAX_POLL  # whoever writes the log rings
            elif feed.seq > seq:
                pause = FED_POLL
            else:
                pause = poll if items else min(pause * 2, MAX_POLL)

    def _take(self) -> None:
        """Add the rows received so far, unless the log is being read: then they are added after that."""
        if self._is_reading:
            return
        feed, items = self._feed, list[Item]()
        seq = feed.seq
        for row in self._rows.take():
            if row.seq == seq + 1:
                seq = row.seq
                event = event_of(feed.run_id, seq, row.body) if row.event is None else row.event
                items.append(Item(seq, row.at, event, row.size))
            elif row.seq > seq:
                self._look.set()  # some have not come
        feed.add(items)
        if feed.is_over:
            self._look.set()


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, at most this long; returns whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
