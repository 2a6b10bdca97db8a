"""The events of runs for all readers of a process: each event is encoded once, however many readers it has.

A reader is only a position. It gets the events after it, from memory or else from the log; so a reader that stops
reading costs nothing and delays nobody. Up-to-date readers are written to as events come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct

from penstock.agent.driver.caller_loop import mailbox_of
from penstock.events import Usage
from penstock.log.bodies import body_of, event_of
from penstock.log.follow import last_position, next_events
from penstock.log.position import OtherPastError, Position, parse_position
from penstock.log.store import Committed, DamagedRunError, Store, StoreError, UnknownRunError
from penstock.log.store_retries import awith_retries
from penstock.loggers import get_logger
from penstock.run.events import Done, LogEvent
from penstock.serve.feeds.feed import PAGE, PAGE_BYTES, STEP, Feed, Item, Newest, Page, page_of
from penstock.serve.public_events import DAMAGED

logger = get_logger("penstock.serve")

MakeFrame = Callable[[int | None, float, LogEvent], bytes]
WriteNow = Callable[[Page], bool]


class FeedReader:
    """Reads the events of a run, from a position on; ends after `Done`, or when the server stops.

    If the log of the run is damaged, that `Done` says so. It is not in the log, and has no number for a client. If the
    reader turns out to have read what the log does not have, it ends too, and `has_other_past`: it must begin again.
    """

    def __init__(self, feed: Feed, after: Position, read: ReadLog, write_now: WriteNow | None = None) -> None:
        self.has_other_past = False
        self._feed = feed
        self._after = int(after)
        self._last: Item | None = None  # the event with that number, if it came from here
        self._first = after
        self._read = read
        self._write_now = write_now
        self._is_damaged = False

    async def next(self) -> Page | None:
        """Wait for the next page; None after the last."""
        feed = self._feed
        try:
            while not feed.is_closed and not self._is_damaged:
                if feed.has_other_past:
                    self.has_other_past = True
                    return None
                if self._after < feed.seq:
                    page = feed.after(self._after) or page_of(await self._read(feed.run_id, self._position))
                    self._after, self._last = page.last, page.items[-1]
                    return page
                if feed.error is not None:
                    raise feed.error
                if feed.is_over:
                    return None
                await feed.change(self)
        except DamagedRunError as error:
            return self._end(error)
        except OtherPastError:
            self.has_other_past = True
        return None

    @property
    def _position(self) -> Position:
        return self._first if self._last is None else self._last.position

    def take(self, page: Page, after: int) -> bool:
        """Send the events after a number where they arrive; False if `next` has to return."""
        if self._after != after or self._write_now is None or not self._write_now(page):
            return False
        self._after, self._last = page.last, page.items[-1]
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

    def __init__(self, store: Store, make_frame: MakeFrame, reset_frame: Callable[[], bytes] = bytes) -> None:
        self.reset_frame = reset_frame
        self._store = store
        self._make_frame = make_frame
        self._feeds: dict[str, Feed] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reads = SharedReads(self._read)
        self.is_closed = False  # whether the server stops

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
        """A reader of the events of a run after a position.

        With `write_now`, it hands over events while `next` waits, as long as this returns True.
        """
        feed = await self._join(run_id)
        reader = FeedReader(feed, parse_position(after), self._reads.read, write_now)
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
        self.is_closed = True
        for feed in self._feeds.values():
            feed.close()
        for task in self._tasks.values():
            task.cancel()
        self._reads.close()

    async def _join(self, run_id: str) -> Feed:
        feed = self._current(run_id)
        if feed is None:
            found = await awith_retries(partial(self._find, run_id))
            feed = self._current(run_id)  # another reader may have come meanwhile
            if feed is None:
                feed = found
                self._open(feed)
        feed.readers += 1
        return feed

    def _current(self, run_id: str) -> Feed | None:
        """The feed of a run, unless it has other events than the log."""
        feed = self._feeds.get(run_id)
        return None if feed is None or feed.has_other_past else feed

    def _find(self, run_id: str) -> Feed:
        """A feed of a run, without events."""
        row = self._store.find(run_id)
        if row is None:
            raise UnknownRunError(f"there is no run with the id {run_id!r}")
        return Feed(run_id, last_position(self._store, row), is_over=row.state == "over")

    def _open(self, feed: Feed) -> None:
        self._feeds[feed.run_id] = feed
        if self.is_closed:
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

    def _read(self, run_id: str, after: Position) -> list[Item]:
        """The next logged events: about a page, or fewer than a step if there are no more."""
        items: list[Item] = []
        size = 0
        while len(items) < PAGE and size <= PAGE_BYTES:
            events = next_events(self._store, run_id, after, STEP)
            new = [Item(seq, at, event, len(body_of(event))) for seq, at, event in events]
            items += new
            if len(new) < STEP:
                break
            after, size = new[-1].position, size + sum(item.size for item in new)
        return items


# Keeps a feed up to date, with the commits of this process and the writes of others.
#
# The store hands over committed events, from the thread that wrote them. As long as each event follows the last one,
# the log is not read at all; after a gap, a hint without events, or a while, it is.


MAX_POLL = 0.5
"""The seconds between two checks of a log that was silent for a while, if nothing rings."""

FED_POLL = 2.0
"""The seconds between two checks of a log that this process writes: another worker may take the run over."""

ReadLog = Callable[[str, Position], Awaitable[list[Item]]]

GAP = Committed(0, 0.0, b"", 0, None)
"""Stands between rows: others may have written here, also after the log lost the rows before."""


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
            self._rows.add(rows or (GAP,))
            post(self._take)

        with store.watch(self._feed.run_id, on_rows):
            try:
                await self._keep_reading(store.poll)
            except OtherPastError:
                logger.warning("run %s: its log lost events that were sent; readers begin again", self._feed.run_id)
                self._feed.lose_past()
            except Exception as error:  # noqa: BLE001  # it is reported to the readers
                self._feed.fail(error)

    async def _keep_reading(self, poll: float) -> None:
        feed, pause = self._feed, poll
        while not feed.is_over:
            self._look.clear()
            self._is_reading = True
            self._rows.take()  # they are in the log by now
            items = await self._read(feed.run_id, feed.position)
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
        """Add the rows received so far, unless the log is being read, or must be: then they are added after that."""
        if self._is_reading or self._look.is_set():
            return
        feed, items = self._feed, list[Item]()
        seq = feed.seq
        for row in self._rows.take():
            if row is GAP:
                self._look.set()  # the rows after it are in the log
                break
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


# Reads of logs that are requested at the same time share one switch to a thread, which costs more than most reads.
#
# Equal reads are one: when all readers of a run come back at once, its log is read once.


T = TypeVar("T")


class _Read(Struct, Generic[T], eq=False):
    """One read, and its waiting readers."""

    run_id: str
    after: Position
    futures: list[asyncio.Future[T]]


class SharedReads(Generic[T]):
    """Carries out `read(run_id, after)` on a thread, for all who ask while the last reads are under way."""

    def __init__(self, read: Callable[[str, Position], T]) -> None:
        self._read = read
        self._waiting: dict[tuple[str, str], _Read[T]] = {}
        self._task: asyncio.Task[None] | None = None

    async def read(self, run_id: str, after: Position) -> T:
        """What the read returns or raises."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((run_id, after.token), _Read(run_id, after, [])).futures.append(future)
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await future

    def close(self) -> None:
        """End all waiting reads."""
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        reads: list[_Read[T]] = []
        try:
            while self._waiting:
                reads, self._waiting = [*self._waiting.values()], {}
                try:
                    results = await awith_retries(partial(self._read_all, reads))
                except StoreError as error:
                    results = [error] * len(reads)
                for read, result in zip(reads, results, strict=True):
                    for future in read.futures:
                        _settle(future, result)
        finally:
            self._task = None
            for read in (*reads, *self._waiting.values()):  # left over when the server stops
                for future in read.futures:
                    future.cancel()

    def _read_all(self, reads: Sequence[_Read[T]]) -> list[T | Exception]:
        results: list[T | Exception] = []
        for read in reads:
            try:
                results.append(self._read(read.run_id, read.after))
            except Exception as error:  # it is raised where the read is waited for
                if isinstance(error, StoreError) and error.is_temporary:
                    raise  # for all of them, which are tried again
                results.append(error)
        return results


def _settle(future: asyncio.Future[T], result: T | Exception) -> None:
    if future.done():  # the waiting reader has left
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
