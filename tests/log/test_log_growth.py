"""Operations of a store cost the same however many finished runs it has: every search of runs and events has an index.

`python -m tests.log_growth` measures them with a million runs.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.log import PostgresStore, SQLiteStore
from penstock.log.sqlite import pruning
from penstock.log.store import Cutoff
from tests.log_growth import Operations, add_finished_runs
from tests.log_stores import open_store

RUNS = 3000


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SQLiteStore]:
    with open_store("sqlite", tmp_path, "", lease=10.0) as store:
        assert isinstance(store, SQLiteStore)
        add_finished_runs(store, 1, RUNS)
        yield store


@pytest.fixture
def postgres(tmp_path: Path, postgres_url: str) -> Iterator[PostgresStore]:
    with open_store("postgres", tmp_path, postgres_url, lease=10.0) as store:
        assert isinstance(store, PostgresStore)
        add_finished_runs(store, 1, RUNS)
        yield store


def test_no_operation_scans_runs_or_events_of_a_sqlite_file(sqlite: SQLiteStore) -> None:
    statements: list[str] = []
    trace(sqlite, statements.append)
    for operation in Operations(sqlite).by_name().values():
        operation()
    trace(sqlite, None)
    searches = {each for each in statements if re.match(r"\s*(SELECT|WITH|UPDATE|DELETE)", each) and "runs" in each}
    assert len(searches) > 15
    for statement in searches:
        plan = sqlite._file.read(
            lambda connection, statement=statement: [
                row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")
            ]  # type: ignore[misc]
        )
        scans = [step for step in plan if re.match(r"SCAN (runs|events|heads)\b", step) and "USING" not in step]
        assert not scans, (statement, plan)


def test_no_operation_scans_runs_or_events_of_a_postgresql_database(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: dict[str, str] = {}
    execute = postgres._connections.execute

    def explain(statement: str, values: Any = None) -> list[tuple[Any, ...]]:
        rows = execute(f"EXPLAIN {statement}", values)
        plans[statement] = "\n".join(row[0] for row in rows)
        return execute(statement, values)

    monkeypatch.setattr(postgres._connections, "execute", explain)
    monkeypatch.setattr(postgres._connections, "maintain", explain)
    for operation in Operations(postgres).by_name().values():
        operation()
    assert len(plans) >= 12
    for statement, plan in plans.items():
        assert not re.search(r"Seq Scan on (runs|events)\b", plan), (statement, plan)


def test_a_file_shrinks_when_its_runs_are_deleted(sqlite: SQLiteStore) -> None:
    def pages(connection: sqlite3.Connection) -> int:
        [count] = connection.execute("PRAGMA page_count").fetchone()
        return int(count)

    before = sqlite._file.read(pages)
    assert sqlite.prune(before=float("inf"), limit=RUNS) == RUNS
    assert sqlite._file.read(pages) < before / 10
    assert sqlite.list() == []


def test_a_transaction_deletes_few_events_and_returns_few_pages(
    sqlite: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[int] = []
    pages: list[int] = []

    delete = pruning.delete

    def count(connection: sqlite3.Connection, run_ids: list[str], cutoff: Cutoff) -> tuple[int, int]:
        [size] = connection.execute("PRAGMA page_count").fetchone()
        result = delete(connection, run_ids, cutoff)
        deleted.append(result[0])
        pages.append(size - connection.execute("PRAGMA page_count").fetchone()[0])
        return result

    monkeypatch.setattr(pruning, "MAX_EVENTS", 200)
    monkeypatch.setattr(pruning, "MAX_PAGES", 1)
    monkeypatch.setattr(pruning, "delete", count)
    assert sqlite.prune(before=float("inf"), limit=100) == 100
    assert deleted == [20] * 5
    assert max(pages) == 1


def trace(store: SQLiteStore, callback: Any) -> None:
    """Let a function have each statement of this thread's connection."""
    store._file.read(lambda connection: connection.set_trace_callback(callback))
