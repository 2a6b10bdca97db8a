"""The survey of a log: runs by state, the age of the queue, and the processes that drive runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.log import RunRow, SQLiteStore, Store
from penstock.log.retention.survey import ALIVE_SECONDS, KEPT_SECONDS, WorkerRow
from penstock.log.sqlite import survey
from penstock.log.store import Batch, Claim, Input
from tests.log_stores import Clock


@pytest.fixture
def sqlite_store(tmp_path: Path, clock: Clock) -> Iterator[SQLiteStore]:
    with closing(SQLiteStore(tmp_path / "runs.db", lease=10.0, clock=clock)) as store:
        yield store


def start(store: Store, run_id: str, agent: str = "desk", tenant: str = "") -> None:
    store.create(RunRow(id=run_id, agent=agent, tenant=tenant), b"{}")


def claim(store: Store, run_id: str, owner: str = "w") -> Claim:
    found = store.claim(owner, run_id=run_id)
    assert found is not None
    return found


def leave(store: Store, claimed: Claim, state: str, wake_in: float | None = None) -> None:
    batch = Batch(claimed.run_id, claimed.epoch, claimed.seq, [b"{}"], state, wake_in=wake_in)  # type: ignore[arg-type]
    assert store.append([batch], durable=True) == [True]


def test_an_empty_log_has_no_runs_and_no_age(store: Store) -> None:
    counts = store.survey.counts()
    assert (dict(counts.runs), dict(counts.ready), counts.oldest_ready) == ({}, {}, 0.0)
    assert (counts.expired, counts.workers, store.survey.workers()) == (0, 0, [])


def test_unfinished_runs_are_counted_by_state_and_ready_ones_by_agent(store: Store) -> None:
    for run_id, agent in (("a", "desk"), ("b", "desk"), ("c", "shop"), ("d", "desk"), ("e", "desk"), ("f", "desk")):
        start(store, run_id, agent)
    leave(store, claim(store, "a"), "over")
    leave(store, claim(store, "d"), "waiting")
    leave(store, claim(store, "e"), "parked")
    claim(store, "f")
    counts = store.survey.counts()
    assert dict(counts.runs) == {"ready": 2, "waiting": 1, "parked": 1, "running": 1}
    assert dict(counts.ready) == {"desk": 1, "shop": 1}


def test_a_claim_has_the_tenant_of_its_run(store: Store) -> None:
    start(store, "a", tenant="acme")
    start(store, "b", tenant="zoo")
    assert claim(store, "a").tenant == "acme"
    assert [each.tenant for each in store.claim_next("w", agents=["desk"])] == ["zoo"]


def test_the_age_of_the_queue_is_that_of_its_oldest_run(store: Store, clock: Clock) -> None:
    start(store, "a")
    clock.now += 7
    start(store, "b", "shop")
    clock.now += 5
    assert store.survey.counts().oldest_ready == 12
    claim(store, "a")
    assert store.survey.counts().oldest_ready == 5


def test_a_run_that_waited_for_days_is_ready_since_its_answer(store: Store, clock: Clock) -> None:
    start(store, "a")
    leave(store, claim(store, "a"), "waiting")
    clock.now += 300_000
    assert store.survey.counts().oldest_ready == 0
    store.put(Input("a", "decide", "call"))
    clock.now += 3
    assert store.survey.counts().oldest_ready == 3


def test_a_run_that_was_given_back_is_ready_since_then(store: Store, clock: Clock) -> None:
    start(store, "a")
    claimed = claim(store, "a")
    clock.now += 5
    leave(store, claimed, "ready")
    clock.now += 2
    assert store.survey.counts().oldest_ready == 2


def test_a_run_whose_wait_has_ended_is_in_the_queue(store: Store, clock: Clock) -> None:
    start(store, "a")
    leave(store, claim(store, "a"), "waiting", wake_in=20)
    clock.now += 10
    assert store.survey.counts().oldest_ready == 0
    clock.now += 25
    assert store.survey.counts().oldest_ready == 15


def test_runs_of_dead_owners_are_counted(store: Store, clock: Clock) -> None:
    start(store, "a")
    claim(store, "a")
    assert store.survey.counts().expired == 0
    clock.now += store.lease + 1
    assert store.survey.counts().expired == 1


def test_clocks_that_jump_give_no_negative_ages(store: Store, clock: Clock) -> None:
    start(store, "a")
    store.survey.beat(WorkerRow(owner="w", kind="worker", agents=["desk"]))
    clock.now -= 100_000
    counts = store.survey.counts()
    assert (counts.oldest_ready, counts.workers) == (0, 0)
    assert [worker.is_alive for worker in store.survey.workers()] == [False]
    clock.now += 200_000
    assert store.survey.counts().oldest_ready == 100_000
    assert store.survey.workers() == []


def test_processes_are_alive_while_they_say_so_or_own_runs(store: Store, clock: Clock) -> None:
    store.survey.beat(WorkerRow(owner="idle", kind="worker", agents=["desk", "shop"]))
    store.survey.beat(WorkerRow(owner="gone", kind="serve", agents=["desk"]))
    start(store, "a")
    claim(store, "a", "inline")
    began = clock.now
    clock.now += ALIVE_SECONDS
    store.survey.beat(WorkerRow(owner="idle", kind="worker", agents=["desk", "shop"]))
    clock.now += 1
    store.renew([("a", 1)])
    found = {worker.owner: worker for worker in store.survey.workers()}
    assert [*found] == ["idle", "inline", "gone"]
    assert (found["idle"].kind, [*found["idle"].agents], found["idle"].runs) == ("worker", ["desk", "shop"], 0)
    assert (found["idle"].started, found["idle"].seen) == (began, clock.now - 1)
    assert (found["inline"].kind, found["inline"].runs, found["inline"].is_alive) == ("process", 1, True)
    assert not found["gone"].is_alive
    assert store.survey.counts().workers == 1
    store.survey.leave("idle")
    clock.now += KEPT_SECONDS
    store.survey.beat(WorkerRow(owner="new", kind="worker", agents=[]))
    assert [worker.owner for worker in store.survey.workers()] == ["new", "inline"]


def test_the_size_grows_with_the_log(store: Store) -> None:
    before = store.survey.size()
    for number in range(20):
        store.create(RunRow(id=f"r{number}", agent="desk"), b'{"text": "%s"}' % os.urandom(20_000).hex().encode())
    assert store.survey.size() > before + 200_000


def test_of_many_runs_that_were_given_back_the_oldest_are_looked_up(
    sqlite_store: SQLiteStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MAX_CONTINUED", 2)
    for number in range(3):
        start(sqlite_store, f"r{number}")
        clock.now += 1
    claims = [claim(sqlite_store, f"r{number}") for number in range(3)]
    for number in (2, 1, 0):
        clock.now += 1
        leave(sqlite_store, claims[number], "ready")
    clock.now += 1
    assert sqlite_store.survey.counts().oldest_ready == 2, "that of r1; r2 was given back first, and created last"
