"""Feeds of runs: from where readers of a process get events, each once, and how much is held in memory for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Done, Text, ToolEnd, ToolResult, Usage
from penstock.log import RunRow, SQLiteStore, Store
from penstock.log.bodies import body_of
from penstock.log.doorbell import Doorbell
from penstock.log.position import START, Position
from penstock.log.store import Batch, Row
from penstock.messages import user
from penstock.run.events import RunStart
from penstock.serve.feeds import feed
from penstock.serve.feeds import feeds as feed_source
from penstock.serve.feeds.feed import Feed, Item, Page
from penstock.serve.feeds.feeds import FeedReader, Feeds, FeedSource
from penstock.serve.public_events import EventFrames

FIRST = 3
"""The number of the first text, after the start and the claim."""
DONE = body_of(Done("answered", "", (), Usage()))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "runs.db")
    store.create(RunRow(id="r", agent="support"), body_of(RunStart((user("Go."),), "support")))
    assert store.claim("one", run_id="r") is not None
    yield store
    store.close()


def append(store: Store, seq: int, *bodies: bytes) -> None:
    """Append events whose first has this number, as the thread of the flusher does."""
    state = "over" if bodies[-1] == DONE else "running"
    assert store.append([Batch("r", 1, seq - 1, bodies, state)], durable=False) == [True]  # type: ignore[arg-type]


def text(number: int) -> bytes:
    return body_of(Text(0, f"piece {number}"))


async def read(reader: FeedReader, last: int) -> list[Item]:
    """The next events until this one."""
    items: list[Item] = []
    async with asyncio.timeout(30):
        while not items or items[-1].seq < last:
            page = await reader.next()
            assert page is not None
            items += page.items
    return items


def new_feeds(store: Store) -> Feeds:
    return Feeds(store, EventFrames(1000).frame)


def frame(item: Item) -> bytes:
    return EventFrames(1000).frame(item.seq, item.at, item.event)


def frames_of(store: Store, after: int = 0) -> list[tuple[int, bytes]]:
    """The frames of the events that the log has."""
    return [(item.seq, frame(item)) for item in new_feeds(store)._read("r", Position(after))]


def test_what_this_process_commits_is_not_read_back(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_source, "MAX_POLL", 60.0)
    store.poll = 60.0

    async def test() -> list[Item]:
        feeds = new_feeds(store)
        async with feeds.reading("r") as reader, feeds.reading("r", FIRST) as second:
            items = await read(reader, FIRST - 1)
            append(store, FIRST, text(0))
            items += await read(reader, FIRST)  # the first look at the log may be under way until here
            await asyncio.sleep(0)
            with monkeypatch.context() as patch:
                patch.setattr(store, "read", None)
                patch.setattr(store, "find", None)
                for number in range(FIRST + 1, FIRST + 20):
                    await asyncio.to_thread(append, store, number, text(number))
                    items += await read(reader, number)
                append(store, FIRST + 20, text(0), DONE)
                items += await read(reader, FIRST + 21)
                assert await reader.next() is None
                again = await read(second, FIRST + 21)
            assert all(one is two for one, two in zip(again, items[FIRST:], strict=True))
        return items

    assert [(item.seq, frame(item)) for item in asyncio.run(test())] == frames_of(store)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_events_that_are_not_announced_come_from_the_log(
    store: SQLiteStore, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three batches each, one is announced without its events, one with them, and one not at all."""
    store.poll = 0.01
    monkeypatch.setattr(feed_source, "FED_POLL", 0.02)
    count = lost
    ring_with = Doorbell.ring_with

    def sometimes(self: Doorbell, batches: list[tuple[Batch, float]]) -> None:
        nonlocal count
        count += 1
        if count % 3 == 0:
            self.ring(batch.run_id for batch, _ in batches)
        elif count % 3 == 1:
            ring_with(self, batches)

    monkeypatch.setattr(Doorbell, "ring_with", sometimes)

    async def test() -> list[Item]:
        feeds = new_feeds(store)
        async with feeds.reading("r") as reader:
            items = await read(reader, FIRST - 1)
            for number in range(FIRST, FIRST + 9):
                append(store, number, text(number))
                if number % 2:
                    items += await read(reader, number)
            append(store, FIRST + 9, DONE)
            return items + await read(reader, FIRST + 9)

    assert [(item.seq, frame(item)) for item in asyncio.run(test())] == frames_of(store)


