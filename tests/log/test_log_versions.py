"""Two versions of penstock on one log: an older one works and restarts beside tables that a newer one has expanded."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock
from penstock import Runs, StoreError
from penstock.log import Store
from penstock.log.postgres import schema as postgres_schema
from penstock.log.sqlite import schema as sqlite_schema
from penstock.testing import Reply, Scripted, call
from tests.postgres import drop, new_schema

EXPANSION = """
ALTER TABLE {schema}.runs ADD COLUMN colour TEXT NOT NULL DEFAULT 'red';
ALTER TABLE {schema}.inputs ADD COLUMN colour TEXT;
CREATE TABLE {schema}.colours (run_id TEXT NOT NULL);
CREATE INDEX runs_by_colour ON {schema}.runs (colour);
"""


class Fleet:
    """Opens one log with the versions of penstock that are deployed beside each other."""

    def __init__(self, kind: str, open_log: Callable[[], Store], monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind = kind
        self._schema: Any = sqlite_schema if kind == "sqlite" else postgres_schema
        self._open = open_log
        self._monkeypatch = monkeypatch

    def this(self) -> Store:
        return self._open()

    def next(self, *, contracts: bool = False, script: str = EXPANSION) -> Store:
        """The next version: it expands the tables, or drops something that this version needs."""
        known = self._schema.MIGRATIONS
        script = script if self.kind == "postgres" else script.replace("{schema}.", "")
        with self._monkeypatch.context() as patched:
            patched.setattr(self._schema, "MIGRATIONS", (*known, script))
            patched.setattr(self._schema, "SCHEMA_VERSION", len(known) + 1)
            if contracts:
                patched.setattr(self._schema, "OLDEST_VERSION", len(known) + 1)
            return self._open()


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    if request.param == "sqlite":
        yield Fleet("sqlite", lambda: penstock.log.open(tmp_path / "runs.db"), monkeypatch)
        return
    url, schema = request.getfixturevalue("postgres_url"), new_schema()
    yield Fleet("postgres", lambda: penstock.log.open(url, schema=schema), monkeypatch)
    drop(url, schema)


def answer(store: Store, run_id: str) -> str:
    """Start a run with a tool call, a message and an approval, drive it, and read it to its end."""

    @penstock.tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    model = penstock.Model("openai:gpt-5", via=Scripted([Reply(call("pay", {"amount": 1})), "Done."]))
    agent = penstock.Agent(model, tools=[pay], name="desk")
    runs = Runs(store, {"desk": agent})
    runs.start("desk", "Pay.", run_id=run_id)
    assert runs.say(run_id, "Soon.")
    assert runs.drive(run_id).state == "waiting"
    [request] = [event for _, event in first_events(runs, run_id) if event.type == "approval_request"]
    assert runs.decide(run_id, request.call_id, True)
    runs.drive(run_id)
    *_, (_, done) = runs.follow(run_id)
    assert isinstance(done, penstock.Done)
    return done.output


def first_events(runs: Runs, run_id: str) -> Iterator[tuple[int, Any]]:
    for number, event in runs.follow(run_id):
        yield number, event
        if event.type == "waiting":
            return


def test_an_older_version_works_and_restarts_beside_a_newer_schema(fleet: Fleet) -> None:
    open_before = fleet.this()
    assert answer(open_before, "before") == "Done."
    newer = fleet.next()
    assert answer(open_before, "still-open") == "Done."
    restarted = fleet.this()
    assert answer(restarted, "restarted") == "Done."
    assert answer(newer, "newer") == "Done."
    again = fleet.next()
    for store in (open_before, restarted, newer, again):
        assert {row.id for row in store.list()} == {"before", "still-open", "restarted", "newer"}
        assert {row.state for row in store.list()} == {"over"}
    assert restarted.prune(before=1e12) == 4
    for store in (open_before, restarted, newer, again):
        store.close()


def test_a_run_changes_between_the_versions(fleet: Fleet) -> None:
    agent = penstock.Agent(penstock.Model("openai:gpt-5", via=Scripted(["Done."])), name="desk")
    fleet.this().close()
    newer, older = fleet.next(), fleet.this()
    Runs(newer, {"desk": agent}).start("desk", "Go.", run_id="r")
    assert Runs(older, {"desk": agent}).drive("r").state == "over"
    assert [number for number, _ in Runs(newer, {"desk": agent}).follow("r")] == [*range(1, older_seq(older) + 1)]
    newer.close()
    older.close()


def older_seq(store: Store) -> int:
    row = store.find("r")
    assert row is not None
    return row.seq


def test_an_older_version_refuses_a_schema_that_it_cannot_use_and_changes_nothing(fleet: Fleet) -> None:
    store = fleet.this()
    assert answer(store, "r") == "Done."
    store.close()
    newer = fleet.next(contracts=True)
    with pytest.raises(StoreError, match="Upgrade it; nothing was changed") as error:
        fleet.this()
    assert not error.value.is_temporary
    assert len(newer.read("r")) == older_seq(newer)
    newer.close()


def test_a_migration_that_fails_changes_nothing(fleet: Fleet) -> None:
    store = fleet.this()
    assert answer(store, "r") == "Done."
    with pytest.raises(StoreError, match="colours"):
        fleet.next(script=EXPANSION + "DROP TABLE {schema}.colours; DROP TABLE {schema}.colours;")
    assert answer(store, "after") == "Done."
    store.close()
    reopened = fleet.this()
    assert {row.id for row in reopened.list()} == {"r", "after"}
    reopened.close()


def test_a_version_without_the_second_number_finds_its_own_in_the_place_it_knows(
    tmp_path: Path, postgres_url: str
) -> None:
    """Versions before expansions compare one number with theirs: it is the oldest version that can use the tables."""
    path, schema = tmp_path / "runs.db", new_schema()
    penstock.log.open(path).close()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (sqlite_schema.OLDEST_VERSION,)
    penstock.log.open(postgres_url, schema=schema).close()
    with psycopg.connect(postgres_url) as connection:
        versions = connection.execute(f"SELECT version FROM {schema}.penstock_log".encode()).fetchone()
    assert versions == (postgres_schema.OLDEST_VERSION,)
    drop(postgres_url, schema)
