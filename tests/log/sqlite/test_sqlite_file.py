"""The file of a SQLite log: which writes wait for the disk, and which share a commit."""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest

from penstock import StoreError
from penstock.log import RunRow, SQLiteStore, points
from penstock.log.sqlite.file import SQLiteFile, ThreadConnection, _Write
from penstock.log.store import Batch
from tests.log.sqlite.connections import connection_of

NORMAL, FULL = 1, 2  # of `PRAGMA synchronous`: a commit waits for the disk only with FULL
SECONDS = 30.0


def prepare(connection: sqlite3.Connection, path: str) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT)")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SQLiteFile]:
    file = SQLiteFile(tmp_path / "notes.db", wait=0.1)
    file.open(prepare)
    yield file
    file.close()


def synchronous(connection: sqlite3.Connection) -> int:
    [value] = connection.execute("PRAGMA synchronous").fetchone()
    return int(value)


def note(text: str) -> Callable[[sqlite3.Connection], int]:
    def add(connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO notes VALUES (?)", (text,))
        return synchronous(connection)

    return add


def notes(file: SQLiteFile) -> list[str]:
    return sorted(text for (text,) in connection_of(file).execute("SELECT text FROM notes"))


class Crowd:
    """Writes that wait while another one is under way, each in a thread of its own."""

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file
        self._threads = ThreadPoolExecutor(10)

    def write(
        self, *operations: Callable[[sqlite3.Connection], Any], durable: bool = False, meanwhile: Callable[[], object]
    ) -> list[Future[Any]]:
        """The outcomes of operations that get their turn together; `meanwhile` is called before."""
        has_begun, may_end = threading.Event(), threading.Event()

        def hold(connection: sqlite3.Connection) -> None:
            has_begun.set()
            assert may_end.wait(SECONDS)

        with self._threads as threads:
            first = threads.submit(self._file.write, hold, durable=False)
            assert has_begun.wait(SECONDS)
            outcomes = [
                threads.submit(self._file.write, operation, durable=durable and number == 0)
                for number, operation in enumerate(operations)
            ]
            end = time.monotonic() + SECONDS
            while len(self._file._writes.waiting) <= len(operations) and time.monotonic() < end:  # with the first one
                time.sleep(0.001)
            meanwhile()
            may_end.set()
        first.result()
        return outcomes


@pytest.fixture
def groups(file: SQLiteFile, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of writes that were tried together, in order."""
    groups: list[int] = []
    commit = file._commit

    def counted(own: ThreadConnection) -> None:
        groups.append(sum(not write.is_over for write in file._writes.waiting))
        commit(own)

    monkeypatch.setattr(file, "_commit", counted)
    return groups


def nothing() -> None:
    pass


def test_writes_that_wait_share_a_commit(file: SQLiteFile, groups: list[int]) -> None:
    outcomes = Crowd(file).write(*map(note, "abc"), meanwhile=nothing)
    assert [outcome.result() for outcome in outcomes] == [NORMAL] * 3
    assert notes(file) == ["a", "b", "c"]
    assert groups == [1, 3]


def test_a_shared_commit_waits_for_the_disk_if_one_of_its_writes_has_to(file: SQLiteFile) -> None:
    outcomes = Crowd(file).write(*map(note, "abc"), durable=True, meanwhile=nothing)
    assert [outcome.result() for outcome in outcomes] == [FULL] * 3
    assert file.write(note("d"), durable=False) == NORMAL


def test_a_write_that_fails_does_not_fail_those_that_share_its_commit(file: SQLiteFile, groups: list[int]) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        note("half")(connection)
        raise ValueError("it fails")

    def wrong(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO nothing VALUES (1)")

    outcomes = Crowd(file).write(note("a"), fail, note("b"), wrong, note("c"), meanwhile=nothing)
    errors = [outcome.exception() for outcome in outcomes]
    assert [type(error) for error in errors] == [type(None), ValueError, type(None), StoreError, type(None)]
    assert notes(file) == ["a", "b", "c"]
    assert groups == [1, 5, 4, 3]


def test_what_prevents_a_commit_is_the_error_of_all_its_writes(
    file: SQLiteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise sqlite3.OperationalError("database is locked")

    def lock() -> None:
        monkeypatch.setattr(ThreadConnection, "set_durable", busy)

    outcomes = Crowd(file).write(*map(note, "abc"), durable=True, meanwhile=lock)
    for outcome in outcomes:
        with pytest.raises(StoreError, match="cannot be written: database is locked"):
            outcome.result()
    monkeypatch.undo()
    assert file.write(note("d"), durable=False) == NORMAL
    assert notes(file) == ["d"]


def test_a_thread_that_is_interrupted_takes_no_write_of_another_thread_with_it(file: SQLiteFile) -> None:
    """Such as the main thread of a program that is stopped, which has the turn for all that wait."""

    def interrupt(connection: sqlite3.Connection) -> None:
        raise KeyboardInterrupt

    other = _Write(note("a"), durable=False)
    file._writes.waiting.append(other)
    with pytest.raises(KeyboardInterrupt):
        file.write(interrupt, durable=False)
    assert [*file._writes.waiting] == [other]
    assert file.write(note("b"), durable=False) == NORMAL
    assert other.is_over
    assert notes(file) == ["a", "b"]


@pytest.mark.parametrize("line", range(12))
def test_a_thread_that_is_interrupted_at_any_line_takes_no_write_with_it(file: SQLiteFile, line: int) -> None:
    """Also if it has begun to gather the writes, and has not begun to write them."""
    lines = iter(range(100))

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not SQLiteFile._commit.__code__:
            return None
        if event == "line" and next(lines) == line:
            raise KeyboardInterrupt
        return trace

    other, before = _Write(note("a"), durable=False), sys.gettrace()
    file._writes.waiting.append(other)
    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            file.write(note("b"), durable=False)
    finally:
        sys.settrace(before)
    file.write(note("c"), durable=False)
    assert other.is_over
    assert notes(file)[0] == "a"


def test_a_write_is_over_if_its_thread_is_interrupted_after_the_commit(file: SQLiteFile) -> None:
    """A signal that comes while a thread waits for the disk interrupts it right after the commit."""

    class Interrupted:
        in_transaction = property(lambda self: connection_of(file).in_transaction)

        def execute(self, statement: str) -> sqlite3.Cursor:
            cursor = connection_of(file).execute(statement)
            if statement == "COMMIT":
                raise KeyboardInterrupt
            return cursor

        def close(self) -> None:
            pass

    write = _Write(lambda _: note("a")(connection_of(file)), durable=False)
    file._writes.waiting.append(write)
    with pytest.raises(KeyboardInterrupt):
        file._commit(ThreadConnection(cast(sqlite3.Connection, Interrupted())))
    assert write.is_over
    assert notes(file) == ["a"]


@pytest.mark.parametrize(("durable", "setting"), [(True, FULL), (False, NORMAL)])
def test_an_append_waits_for_the_disk_only_if_it_is_durable(
    durable: bool, setting: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    store.create(RunRow(id="r", agent="desk"), b"start", owner="one")
    settings: list[int] = []
    monkeypatch.setattr(points, "hook", lambda *_: settings.append(synchronous(connection_of(store._file))))
    for seq, is_durable in enumerate([not durable, durable, durable, not durable, durable], 2):
        assert store.append([Batch("r", 1, seq, [b'{"type":"text"}'])], durable=is_durable) == [True]
    assert [settings[index] for index in (1, 2, 4)] == [setting] * 3
    assert {settings[0], settings[3]} == {FULL + NORMAL - setting}
    store.close()
