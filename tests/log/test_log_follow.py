"""Readers of a log: woken when there are events, by their own process and by others, and not blocking threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from penstock import Done, Reset, Said, UnknownRunError, Usage, UsageError
from penstock.log import PostgresStore, RunRow, SQLiteStore, Store
from penstock.log.bodies import body_of
from penstock.log.follow import afollow, follow
from penstock.log.follower import Follower, Settings, stored_start
from penstock.log.in_memory import MemoryStore
from penstock.log.store import Batch, Committed, Row
from penstock.messages import user
from penstock.run.events import LogEvent, RunStart
from tests.log_stores import Clock, Desk
from tests.postgres import drop, new_schema

LONG = 3600.0
START = body_of(RunStart((user("Go."),), "support"))
SAID = body_of(Said(user("More.")))
DONE = body_of(Done("answered", "", (), Usage()))


def start(store: Store, run_id: str = "r") -> None:
    store.create(RunRow(id=run_id, agent="support"), START)
    assert store.claim("one", run_id=run_id) is not None


def append(store: Store, seq: int, body: bytes = SAID, run_id: str = "r") -> None:
    state = "over" if body == DONE else "running"
    assert store.append([Batch(run_id, 1, seq, [body], state)], durable=False) == [True]  # type: ignore[arg-type]


class Reader(threading.Thread):
    """Follows a run on its own thread."""

    def __init__(self, store: Store) -> None:
        super().__init__(daemon=True)
        self.events: list[tuple[int, LogEvent]] = []
        self.has_event = threading.Semaphore(0)
        self._store = store

    def run(self) -> None:
        for event in follow(self._store, "r"):
            self.events.append(event)
            self.has_event.release()

    def wait(self) -> None:
        assert self.has_event.acquire(timeout=30)


def follow_two_events(reading: Store, writing: Store) -> None:
    start(writing)
    reader = Reader(reading)
    reader.start()
    reader.wait()
    reader.wait()
    append(writing, 2)
    reader.wait()
    append(writing, 3, DONE)
    reader.wait()
    reader.join(30)
    assert [number for number, _ in reader.events] == [1, 2, 3, 4]


def test_a_reader_in_the_same_process_is_woken(store: Store) -> None:
    store.poll = LONG
    follow_two_events(store, store)


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[tuple[Store, Store]]:
    schema = new_schema()
    reading, writing = (PostgresStore(postgres_url, schema=schema) for _ in range(2))
    yield reading, writing
    reading.close()
    writing.close()
    drop(postgres_url, schema)


def test_a_notification_of_postgres_wakes_readers_elsewhere(postgres: tuple[Store, Store]) -> None:
    reading, writing = postgres
    reading.poll = LONG
    follow_two_events(reading, writing)


def test_a_store_on_postgres_does_not_ring_again_for_what_it_has_written_itself(postgres: tuple[Store, Store]) -> None:
    ours, others = postgres
    heard: list[Sequence[Committed]] = []
    is_notified = threading.Semaphore(0)

    def hear(rows: Sequence[Committed]) -> None:
        heard.append(rows)
        if not rows:
            is_notified.release()

    start(others)
    with ours.watch("r", hear):
        assert is_notified.acquire(timeout=30)  # it listens
        heard.clear()
        append(ours, 2)
        append(others, 3)
        assert is_notified.acquire(timeout=30)  # notifications come in the order of the commits
    assert [[(row.seq, row.at, row.body) for row in rows] for rows in heard] == [ours.read("r", 2, 1), []]


def test_a_reader_on_postgres_that_gets_no_notification_polls(
    postgres: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = postgres
    monkeypatch.setattr("penstock.log.postgres.store.Listener.start", lambda self: None)
    follow_two_events(reading, writing)


def test_a_reader_on_sqlite_polls_for_what_other_processes_write(tmp_path: Path) -> None:
    reading, writing = (SQLiteStore(tmp_path / "runs.db") for _ in range(2))
    follow_two_events(reading, writing)
    reading.close()
    writing.close()


def test_waiting_ends_after_some_seconds_or_if_the_run_is_deleted(store: Store) -> None:
    start(store)
    before = time.monotonic()
    store.wait("r", 1, 60.0)  # there is a second event
    store.wait("r", 2, 0.05)
    assert 0.05 <= time.monotonic() - before < 30.0
    with pytest.raises(UnknownRunError):
        store.wait("nowhere", 0, 60.0)
    append(store, 2, DONE)
    store.prune(before=time.time())
    with pytest.raises(UnknownRunError):
        next(follow(store, "r", 3))


def numbers(store: Store, after: int) -> list[int]:
    return [number for number, _ in follow(store, "r", after)]


async def async_numbers(store: Store, after: int) -> list[int]:
    return [number async for number, _ in afollow(store, "r", after)]


def test_a_reader_that_has_had_the_end_of_a_run_gets_no_more_events(store: Store) -> None:
    """Its connection may have broken when it had just got the end."""
    start(store)
    append(store, 2, DONE)
    assert (numbers(store, 2), numbers(store, 3)) == ([3], [])
    assert asyncio.run(async_numbers(store, 3)) == []
    follower = Follower(stored_start(store, "r", after=3), Settings({}))
    follower.open()
    assert follower.next_events() == []
    assert follower.done is not None
    assert (follower.done.reason, follower.has_more) == ("answered", False)


@pytest.mark.parametrize("after", [-1, 4, "x", 2.0, True, None])
def test_a_number_after_which_there_can_be_no_event_is_an_error(after: int, store: Store) -> None:
    start(store)
    append(store, 2, SAID)
    with pytest.raises(
        UsageError, match=r"after must be a position of this run|'r' has 3 events: none can be read after"
    ):
        numbers(store, after)
    with pytest.raises(UsageError):
        asyncio.run(async_numbers(store, after))


def test_a_reader_of_a_run_that_is_deleted_meanwhile_is_told_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    start(store)
    append(store, 2, DONE)
    read = store.read

    def delete_and_read(run_id: str, after: int = 0, limit: int = 1000) -> list[Row]:
        store.prune(before=time.time())
        return read(run_id, after, limit)

    monkeypatch.setattr(store, "read", delete_and_read)
    with pytest.raises(UnknownRunError):
        numbers(store, 0)


def test_a_reader_of_a_run_that_is_deleted_and_started_again_is_told_so(store: Store) -> None:
    start(store)
    events = follow(store, "r")
    append(store, 2, SAID)
    assert [next(events)[0] for _ in range(3)] == [1, 2, 3]
    append(store, 3, DONE)
    store.prune(before=time.time())
    start(store)
    assert [next(events) for _ in range(2)] == [(0, Reset()), (1, RunStart((user("Go."),), "support"))]


def test_a_reader_takes_over_a_run_whose_owner_is_gone_although_no_event_comes() -> None:
    clock = Clock()
    store = MemoryStore(lease=0.4, clock=clock)
    store.poll = LONG
    start(store)
    follower = Follower(stored_start(store, "r"), Settings({}))
    follower.open()
    assert follower.owned is None
    clock.now += 1.0

    def take_over() -> None:
        while follower.owned is None:
            follower.next_events()
            follower.wait()  # at most MAX_WAIT

    thread = threading.Thread(target=take_over, daemon=True)
    thread.start()
    thread.join(30)
    assert follower.owned is not None
    store.close()


def test_many_async_readers_wait_without_blocking_threads(store: Store) -> None:
    store.poll = LONG

    async def read(run_id: str) -> list[int]:
        return [number async for number, _ in afollow(store, run_id)]

    async def scenario() -> list[list[int]]:
        async with asyncio.timeout(60):
            for number in range(50):
                await asyncio.to_thread(start, store, f"r{number}")
            readers = [asyncio.create_task(read(f"r{number}")) for number in range(50)]
            for number in range(50):
                await asyncio.to_thread(append, store, 2, SAID, f"r{number}")
                await asyncio.to_thread(append, store, 3, DONE, f"r{number}")
            return await asyncio.gather(*readers)

    assert asyncio.run(scenario()) == [[1, 2, 3, 4]] * 50


def test_an_async_reader_of_the_run_of_another_process_blocks_no_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads of an event loop are few, and its readers many."""

    def block(*_: object) -> None:
        raise AssertionError("a thread waits for events")

    monkeypatch.setattr(store, "wait", block)
    desk = Desk(store)
    desk.runs.start("desk", "Send it.", run_id="r")
    assert store.claim("other", run_id="r") is not None

    async def read() -> list[str]:
        async with asyncio.timeout(60), desk.agent.astream("Send it.", log=store, run_id="r") as run:
            return [event.type async for event in run]

    async def scenario() -> list[str]:
        reader = asyncio.create_task(read())
        await asyncio.to_thread(append, store, 2, SAID)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(append, store, 3, DONE)
        return await reader

    assert asyncio.run(scenario()) == ["said", "done"]
