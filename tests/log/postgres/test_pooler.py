"""A log in PostgreSQL behind PgBouncer in transaction mode: each statement may get another connection to the server."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from penstock import StoreError, UsageError
from penstock.log import PostgresStore
from penstock.log.postgres.connections import without_pooler
from penstock.testing import crash_at
from tests.log_stores import Desk
from tests.pgbouncer import NoPooler, pooler
from tests.postgres import drop, new_schema

RUNS = 12


@pytest.fixture
def address(postgres_url: str) -> Iterator[str]:
    try:
        with pooler(postgres_url) as address:
            yield address
    except NoPooler as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def test_runs_of_several_stores_work_behind_a_pooler(address: str, postgres_url: str) -> None:
    schema = new_schema()
    desks = [Desk(PostgresStore(address, schema=schema, lease=5.0)) for _ in range(3)]
    ids = [desks[number % 3].runs.start("desk", "Send it.") for number in range(RUNS)]
    followed: list[list[str]] = []
    readers = [
        threading.Thread(
            target=lambda run_id=run_id: followed.append([e.type for _, e in desks[0].runs.follow(run_id)])
        )
        for run_id in ids
    ]
    drivers = [
        threading.Thread(target=desks[number % 3].runs.drive, args=(run_id,)) for number, run_id in enumerate(ids)
    ]
    for thread in (*readers, *drivers):
        thread.start()
    for thread in (*readers, *drivers):
        thread.join(60)
    assert sorted(map(len, followed)) == sorted(len(desks[0].log(run_id)) for run_id in ids)
    assert sum(len(desk.sent) for desk in desks) == RUNS
    assert {row.state for row in desks[1].runs.list()} == {"over"}
    assert desks[2].store.prune(before=float("inf")) == RUNS
    for desk in desks:
        desk.store.close()
    drop(postgres_url, schema)


def test_a_run_is_taken_over_behind_a_pooler(address: str, postgres_url: str) -> None:
    schema = new_schema()
    desk = Desk(PostgresStore(address, schema=schema, lease=0.5))
    run_id = desk.runs.start("desk", "Send it.")
    with crash_at("before_append", "tool_start"), pytest.raises(Exception, match="crash"):
        desk.runs.drive(run_id)
    assert desk.runs.drive(run_id).state == "over"
    assert desk.sent == ["sent"]
    desk.store.close()
    drop(postgres_url, schema)


def test_without_the_parameter_the_error_names_it(address: str, postgres_url: str) -> None:
    schema = new_schema()
    PostgresStore(postgres_url, schema=schema).close()

    def use_two() -> None:
        stores = [PostgresStore(address.partition("?")[0], schema=schema) for _ in range(2)]
        try:
            for number in range(40):
                stores[number % 2].find(f"r{number}")
        finally:
            for store in stores:
                store.close()

    with pytest.raises(StoreError, match=r"add \?pooler=transaction to the URL"):
        use_two()
    drop(postgres_url, schema)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://a/b", ("postgresql://a/b", None)),
        ("postgresql://a/b?pooler=transaction", ("postgresql://a/b", "transaction")),
        ("postgresql://a/b?sslmode=require&pooler=transaction", ("postgresql://a/b?sslmode=require", "transaction")),
    ],
)
def test_the_pooler_is_a_parameter_of_the_url(url: str, expected: tuple[str, str | None]) -> None:
    assert without_pooler(url) == expected


def test_another_mode_of_a_pooler_is_an_error() -> None:
    with pytest.raises(UsageError, match="pooler=statement is not supported: use pooler=transaction"):
        without_pooler("postgresql://a/b?pooler=statement")
