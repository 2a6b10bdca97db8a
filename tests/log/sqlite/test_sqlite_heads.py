"""What a process knows of the heads of its runs is trusted only while the file cannot have others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.log import RunRow, SQLiteStore, points
from penstock.log.store import Batch
from tests.log.sqlite.connections import connection_of

RUNS = ("a", "b")
EVENT = b'{"type": "text", "block": 0, "text": "a"}'


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "runs.db", lease=15.0, clock=clock)
    for run_id in RUNS:
        assert store.create(RunRow(id=run_id, agent="desk"), b"start", owner="worker")
    yield store
    store.close()


def append(store: SQLiteStore, seq: int, epoch: int = 1) -> list[bool]:
    return store.append([Batch(run_id, epoch, seq, [EVENT], renew=False) for run_id in RUNS], durable=False)


def comparisons(store: SQLiteStore, seq: int) -> int:
    """How many statements of an append look at the heads in the file."""
    statements: list[str] = []
    connection_of(store._file).set_trace_callback(statements.append)
    assert append(store, seq) == [True, True]
    connection_of(store._file).set_trace_callback(None)
    return sum("SELECT" in statement and "heads" in statement for statement in statements)


def test_heads_are_compared_with_the_file_only_after_somebody_else_has_written_to_it(store: SQLiteStore) -> None:
    assert append(store, 2) == [True, True]
    assert comparisons(store, 3) == 0
    other = SQLiteStore(store.path)
    assert other.create(RunRow(id="c", agent="desk"), b"start")
    other.close()
    assert comparisons(store, 4) > 0
    assert comparisons(store, 5) == 0


def test_heads_of_a_transaction_that_was_not_committed_are_forgotten(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert append(store, 2) == [True, True]

    def fail(*_: object) -> None:
        raise OSError("after the heads were written")

    with monkeypatch.context() as patch:
        patch.setattr(points, "hook", fail)
        with pytest.raises(OSError, match="after the heads"):
            append(store, 3)
    assert append(store, 4) == [False, False], "the file does not have the event before it"
    assert append(store, 3) == [True, True]
    assert [seq for seq, _, _ in store.read("a")] == [1, 2, 3, 4]


def test_a_claim_of_the_same_connection_fences_the_owner_before(store: SQLiteStore, clock: Clock) -> None:
    assert append(store, 2) == [True, True]
    clock.now += 20.0
    claims = [store.claim("other", run_id=run_id) for run_id in RUNS]
    assert [claim.epoch for claim in claims if claim] == [2, 2]
    assert append(store, 3) == [False, False]
    assert append(store, 4) == [False, False], "also with the number of the next event"
    assert append(store, 4, epoch=2) == [True, True]


def test_a_head_that_was_not_compared_is_not_trusted_because_others_were(store: SQLiteStore) -> None:
    assert append(store, 2) == [True, True]
    other = SQLiteStore(store.path)
    assert other.append([Batch("a", 1, 3, [EVENT])], durable=False) == [True]
    assert store.append([Batch("b", 1, 3, [EVENT])], durable=False) == [True]
    assert store.append([Batch("a", 1, 3, [b"twice"])], durable=False) == [False]
    assert other.append([Batch("b", 1, 3, [b"twice"])], durable=False) == [False]
    other.close()
