"""The events of runs for all readers of a process: each event is encoded once, however many readers it has.

A reader is only a position. It gets the events after it, from memory or else from the log; so a reader that stops
reading costs nothing and delays nobody. Up-to-date readers are written to as events come.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

from penstock.events import Usage
from penstock.log.bodies import body_of
from penstock.log.follow import next_events
from penstock.log.store import DamagedRunError, Store, UnknownRunError
from penstock.log.store_retries import awith_retries
from penstock.run.events import Done, LogEvent
from penstock.serve.feeds.feed import PAGE, PAGE_BYTES, STEP, Feed, Item, Page, page_of
from penstock.serve.feeds.shared_reads import SharedReads
from penstock.serve.feeds.source import FeedSource, ReadLog
from penstock.serve.public_events import DAMAGED

logger = logging.getLogger("penstock.serve")

MakeFrame = Callable[[int | None, float, LogEvent], bytes]
WriteNow = Callable[[Page], bool]


class FeedReader:
    """Reads the events of a run, from a position on; ends after `Done`, or when the server stops.

    If the log of the run is damaged, that `Done` says so. It is not in the log, and has no number for a client.
    """

    def __init__(self, feed: Feed, after: int, read: ReadLog, write_now: WriteNow | None = None) -> None:
        self._feed = feed
        self._after = after
        self._read = read
        self._write_now = write_now
        self._is_damaged = False

    async def next(self) -> Page | None:
        """Wait for the next page; None after the last."""
        feed = self._feed
        try:
            while not feed.is_closed and not self._is_damaged:
                if self._after < feed.seq:
                    page = feed.after(self._after) or page_of(await self._read(feed.run_id, self._after))
                    self._after = page.last
                    return page
                if feed.error is not None:
                    raise feed.error
                if feed.is_over:
                    return None
                await feed.change(self)
        except DamagedRunError as error:
            return self._end(error)
        return None

    def take(self, page: Page, after: int) -> bool:
        """Send the events after a number where they arrive; False if `next` has to return."""
        if self._after != after or self._write_now is None or not self._write_now(page):
            return False
        self._after = page.last
        return True

    def __aiter__(self) -> FeedReader:
        return self

    async def __anext__(self) -> Page:
        page = await self.next()
        if page is None:
            raise StopAsyncIteration
        return page

    def _end(self, error: DamagedRunError) -> Page:
        logger.error("run %s: %s", self._feed.run_id, error)
        self._is_damaged = True
        end = Done("error", "", (), Usage(), DAMAGED)
        return page_of([Item(self._after + 1, time.time(), end, 0, is_logged=False)])


class Feeds:
    """The feeds of all runs that are read in this process."""

    def __init__(self, store: Store, make_frame: MakeFrame) -> None:
        self._store = store
        self._make_frame = make_frame
        self._feeds: dict[str, Feed] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reads = SharedReads(self._read)
        self._is_closed = False

    @property
    def readers(self) -> int:
        """How many readers there are."""
        return sum(feed.readers for feed in self._feeds.values())

    def readers_of(self, run_id: str) -> int:
        """How many readers a run has."""
        feed = self._feeds.get(run_id)
        return feed.readers if feed else 0

    @asynccontextmanager
    async def reading(
        self, run_id: str, after: int = 0, write_now: WriteNow | None = None
    ) -> AsyncGenerator[FeedReader, None]:
        """A reader of the events of a run after a number.

        With `write_now`, it hands over events while `next` waits, as long as this returns True.
        """
        feed = await self._join(run_id)
        reader = FeedReader(feed, after, self._reads.read, write_now)
        try:
            yield reader
        finally:
            feed.leave(reader)
            self._leave(feed)

    def frames(self, page: Page) -> bytes:
        """The events of a page in our own protocol; each is encoded once, however many readers get it."""
        if page.frames is None:
            for item in page.items:
                if item.frame is None:
                    item.frame = self._make_frame(item.seq if item.is_logged else None, item.at, item.event)
            page.frames = b"".join([item.frame or b"" for item in page.items])
        return page.frames

    def close(self) -> None:
        """End all readers: the server stops."""
        self._is_closed = True
        for feed in self._feeds.values():
            feed.close()
        for task in self._tasks.values():
            task.cancel()
        self._reads.close()

    async def _join(self, run_id: str) -> Feed:
        if run_id not in self._feeds:
            row = await awith_retries(partial(self._store.find, run_id))
            if row is None:
                raise UnknownRunError(f"there is no run with the id {run_id!r}")
            if run_id not in self._feeds:  # another reader may have come meanwhile
                self._open(Feed(run_id, row.seq, is_over=row.state == "over"))
        feed = self._feeds[run_id]
        feed.readers += 1
        return feed

    def _open(self, feed: Feed) -> None:
        self._feeds[feed.run_id] = feed
        if self._is_closed:
            feed.close()
        elif not feed.is_over:
            source = FeedSource(feed, self._reads.read)
            self._tasks[feed.run_id] = asyncio.create_task(source.run(self._store))

    def _leave(self, feed: Feed) -> None:
        feed.readers -= 1
        if not feed.readers and self._feeds.get(feed.run_id) is feed:
            del self._feeds[feed.run_id]
            if (task := self._tasks.pop(feed.run_id, None)) is not None:
                task.cancel()

    def _read(self, run_id: str, after: int) -> list[Item]:
        """The next logged events: about a page, or fewer than a step if there are no more."""
        items: list[Item] = []
        size = 0
        while len(items) < PAGE and size <= PAGE_BYTES:
            events = next_events(self._store, run_id, after, STEP)
            new = [Item(seq, at, event, len(body_of(event))) for seq, at, event in events]
            items += new
            if len(new) < STEP:
                break
            after, size = new[-1].seq, size + sum(item.size for item in new)
        return items