@pytest.mark.parametrize(("most", "most_bytes"), [(5, 1_000_000), (1_000, 5 * len(text(10)))])
def test_what_is_announced_while_the_loop_is_busy_is_held_up_to_a_limit_and_nothing_is_lost(
    store: SQLiteStore, most: int, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_KEPT", most)
    monkeypatch.setattr(feed, "MAX_KEPT_BYTES", most_bytes)
    sources: list[FeedSource] = []
    held: list[int] = []

    class Known(FeedSource):
        async def run(self, store: Store) -> None:
            sources.append(self)
            await super().run(store)

    monkeypatch.setattr("penstock.serve.feeds.feeds.FeedSource", Known)

    async def test() -> list[Item]:
        feeds = new_feeds(store)
        async with feeds.reading("r") as reader:
            items = await read(reader, FIRST - 1)
            append(store, FIRST, *map(text, range(FIRST, 10)))
            items += await read(reader, 9)
            for number in range(10, FIRST + 40):  # nothing else runs on this loop meanwhile
                append(store, number, text(number))
                held.append(len(sources[0]._rows.kept))
            append(store, FIRST + 40, DONE)
            return items + await read(reader, FIRST + 40)

    assert [(item.seq, frame(item)) for item in asyncio.run(test())] == frames_of(store)
    assert max(held) == 5


def test_a_feed_keeps_so_many_events_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_KEPT", 10)
    monkeypatch.setattr(feed, "MAX_KEPT_BYTES", 1000)

    async def test() -> None:
        one = Feed("r", START, is_over=False)
        one.add([Item(number, 0.0, Text(0, ""), 10) for number in range(1, 31)])
        assert one.after(19) is None
        assert one.after(20) is not None
        one.add([Item(31, 0.0, Text(0, ""), 990)])
        assert one.after(28) is None
        page = one.after(29)
        assert page is not None
        assert [item.seq for item in page.items] == [30, 31]
        one.add([Item(32, 0.0, Text(0, ""), 5000)])
        page = one.after(31)
        assert page is not None
        assert [item.size for item in page.items] == [5000]
        assert one.after(30) is None

    asyncio.run(test())


@pytest.mark.parametrize("is_committed_here", [True, False])
def test_private_data_that_no_reader_gets_counts_as_kept(
    store: SQLiteStore, is_committed_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_KEPT_BYTES", 10_000)
    monkeypatch.setattr(feed_source, "FED_POLL", 0.02)
    store.poll = 0.01
    if not is_committed_here:
        monkeypatch.setattr(Doorbell, "ring_with", lambda *_: None)

    async def test() -> None:
        feeds = new_feeds(store)
        async with feeds.reading("r") as reader:
            await read(reader, FIRST - 1)
            for number in range(FIRST, FIRST + 10):
                result = ToolResult("c", "look", (Text(0, "sunny"),))
                append(store, number, body_of(ToolEnd("c", result, data="x" * 4_000)))
                items = await read(reader, number)
                assert len(frame(items[-1])) < 1_000
            kept = feeds._feeds["r"]
            assert kept.after(FIRST + 6) is None
            assert kept.after(FIRST + 7) is not None

    asyncio.run(test())


def test_a_reader_gets_so_many_events_and_bytes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PAGE", 4)
    monkeypatch.setattr(feed, "PAGE_BYTES", 100)

    async def test() -> None:
        one = Feed("r", START, is_over=False)
        one.add([Item(number, 0.0, Text(0, ""), size) for number, size in enumerate((10, 10, 10, 10, 10, 95, 1), 1)])
        sizes = []
        after = 0
        while after < 7:
            page = one.after(after)
            assert page is not None
            sizes.append([item.size for item in page.items])
            after = page.last
        assert sizes == [[10, 10, 10, 10], [10, 95], [1]]

    asyncio.run(test())


@pytest.mark.parametrize(("size", "most"), [(10, 200), (4_000, 100), (100_000, 50)])
def test_for_a_page_no_more_private_data_is_read_than_for_some_events(
    store: SQLiteStore, size: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, last = ToolResult("c", "look", (Text(0, "sunny"),)), FIRST + 249
    append(store, FIRST, *(body_of(ToolEnd("c", result, data="x" * size)) for _ in range(250)))
    append(store, last + 1, DONE)
    counts: list[int] = []
    read_rows = store.read

    def count(run_id: str, after: int = 0, limit: int = 1000) -> list[Row]:
        rows = read_rows(run_id, after, limit)
        counts.append(len(rows))
        return rows

    monkeypatch.setattr(store, "read", count)
    feeds = new_feeds(store)
    assert len(feeds._read("r", Position(FIRST - 1))) == most
    assert sum(counts) == most + len(counts) - 1, "each read but the first compares the last event"
    assert max(counts) <= feed.STEP + 1

    async def test() -> list[Item]:
        async with feeds.reading("r") as reader:
            return await read(reader, last + 1)

    items = asyncio.run(test())
    assert [item.seq for item in items] == [*range(1, last + 2)]


@pytest.mark.parametrize("refused", [0, 1, 2, 3])
def test_what_is_written_while_a_reader_waits_and_what_it_gets_are_all_events_in_order(
    store: SQLiteStore, refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every so many pieces cannot be written where they turn up; one reader is ahead of the feed at first, and some
    commits are more than a page."""
    monkeypatch.setattr(feed, "PAGE", 2)
    last = FIRST + 20

    async def follow(feeds: Feeds, after: int) -> bytes:
        frames: list[bytes] = []
        count = 0

        def write_now(page: Page) -> bool:
            nonlocal count
            count += 1
            if refused and count % refused == 0:
                return False
            frames.append(feeds.frames(page))
            return True

        async with feeds.reading("r", after, write_now) as reader:
            while (page := await reader.next()) is not None:
                frames.append(feeds.frames(page))
        assert count
        return b"".join(frames)

    async def test() -> list[bytes]:
        feeds = new_feeds(store)
        readers = [asyncio.create_task(follow(feeds, after)) for after in (0, FIRST - 1, FIRST + 1)]
        async with feeds.reading("r") as reader:
            await read(reader, FIRST - 1)
            while len(feeds._feeds["r"]._waiting) < len(readers):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            for number in range(FIRST, last, 4):
                append(store, number, text(number))
                await read(reader, number)
                append(store, number + 1, *map(text, range(number + 1, number + 4)))
                await read(reader, number + 3)
            append(store, last, DONE)
        async with asyncio.timeout(30):
            return await asyncio.gather(*readers)

    frames = asyncio.run(test())
    for found, after in zip(frames, (0, FIRST - 1, FIRST + 1), strict=True):
        assert found == b"".join(frame for _, frame in frames_of(store, after))


def test_readers_that_come_and_go_leave_nothing_behind(store: SQLiteStore) -> None:
    async def test() -> None:
        feeds = new_feeds(store)
        async with feeds.reading("r") as stays:
            await read(stays, FIRST - 1)
            for _ in range(5):
                async with feeds.reading("r", FIRST - 1) as reader:
                    waiting = asyncio.create_task(reader.next())
                    await asyncio.sleep(0)
                    waiting.cancel()
                    await asyncio.gather(waiting, return_exceptions=True)
            assert feeds.readers_of("r") == 1
            assert len(feeds._feeds["r"]._waiting) == 0
        assert feeds.readers == 0
        async with asyncio.timeout(30):
            while store._doorbell.is_watched:  # noqa: ASYNC110  # until the task of the feed has ended
                await asyncio.sleep(0.01)

    asyncio.run(test())
