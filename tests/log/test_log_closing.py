"""Stores that are closed while they are used: whoever uses one finishes, or gets a clear error."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import StoreError
from penstock.log import RunRow, SQLiteStore, Store
from penstock.log.sqlite.file import SQLiteFile
from penstock.log.store import Batch
from tests.log_stores import Desk

SOON = 30.0


def in_threads(count: int, work: Callable[[], object]) -> tuple[list[threading.Thread], list[Exception]]:
    """Threads that repeat some work until it raises, and what it has raised."""
    errors: list[Exception] = []

    def repeat() -> None:
        try:
            while True:
                work()
        except Exception as error:  # noqa: BLE001  # the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=repeat) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads, errors


def operations(store: Store, runs: Any) -> list[Callable[[], object]]:
    return [
        lambda: store.read("r"),
        lambda: store.list(),
        lambda: store.find("r"),
        lambda: store.inputs(["r"]),
        lambda: store.claimable(),
        lambda: store.wait("r", 10_000, 0.01),
        lambda: runs.start("desk", "Send it."),
        lambda: store.prune(before=0.0),
    ]


@pytest.mark.parametrize("index", range(8))
def test_a_thread_that_uses_a_store_while_it_is_closed_gets_a_clear_error(index: int, store: Store) -> None:
    desk = Desk(store)
    desk.runs.start("desk", "Send it.", run_id="r", thread="t" * 100)
    threads, errors = in_threads(4, operations(store, desk.runs)[index])
    time.sleep(0.05)
    store.close()
    for thread in threads:
        thread.join(SOON)
    assert [type(error) for error in errors] == [StoreError] * 4, errors
    assert all("was closed" in str(error) for error in errors), errors


def test_a_follower_of_a_store_that_is_closed_gets_a_clear_error(store: Store) -> None:
    desk = Desk(store)
    desk.runs.start("desk", "Send it.", run_id="r")
    threads, errors = in_threads(2, lambda: list(desk.runs.follow("r")))
    time.sleep(0.05)
    store.close()
    for thread in threads:
        thread.join(SOON)
    assert [type(error) for error in errors] == [StoreError] * 2, errors


def test_a_file_is_closed_when_a_thread_has_finished_reading_it(tmp_path: Path) -> None:
    """SQLite crashes if a connection is closed in the middle of a statement."""
    file = SQLiteFile(tmp_path / "notes.db", wait=0.1)
    file.open(lambda connection, path: None)
    is_reading, may_end = threading.Event(), threading.Event()

    def read(connection: sqlite3.Connection) -> int:
        is_reading.set()
        assert may_end.wait(SOON)
        return int(connection.execute("SELECT 1").fetchone()[0])

    results: list[int] = []
    reader = threading.Thread(target=lambda: results.append(file.read(read)))
    reader.start()
    assert is_reading.wait(SOON)
    closer = threading.Thread(target=file.close)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive()
    may_end.set()
    for thread in (reader, closer):
        thread.join(SOON)
    assert results == [1]
    with pytest.raises(StoreError, match="was closed"):
        file.read(read)


def test_a_run_whose_store_is_closed_ends_with_a_clear_error(store: Store) -> None:
    desk = Desk(store)
    with desk.agent.stream("Send it.", log=store, run_id="r") as run:
        events = iter(run)
        assert next(events).type == "step_start"
        store.close()
        with pytest.raises(StoreError, match="was closed"):
            list(events)
    assert desk.sent == []


def test_a_closed_store_can_be_closed_again(store: Store) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreError, match="was closed"):
        store.append([Batch("r", 1, 1, [b"{}"])], durable=True)


def test_a_connection_that_a_thread_opens_late_is_not_left_open(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    store.create(RunRow(id="r", agent="desk"), b"start")
    threads, errors = in_threads(1, lambda: threading.Thread(target=store.find, args=("r",)).run())
    store.close()
    for thread in threads:
        thread.join(SOON)
    assert len(errors) == 1
    assert not any(own.is_open for own in store._file.connections)
