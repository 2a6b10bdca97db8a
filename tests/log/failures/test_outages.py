"""A store that was away: nobody could renew a lease meanwhile, so its end is held against nobody."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import StoreError
from penstock.log import PostgresStore, RunRow, SQLiteStore, Store
from penstock.log.store import Claim
from penstock.log.suspects import RENEWAL_PAUSE
from tests.log_stores import Clock, open_store

LEASE = 0.6
"""A short one: SQLite waits for a third of it, for other writers."""


@contextmanager
def locked(store: SQLiteStore) -> Iterator[None]:
    """Another process writes to the file, and was frozen."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def stopped(store: PostgresStore) -> Iterator[None]:
    """The server does not accept connections."""
    connections: Any = store._connections
    settings = dict(connections._settings)
    connections._close_idle()
    connections._settings |= {"host": "127.0.0.1", "port": "1"}
    try:
        yield
    finally:
        connections._settings = settings


def away(store: Any) -> Any:
    return locked(store) if isinstance(store, SQLiteStore) else stopped(store)


class Workers:
    """Two workers with their own connections to one store, with a clock that a test moves."""

    def __init__(self, owner: Store, other: Store, clock: Clock) -> None:
        self.owner, self.other, self.clock = owner, other, clock
        for store in (owner, other):
            store._outages._clock = clock  # type: ignore[attr-defined]
        owner.create(RunRow(id="r", agent="desk"), b"start")
        [self.claim] = owner.claim_next("owner")

    def outage(self) -> None:
        """The store is away for longer than a lease."""
        with away(self.other), pytest.raises(StoreError) as raised:
            self.take()
        assert raised.value.is_temporary
        self.clock.now += LEASE + 1

    def take(self) -> list[Claim]:
        return self.other.claim_next("other", limit=5, group="")

    def renew(self) -> list[bool]:
        return self.owner.renew([(self.claim.run_id, self.claim.epoch)])

    @property
    def row(self) -> RunRow:
        row = self.owner.find("r")
        assert row is not None
        return row


@pytest.fixture(params=["sqlite", "postgres"])
def workers(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Workers]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    with open_store(request.param, tmp_path, url, lease=LEASE, clock=clock) as owner:
        again: Callable[[], Store] = (
            (lambda: PostgresStore(url, schema=owner._schema, lease=LEASE, clock=clock))
            if isinstance(owner, PostgresStore)
            else (lambda: SQLiteStore(tmp_path / "runs.db", lease=LEASE, clock=clock))
        )
        with closing(again()) as other:
            yield Workers(owner, other, clock)


def test_the_owner_renews_first_after_an_outage(workers: Workers) -> None:
    for _ in range(6):
        workers.outage()
        assert workers.take() == [], "the owner could not renew its lease"
        assert workers.renew() == [True]
    assert (workers.row.epoch, workers.row.lost, workers.row.suspect) == (1, 0, "")


def test_a_worker_that_died_in_an_outage_loses_its_runs_after_a_lease(workers: Workers) -> None:
    workers.outage()
    assert workers.take() == []
    workers.clock.now += LEASE + RENEWAL_PAUSE
    assert [(claim.run_id, claim.lost) for claim in workers.take()] == [("r", 1)]
    workers.clock.now += LEASE + 1
    [claim] = workers.take()
    assert claim.lost == 2, "the outage is over"


def test_runs_without_an_owner_are_claimed_during_that_time(workers: Workers) -> None:
    workers.outage()
    workers.owner.create(RunRow(id="new", agent="desk"), b"start")
    assert [claim.run_id for claim in workers.take()] == ["new"]


def test_a_store_that_fails_again_and_again_delays_a_takeover_only(workers: Workers) -> None:
    workers.outage()
    taken: list[Claim] = []
    for _ in range(8):
        taken += workers.take()
        workers.clock.now += (LEASE + RENEWAL_PAUSE) / 4 + 0.01
        taken += workers.take()
        with away(workers.other), pytest.raises(StoreError):
            workers.take()
    assert [claim.run_id for claim in taken] == ["r", "r"], "after each time that the store has answered for so long"


def test_an_operation_that_takes_long_is_an_outage(workers: Workers) -> None:
    """A pooler holds statements back until its server is there again, and reports nothing."""
    outages: Any = workers.other
    outages._outages.slow = 0.0
    workers.take()
    outages._outages.slow = 60.0
    workers.clock.now += LEASE + 1
    assert workers.take() == []
    assert workers.renew() == [True]
