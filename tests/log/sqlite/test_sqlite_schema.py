"""SQLite files that an earlier version of penstock has written: they are read and continued."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Agent, Done, Model, Runs, StoreError, ToolEnd, tool
from penstock.log import SQLiteStore
from penstock.log.sqlite.events import MARK_EVERY
from penstock.log.take_up import read_log
from penstock.testing import Reply, Scripted, call
from tests.log_stores import Clock, Desk

STORED = Path(__file__).parents[2] / "stored_logs" / "sqlite-5.sql"
"""A file of the tables 5, with a run in each state, written by the last version that had them.

The owner of `crashed` ended while its tool ran. `decided` waited for approval of a call, which came. The events of
`newer` are of a later version.
"""
LENGTHS = {"crashed": 14, "decided": 306, "newer": 1, "over": 21, "ready": 1}


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.now += 10
    return clock


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[SQLiteStore]:
    path = tmp_path / "runs.db"
    old = sqlite3.connect(path)
    old.executescript(STORED.read_text())
    old.execute("UPDATE runs SET version = 99 WHERE id = 'newer'")  # it was 2, which this version knows
    old.commit()
    old.close()
    store = SQLiteStore(path, clock=clock)
    yield store
    store.close()


def test_every_run_has_its_row_and_its_events(store: SQLiteStore) -> None:
    rows = {row.id: row for row in store.list()}
    assert {run_id: row.seq for run_id, row in rows.items()} == LENGTHS
    assert [*rows] == ["newer", "ready", "crashed", "decided", "over"], "the newest first"
    over, crashed = rows["over"], rows["crashed"]
    assert (over.thread, over.tenant, over.state, over.epoch) == ("t", "shop", "over", 1)
    assert (crashed.state, crashed.epoch, crashed.lease_until) == ("running", 1, 1017.0)
    assert (crashed.owner, crashed.created, crashed.updated) == (over.owner, 1002.0, 1002.0)
    for run_id, length in LENGTHS.items():
        for after in {0, 1, length - 1, MARK_EVERY - 1, MARK_EVERY}:
            read = [seq for seq, _, _ in store.read(run_id, after)]
            assert read == [*range(after + 1, length + 1)]


def test_the_runs_continue_where_they_were(store: SQLiteStore, clock: Clock) -> None:
    paid: list[str] = []

    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        paid.append("paid")
        return "paid"

    def answer(request: Any) -> Reply | str:
        return "Paid." if request.results else Reply(call("pay"))

    desk = Desk(store)
    till = Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[pay], name="till")
    runs = Runs(store, {"desk": desk.agent, "till": till})
    assert runs.claimable() == ["decided", "ready"], "neither one that is owned, nor one of a later version"
    clock.now += store.lease
    assert runs.claimable() == ["decided", "crashed", "ready"]
    for run_id in runs.claimable():
        assert runs.drive(run_id).state == "over"
        events = [event for _, _, event in read_log(store, run_id)]
        assert isinstance(events[-1], Done)
        assert events[-1].reason == "answered"
    assert (paid, desk.sent) == (["paid"], ["sent"]), "the tool of the run that crashed may have run: not again"
    [end] = [event for _, _, event in read_log(store, "crashed") if isinstance(event, ToolEnd)]
    assert end.ending == "cancelled"
    with pytest.raises(StoreError, match="later version"):
        runs.drive("newer")
    clock.now += 1
    assert store.prune(before=clock.now) == 4
    assert [row.id for row in store.list()] == ["newer"]
    assert [seq for seq, _, _ in store.read("newer")] == [1]
