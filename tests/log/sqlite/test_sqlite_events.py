"""The events of runs in a SQLite file: found by run, although they stand in the order in which they were written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import StoreError
from penstock.log import RunRow, SQLiteStore
from penstock.log.sqlite import heads as sqlite_heads
from penstock.log.sqlite import schema as sqlite_schema
from penstock.log.sqlite.events import MARK_EVERY
from penstock.log.sqlite.rows import MAX_ROWS, execute_rows
from penstock.log.store import Batch
from tests.log.sqlite.connections import connection_of

RUNS = ("a", "b", "c")
LENGTH = 3 * MARK_EVERY + 5


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "runs.db")
    yield store
    store.close()


def start(store: SQLiteStore, *run_ids: str) -> None:
    for run_id in run_ids:
        store.create(RunRow(id=run_id, agent="desk"), f"{run_id}1".encode())
        assert store.claim("worker", run_id=run_id) is not None


def fill(store: SQLiteStore) -> None:
    """Write three runs at once, in batches of different sizes."""
    start(store, *RUNS)
    seqs = dict.fromkeys(RUNS, 2)
    size = 0
    while min(seqs.values()) < LENGTH:
        batches = []
        for run_id, seq in seqs.items():
            size = size % 5 + 1
            numbers = range(seq + 1, min(seq + size, LENGTH) + 1)
            batches.append(Batch(run_id, 1, seq, [f"{run_id}{number}".encode() for number in numbers]))
            seqs[run_id] = seq + len(numbers)
        assert store.append(batches, durable=False) == [True] * len(RUNS)


@pytest.mark.parametrize("limit", [1, MARK_EVERY - 1, MARK_EVERY, MARK_EVERY + 1, 1000])
def test_a_reader_may_begin_at_every_event(limit: int, store: SQLiteStore) -> None:
    fill(store)
    for run_id in RUNS:
        for after in range(LENGTH + 1):
            rows = store.read(run_id, after, limit)
            assert [seq for seq, _, _ in rows] == [*range(after + 1, min(after + limit, LENGTH) + 1)]
            assert all(bytes(body) == f"{run_id}{seq}".encode() for seq, _, body in rows if seq != 2)


def test_runs_that_write_at_once_share_pages(store: SQLiteStore, tmp_path: Path) -> None:
    runs = [f"run-{number}" for number in range(100)]
    start(store, *runs)
    [size] = connection_of(store._file).execute("PRAGMA page_size").fetchone()
    connection_of(store._file).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    wal = tmp_path / "runs.db-wal"
    for seq in range(2, 12):
        store.append([Batch(run_id, 1, seq, [b"some words"], renew=False) for run_id in runs], durable=False)
    assert wal.stat().st_size < 10 * 20 * size, "each commit writes far fewer pages than it has runs"


def test_a_run_that_another_worker_has_taken_gets_no_events(store: SQLiteStore) -> None:
    start(store, *RUNS)
    batches = [Batch("a", 1, 2, [b"a3"]), Batch("b", 7, 2, [b"zombie", b"zombie"]), Batch("c", 1, 2, [b"c3", b"c4"])]
    assert store.append(batches, durable=True) == [True, False, True]
    assert {run_id: len(store.read(run_id)) for run_id in RUNS} == {"a": 3, "b": 2, "c": 4}
    assert store.append([Batch("b", 1, 2, [b"b3"])], durable=True) == [True]
    assert [bytes(body) for _, _, body in store.read("b", after=2)] == [b"b3"]


def test_a_run_that_was_pruned_gets_no_events(store: SQLiteStore) -> None:
    start(store, "a", "b")
    other = SQLiteStore(store.path)
    assert other.append([Batch("a", 1, 2, [b"end"], state="over")], durable=True) == [True]
    assert other.prune(before=float("inf")) == 1
    other.close()
    assert store.append([Batch("a", 1, 2, [b"zombie"]), Batch("b", 1, 2, [b"b3"])], durable=True) == [False, True]
    for table in ("events", "heads", "runs"):
        [rows] = connection_of(store._file).execute(f"SELECT count(*) FROM {table}").fetchone()
        assert rows == {"events": 3, "heads": 1, "runs": 1}[table]


def test_a_run_that_another_process_has_written_meanwhile_gets_no_events_twice(store: SQLiteStore) -> None:
    start(store, *RUNS)
    other = SQLiteStore(store.path)
    assert other.append([Batch("b", 1, 2, [b"b3"])], durable=True) == [True]
    batches = [Batch(run_id, 1, 2, [b"3"]) for run_id in RUNS]
    assert store.append(batches, durable=True) == [True, False, True]
    assert store.append([Batch(run_id, 1, 3, [b"4"]) for run_id in RUNS], durable=True) == [True] * 3
    other.close()
    assert [seq for seq, _, _ in store.read("b")] == [1, 2, 3, 4]


def test_heads_that_are_not_known_are_looked_up(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_heads, "MAX_KNOWN", 2)
    fill(store)
    assert len(store._heads._sure) + len(store._heads._hints) <= 2
    for run_id in RUNS:
        assert [seq for seq, _, _ in store.read(run_id)] == [*range(1, LENGTH + 1)]


@pytest.mark.parametrize("count", [1, 2, 3, MAX_ROWS - 1, MAX_ROWS, MAX_ROWS + 1, 3 * MAX_ROWS - 1])
def test_any_number_of_rows_is_written_once(count: int, store: SQLiteStore) -> None:
    statements: list[str] = []
    connection_of(store._file).execute("CREATE TABLE pairs (one, two)")
    connection_of(store._file).set_trace_callback(statements.append)
    values = [*range(2 * count)]
    [*_] = execute_rows(connection_of(store._file), "INSERT INTO pairs VALUES {rows}", 2, values)
    connection_of(store._file).set_trace_callback(None)
    assert connection_of(store._file).execute("SELECT * FROM pairs").fetchall() == [
        *zip(values[::2], values[1::2], strict=True)
    ]
    assert all(statement.count("(") <= MAX_ROWS for statement in statements)
    assert len(statements) <= count // MAX_ROWS + (MAX_ROWS - 1).bit_length()


def test_an_append_that_fails_can_be_tried_again(store: SQLiteStore) -> None:
    start(store, *RUNS)
    batches = [Batch(run_id, 1, 2, [b"3", b"4"]) for run_id in RUNS]
    connection_of(store._file).execute(
        "CREATE TRIGGER full BEFORE INSERT ON marks BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
    )
    too_long = [*batches[:2], Batch("c", 1, 2, [b"x"] * MARK_EVERY)]
    with pytest.raises(StoreError, match="the disk is full"):
        store.append(too_long, durable=True)
    assert store.append(batches, durable=True) == [True] * 3
    assert [seq for seq, _, _ in store.read("c")] == [1, 2, 3, 4]


def test_what_is_left_of_a_damaged_run_is_read_and_pruned(store: SQLiteStore) -> None:
    fill(store)
    connection_of(store._file).execute("DELETE FROM events WHERE run_id = 'a' AND seq = 70")
    assert [seq for seq, _, _ in store.read("a")] == [seq for seq in range(1, LENGTH + 1) if seq != 70]
    assert [seq for seq, _, _ in store.read("a", after=70)] == [*range(71, LENGTH + 1)]
    over = [Batch(run_id, 1, LENGTH, [b"end"], state="over") for run_id in ("a", "b")]
    store.append(over, durable=True)
    assert store.prune(before=float("inf")) == 2
    left = {run_id: len(store.read(run_id)) for run_id in RUNS}
    assert left == {"a": 0, "b": 0, "c": LENGTH}
    for table in ("events", "marks"):
        assert connection_of(store._file).execute(f"SELECT DISTINCT run_id FROM {table}").fetchall() == [("c",)]


def test_to_prune_a_run_costs_nothing_for_the_events_of_others(store: SQLiteStore) -> None:
    def steps_of_pruning(run_id: str) -> int:
        start(store, run_id)
        store.append([Batch(run_id, 1, 2, [b"end"], state="over")], durable=True)
        connection, steps = connection_of(store._file), []
        connection.set_progress_handler(lambda: steps.append(1), 10)
        assert store.prune(before=float("inf")) == 1
        connection.set_progress_handler(None, 0)
        return len(steps)

    before = steps_of_pruning("a")
    start(store, "other")
    store.append([Batch("other", 1, 2, [b"text"] * 20_000)], durable=True)
    assert steps_of_pruning("b") <= 2 * before


def test_a_long_log_of_the_version_before_is_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with sqlite3.connect(path) as old:
        for script in sqlite_schema.MIGRATIONS[:4]:
            old.executescript(script)
        for run_id in RUNS:
            old.execute(
                "INSERT INTO runs (id, agent, thread, tenant, version, state, epoch, owner, lease_until, seq, created, "
                "updated) VALUES (?, 'desk', '', '', 1, 'ready', 0, '', 0, ?, 5, 5)",
                (run_id, LENGTH),
            )
            old.executemany(
                "INSERT INTO events VALUES (?, ?, 5, ?)",
                [(run_id, seq, f"{run_id}{seq}".encode()) for seq in range(1, LENGTH + 1)],
            )
        old.execute("DELETE FROM events WHERE run_id = 'b' AND seq = 9")
        old.execute(f"PRAGMA application_id = {sqlite_schema.APPLICATION_ID}")
        old.execute("PRAGMA user_version = 4")
    old.close()
    store = SQLiteStore(path)
    assert [bytes(body) for _, _, body in store.read("a")] == [f"a{seq}".encode() for seq in range(1, LENGTH + 1)]
    assert [seq for seq, _, _ in store.read("a", after=100, limit=5)] == [101, 102, 103, 104, 105]
    assert len(store.read("b")) == LENGTH - 1
    claim = store.claim("worker", run_id="c")
    assert claim is not None
    assert [seq for seq, _, _ in store.read("c", after=LENGTH - 1)] == [LENGTH, LENGTH + 1]
    store.close()
