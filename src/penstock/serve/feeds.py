"""The events of runs for all readers of a process: each log is read once, however many readers it has.

A reader has only a position. It gets what came after it, and if that is no longer in memory, what the log has; so a
reader that stops reading costs nothing and delays nobody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from itertools import islice

from msgspec import Struct

from penstock.events import Usage
from penstock.log.follow import next_events
from penstock.log.patience import apatiently
from penstock.log.store import DamagedRunError, Store, UnknownRunError
from penstock.run.events import Done, LogEvent
from penstock.serve.public_events import DAMAGED
from penstock.serve.shared_reads import SharedReads

logger = logging.getLogger("penstock.serve")

MAX_KEPT = 1_000
"""How many events of a run are kept in memory for its readers."""

MAX_POLL = 0.5
"""How many seconds pass between two looks at a log that was silent for a while, if nothing rings."""

PAGE = 200
"""How many events a reader gets at a time: one that does not read holds so many in memory."""


class Item(Struct, frozen=True):
    """An event of a log with its number, and its frame in our own protocol."""

    seq: int
    event: LogEvent
    frame: bytes


MakeFrame = Callable[[int | None, float, LogEvent], bytes]


class Feed:
    """The newest events of one run."""

    def __init__(self, run_id: str, seq: int, is_over: bool) -> None:
        self.run_id = run_id
        self.seq = seq  # of the newest event
        self.is_over = is_over
        self.error: Exception | None = None
        self.readers = 0
        self.items: deque[Item] = deque(maxlen=MAX_KEPT)
        self.news = asyncio.Event()

    def add(self, items: Sequence[Item]) -> None:
        """New events have come: wake all readers."""
        self.items.extend(items)
        if items:
            self.seq = items[-1].seq
            self.is_over = isinstance(items[-1].event, Done)
        self.wake()

    def fail(self, error: Exception) -> None:
        """The log cannot be read."""
        self.error = error
        self.wake()

    def wake(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()

    def after(self, seq: int) -> list[Item] | None:
        """The next events after a number; None if some of them are no longer here."""
        missing = self.seq - seq
        if missing > len(self.items):
            return None
        first = len(self.items) - missing
        return [*islice(self.items, first, first + PAGE)]


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

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[list[Item], None]:
        """The events of a run after a number, in lists, as they come; ends with `Done` or when the server stops.

        If the log of the run is damaged, that `Done` says so. It is not in the log, and has no number for a client.
        """
        feed = await self._join(run_id)
        try:
            while not self._is_closed:
                if after < feed.seq:
                    items = feed.after(after)
                    if items is None:
                        items = await apatiently(partial(self._read, run_id, after, PAGE))
                    after = items[-1].seq
                    yield items
                elif feed.error is not None:
                    raise feed.error
                elif feed.is_over:
                    return
                else:
                    await feed.news.wait()
        except DamagedRunError as error:
            logger.error("run %s: %s", run_id, error)
            end = Done("error", "", (), Usage(), DAMAGED)
            yield [Item(after + 1, end, self._make_frame(None, time.time(), end))]
        finally:
            self._leave(feed)

    def close(self) -> None:
        """End all readers: the server stops."""
        self._is_closed = True
        for feed in self._feeds.values():
            feed.wake()
        for task in self._tasks.values():
            task.cancel()
        self._reads.close()

    async def _join(self, run_id: str) -> Feed:
        if run_id not in self._feeds:
            row = await apatiently(partial(self._store.find, run_id))
            if row is None:
                raise UnknownRunError(f"there is no run with the id {run_id!r}")
            if run_id not in self._feeds:  # another reader may have come meanwhile
                self._open(Feed(run_id, row.seq, is_over=row.state == "over"))
        feed = self._feeds[run_id]
        feed.readers += 1
        return feed

    def _open(self, feed: Feed) -> None:
        self._feeds[feed.run_id] = feed
        if not feed.is_over:
            self._tasks[feed.run_id] = asyncio.create_task(self._keep_reading(feed))

    def _leave(self, feed: Feed) -> None:
        feed.readers -= 1
        if not feed.readers and self._feeds.get(feed.run_id) is feed:
            del self._feeds[feed.run_id]
            if (task := self._tasks.pop(feed.run_id, None)) is not None:
                task.cancel()

    async def _keep_reading(self, feed: Feed) -> None:
        """Read what the log of a run gets, until the run is over or nobody reads it."""
        loop, bell = asyncio.get_running_loop(), asyncio.Event()

        def ring() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(bell.set)

        pause = self._store.poll
        with self._store.watch(feed.run_id, ring):
            while not feed.is_over:
                bell.clear()
                try:
                    items = await self._reads.read(feed.run_id, feed.seq)
                except Exception as error:  # noqa: BLE001  # it is reported to the readers
                    feed.fail(error)
                    return
                if items:
                    feed.add(items)
                if len(items) == MAX_KEPT:
                    continue
                if await _is_heard(bell, pause):
                    pause = MAX_POLL  # this process writes the log, and rings
                else:
                    pause = self._store.poll if items else min(pause * 2, MAX_POLL)

    def _read(self, run_id: str, after: int, most: int = MAX_KEPT) -> list[Item]:
        events = next_events(self._store, run_id, after, most)
        return [Item(seq, event, self._make_frame(seq, at, event)) for seq, at, event in events]


async def _is_heard(bell: asyncio.Event, seconds: float) -> bool:
    """Wait for the bell so long; whether it has rung."""
    try:
        async with asyncio.timeout(seconds):
            await bell.wait()
    except TimeoutError:
        return False
    return True
