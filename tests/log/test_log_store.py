"""Stores of logs, all of them: create, claim, append, read, inputs, and what it refuses."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from penstock import RunExistsError, StoreError, Text, UnknownRunError
from penstock.log import RunRow, SQLiteStore, Store
from penstock.log.store import Batch, Committed, Input
from penstock.run.events import Taken, decode_logged
from tests.log_stores import Clock


def row(id: str = "r", **fields: str) -> RunRow:
    return RunRow(id=id, agent="support", **fields)  # type: ignore[arg-type]


def test_runs_with_long_names_in_any_language_are_written_together(store: Store) -> None:
    """A notification of PostgreSQL has at most 8,000 bytes."""
    run_ids = [f"{number}-{'長' * 400}" for number in range(10)]
    for run_id in run_ids:
        store.create(RunRow(id=run_id, agent="support"), b"start", owner="one")
    batches = [Batch(run_id, 1, 2, [b"event"]) for run_id in run_ids]
    assert store.append(batches, durable=True) == [True] * 10


def test_a_run_is_created_once_and_another_start_under_its_id_is_refused(store: Store) -> None:
    assert store.create(row(), b"start")
    assert not store.create(row(), b"start")
    with pytest.raises(RunExistsError, match="'r' exists, with another agent, other messages"):
        store.create(row(), b"another")
    assert [body for _, _, body in store.read("r")] == [b"start"]


def test_one_worker_gets_a_run_until_its_lease_has_ended(store: Store, clock: Clock) -> None:
    store.create(row(), b"start")
    first = store.claim("one")
    assert first is not None
    assert (first.epoch, first.seq) == (1, 2)
    assert store.claim("two") is None
    clock.now += 9
    assert store.renew([("r", 1)]) == [True]
    clock.now += 9
    assert store.claim("two") is None
    clock.now += 2
    second = store.claim("two", run_id="r")
    assert second is not None
    assert (second.epoch, second.seq) == (2, 3)
    assert store.renew([("r", 1)]) == [False]
    assert [decode_logged(body) for _, _, body in store.read("r", 1)] == [
        Taken(1, "one"),
        Taken(2, "two", is_lost=True),
    ]


def test_a_worker_claims_only_runs_of_its_agents_and_of_no_later_version(store: Store) -> None:
    store.create(row(), b"start")
    store.create(RunRow(id="later", agent="other", version=99), b"start")
    assert store.claim("one", agents=["other"]) is None
    assert store.claim("one", run_id="later") is None
    claim = store.claim("one", agents=["other", "support"])
    assert claim is not None
    assert claim.run_id == "r"


def test_who_watches_a_run_gets_what_was_committed_and_nothing_else(store: Store) -> None:
    heard: list[Committed] = []
    store.create(row(), b"start")
    store.create(row("other"), b"start")
    store.claim("one", run_id="r")
    store.claim("one", run_id="other")
    with store.watch("r", heard.extend):
        store.append([Batch("r", 1, 2, [b"a", b"b"]), Batch("other", 1, 2, [b"x"])], durable=False)
        store.append([Batch("r", 1, 2, [b"not in order"]), Batch("r", 0, 4, [b"of another owner"])], durable=False)
        store.append([Batch("r", 1, 4, [b"c"], events=[Text(0, "c")])], durable=True)
    store.append([Batch("r", 1, 5, [b"d"])], durable=False)
    assert [(row.seq, row.at, row.body) for row in heard] == store.read("r", 2, 3)
    assert [row.body for row in heard] == [b"a", b"b", b"c"]
    assert [row.size for row in heard] == [1, 1, 1]
    assert [row.event for row in heard] == [None, None, Text(0, "c")]


def test_an_append_of_an_earlier_owner_changes_nothing(store: Store, clock: Clock) -> None:
    store.create(row(), b"start")
    store.claim("one")
    assert store.append([Batch("r", 1, 2, [b"a", b"b"])], durable=False) == [True]
    clock.now += 11
    store.claim("two")
    assert store.append([Batch("r", 1, 4, [b"c"]), Batch("r", 2, 5, [b"d"])], durable=True) == [False, True]
    assert [seq for seq, _, _ in store.read("r")] == [1, 2, 3, 4, 5, 6]
    assert store.read("r")[-1][2] == b"d"


def test_an_append_that_would_leave_a_gap_or_repeat_a_number_is_refused(store: Store) -> None:
    store.create(row(), b"start")
    store.claim("one")
    assert store.append([Batch("r", 1, 5, [b"a"])], durable=False) == [False]
    assert store.append([Batch("r", 1, 1, [b"a"])], durable=False) == [False]
    assert len(store.read("r")) == 2


def test_an_input_counts_once_and_makes_a_waiting_run_ready(store: Store) -> None:
    store.create(row(), b"start")
    store.claim("one")
    store.append([Batch("r", 1, 2, [b"w"], "waiting")], durable=True)
    assert store.claim("two") is None
    assert store.put(Input("r", "decide", "c", b"yes"))
    assert not store.put(Input("r", "decide", "c", b"no"))
    claim = store.claim("two")
    assert claim is not None
    [wanted] = store.inputs(["r"])
    assert wanted.body == b"yes"
    store.append([Batch("r", 2, 4, [b"d"], "running", [wanted.number])], durable=True)
    assert store.inputs(["r"]) == []
    with pytest.raises(UnknownRunError, match="'nowhere'"):
        store.put(Input("nowhere", "cancel", "cancel"))


def test_a_run_does_not_wait_if_an_input_came_before_it_waited(store: Store) -> None:
    store.create(row(), b"start")
    store.claim("one")
    store.put(Input("r", "cancel", "cancel", b"enough"))
    store.append([Batch("r", 1, 2, [b"w"], "waiting")], durable=True)
    found = store.find("r")
    assert found is not None
    assert found.state == "ready"


def test_runs_are_listed_by_what_they_are(store: Store) -> None:
    store.create(row("a", thread="t", tenant="x"), b"start")
    store.create(row("b", thread="t", tenant="y"), b"start")
    assert [found.id for found in store.list(thread="t")] == ["a", "b"]
    assert [found.id for found in store.list(tenant="y", state="ready")] == ["b"]
    assert store.list(state="over") == []
    assert store.find("nowhere") is None


def test_runs_are_listed_by_the_beginning_of_their_ids(store: Store) -> None:
    for id in ("order-1", "order-17", "order%", "ordeal", "ö-1"):
        store.create(row(id), b"start")
    assert sorted(found.id for found in store.list(prefix="order-1")) == ["order-1", "order-17"]
    assert [found.id for found in store.list(prefix="order%")] == ["order%"]
    assert [found.id for found in store.list(prefix="ö")] == ["ö-1"]
    assert len(store.list(prefix="")) == 5


def test_pruning_deletes_old_runs_that_are_over(store: Store, clock: Clock) -> None:
    for id in ("old", "new", "open"):
        store.create(row(id), b"start")
        if id != "open":
            store.claim("one", run_id=id)
            store.append([Batch(id, 1, 2, [b"d"], "over")], durable=True)
        clock.now += 100
    assert store.prune(before=1050.0) == 1
    assert sorted(found.id for found in store.list()) == ["new", "open"]
    assert store.read("old") == []


def test_only_one_of_many_threads_claims_a_run(store: Store) -> None:
    store.create(row(), b"start")
    claims = []
    threads = [threading.Thread(target=lambda n=n: claims.append(store.claim(f"w{n}"))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(claim is not None for claim in claims) == 1


def test_a_file_of_another_program_or_of_a_later_version_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE things (id)")
    with pytest.raises(StoreError, match="database of another program"):
        SQLiteStore(other)
    later = tmp_path / "later.db"
    SQLiteStore(later).close()
    with closing(sqlite3.connect(later)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="a later version of penstock"):
        SQLiteStore(later)
    text = tmp_path / "text.db"
    text.write_text("This is not a database, and long enough to be read as one." * 30)
    with pytest.raises(StoreError, match="not a database"):
        SQLiteStore(text)
