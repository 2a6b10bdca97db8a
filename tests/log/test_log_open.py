"""`penstock.log.open` and `memory`: which store they return, and what they refuse."""

from __future__ import annotations

import gc
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock
from penstock import StoreError, UsageError
from penstock.log import PostgresStore, RunRow, SQLiteStore
from penstock.log.flusher import flusher_of
from penstock.log.in_memory import MAX_BYTES, MemoryStore
from penstock.log.postgres import schema as postgres_schema
from penstock.log.sqlite import schema as sqlite_schema
from penstock.log.store import Batch, Input
from tests.growth import assert_linear
from tests.postgres import drop, new_schema


def test_a_path_is_a_sqlite_file_and_a_url_a_postgres_database(tmp_path: Path, postgres_url: str) -> None:
    store = penstock.log.open(tmp_path / "runs.db", lease=3.0)
    assert isinstance(store, SQLiteStore)
    assert store.lease == 3.0
    store.close()
    schema = new_schema()
    store = penstock.log.open(postgres_url, schema=schema)
    assert isinstance(store, PostgresStore)
    store.close()
    drop(postgres_url, schema)
    assert isinstance(penstock.log.memory(), MemoryStore)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("mysql://host/db", "the path of a file or a postgresql:// URL, not mysql://"),
        (":memory:", r"use penstock\.log\.memory\(\)"),
        ("", r"use penstock\.log\.memory\(\)"),
        ("postgresql://host/db?nonsense=1", "not the URL of a PostgreSQL database"),
    ],
)
def test_another_address_is_an_error(address: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        penstock.log.open(address)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere/runs\.db cannot be opened: its folder does not exist"):
        penstock.log.open(tmp_path / "nowhere" / "runs.db")


def test_a_server_that_does_not_answer_is_a_temporary_error_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        penstock.log.open(f"postgresql://me:geheim@/db?host={tmp_path}")
    assert caught.value.is_temporary
    assert "geheim" not in str(caught.value)


def test_a_missing_driver_is_an_error_that_names_the_extra() -> None:
    code = """
import sys
sys.modules["psycopg"] = None
import penstock
try:
    penstock.log.open("postgresql://host/db")
except penstock.UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'penstock-llm[postgres]'" in done.stdout


def test_the_import_loads_no_database() -> None:
    code = "import sys, penstock; penstock.log.memory; print('sqlite3' in sys.modules or 'psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bob:hi%dden@db.example/runs",
        "postgresql://bob:dden%zz@db.example/runs",
        "postgresql://bob:hidden@[::1/runs",
        "postgresql://bob:hi@dden@db.example/runs",
        "postgresql://bob:hi/dden@db.example/runs",
        "postgresql://db.example/runs?password=hidden&nonsense=1",
    ],
)
def test_the_error_of_a_malformed_url_does_not_show_the_password(url: str) -> None:
    with pytest.raises(UsageError, match="is not the URL of a PostgreSQL database") as caught:
        penstock.log.open(url)
    assert not re.search("hi|dden", str(caught.value))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux lists the open files of a process")
def test_the_connections_of_threads_that_have_ended_are_closed(tmp_path: Path) -> None:
    store = penstock.log.open(tmp_path / "runs.db")
    store.find("r")
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(20):
        thread = threading.Thread(target=store.find, args=("r",))
        thread.start()
        thread.join()
    after = len([*Path("/proc/self/fd").iterdir()])
    assert store.find("r") is None
    store.close()
    assert after < before + 20


def test_a_store_that_is_dropped_closes_its_connections(tmp_path: Path) -> None:
    """Python warns since 3.13 of those that are not closed, in tests of users who may treat warnings as errors."""
    store = SQLiteStore(tmp_path / "runs.db")
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(store.find, "r").result() is None
        flusher_of(store)  # which refers to the store
        connections = [own.connection for own in store._file.connections]
        assert len(connections) == 2
        del store
        gc.collect()
        for connection in connections:
            with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
                connection.execute("SELECT 1")


def _add_run(old: sqlite3.Connection, version: int) -> None:
    """Add a run to tables of an earlier version."""
    fields, values = "id, agent, thread, tenant, version, state, owner", "'r', 'support', '', '', 1, 'ready', ''"
    if version < 6:
        fields, values = f"{fields}, epoch, lease_until, seq, created, updated", f"{values}, 0, 0, 1, 5, 5"
    else:
        fields, values = f"{fields}, lease_until, lease, wake_at, created", f"{values}, 0, 15, 0, 5"
        old.execute("INSERT INTO heads VALUES (1, 0, 1, 1, 5)")
    old.execute(f"INSERT INTO runs ({fields}) VALUES ({values})")


@pytest.mark.parametrize("version", range(1, sqlite_schema.SCHEMA_VERSION))
def test_tables_of_an_earlier_version_are_brought_up_to_this_one(version: int, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with sqlite3.connect(path) as old:
        for script in sqlite_schema.MIGRATIONS[:version]:
            old.executescript(script)
        _add_run(old, version)
        event = "(1, 'r', 1, 5, 'start', 0)" if version >= 5 else "('r', 1, 5, 'start')"
        old.execute(f"INSERT INTO events VALUES {event}")
        old.execute(f"PRAGMA application_id = {sqlite_schema.APPLICATION_ID}")
        old.execute(f"PRAGMA user_version = {version}")
    old.close()
    store = SQLiteStore(path)
    row = store.find("r")
    assert row is not None
    assert (row.created, row.wake_at) == (5.0, 0.0)
    assert store.claim("worker") is not None
    assert store.put(Input("r", "cancel", "cancel"))
    assert len(store.inputs(["r"])) == 1
    assert store.prune(before=0.0) == 0
    store.close()


@pytest.mark.parametrize("version", range(1, postgres_schema.SCHEMA_VERSION))
def test_postgres_tables_of_an_earlier_version_are_brought_up_to_this_one(version: int, postgres_url: str) -> None:
    schema = new_schema()
    with psycopg.connect(postgres_url, autocommit=True) as old:
        old.execute(f"CREATE SCHEMA {schema}".encode())
        for script in postgres_schema.MIGRATIONS[:version]:
            old.execute(script.format(schema=schema).encode())
        old.execute(f"UPDATE {schema}.penstock_log SET version = {version}".encode())
        old.execute(f"INSERT INTO {schema}.runs VALUES ('r', 'a', '', '', 1, 'ready', 0, '', 0, 1, 5, 5, 0)".encode())
    store = PostgresStore(postgres_url, schema=schema)
    row = store.find("r")
    assert row is not None
    assert (row.created, row.wake_at) == (5.0, 0.0)
    assert store.claim("worker") is not None
    assert store.put(Input("r", "cancel", "cancel"))
    store.close()
    drop(postgres_url, schema)


def test_a_process_that_is_frozen_while_it_creates_the_tables_does_not_block_others_for_ever(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_schema, "MAX_WAIT", 0.1)
    with psycopg.connect(postgres_url) as frozen:
        frozen.execute("SELECT pg_advisory_xact_lock(%s)", (postgres_schema.LOCK,))
        with pytest.raises(StoreError, match="lock timeout") as caught:
            PostgresStore(postgres_url, schema=new_schema())
    assert caught.value.is_temporary


def test_tables_of_another_program_or_of_a_later_version_are_refused(postgres_url: str) -> None:
    schema = new_schema()
    PostgresStore(postgres_url, schema=schema).close()
    PostgresStore(postgres_url, schema=schema).close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"UPDATE {schema}.penstock_log SET version = 99".encode())
        with pytest.raises(StoreError, match=f"the schema '{schema}' of .* is of a later version of penstock"):
            PostgresStore(postgres_url, schema=schema)
        connection.execute(f"DROP TABLE {schema}.penstock_log".encode())
        with pytest.raises(StoreError, match="has tables of another program, not a log: choose another with schema="):
            PostgresStore(postgres_url, schema=schema)
    drop(postgres_url, schema)
    with pytest.raises(UsageError, match="'My Schema' cannot be the schema of a log"):
        PostgresStore(postgres_url, schema="My Schema")


def test_several_processes_may_create_the_tables_at_once(postgres_url: str) -> None:
    schema = new_schema()
    code = f"import penstock; penstock.log.open({postgres_url!r}, schema={schema!r}).close()"
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0, 0, 0, 0]
    drop(postgres_url, schema)


def test_a_full_store_in_memory_deletes_runs_that_are_over() -> None:
    store = MemoryStore(max_bytes=1000)
    for run_id in ("a", "b", "c"):
        store.create(RunRow(id=run_id, agent="support"), b"s" * 100)
        store.claim("one", run_id=run_id)
        store.append([Batch(run_id, 1, 2, [b"d" * 200], "running" if run_id == "c" else "over")], durable=True)
    assert sorted(row.id for row in store.list()) == ["b", "c"]
    with pytest.raises(StoreError, match="the log in memory is full: it holds at most 1000 bytes"):
        store.append([Batch("c", 1, 3, [b"d" * 800])], durable=True)
    assert len(store.read("c")) == 3


def test_a_full_store_in_memory_takes_runs_in_linear_time() -> None:
    def prepare(number: int) -> Callable[[], None]:
        store = MemoryStore(max_bytes=number * 100)

        def end(run_id: str) -> None:
            store.create(RunRow(id=run_id, agent="support"), b"s" * 100, owner="one")
            store.append([Batch(run_id, 1, 2, [b"d"], "over")], durable=True)

        for index in range(number):
            end(f"before{index}")

        def work() -> None:
            for index in range(number):
                end(f"run{index}")

        return work

    assert_linear(prepare, 400)


def test_a_store_in_memory_is_capped_by_default() -> None:
    with pytest.raises(StoreError, match=f"it holds at most {MAX_BYTES} bytes"):
        penstock.log.memory().create(RunRow(id="a", agent="support"), b"s" * (MAX_BYTES + 1))


@pytest.mark.parametrize("lease", [0, -1.0, float("nan"), float("inf"), "5", None])
def test_a_lease_that_no_worker_could_keep_is_refused(lease: Any, tmp_path: Path) -> None:
    for wrong in (
        lambda: penstock.log.open(tmp_path / "runs.db", lease=lease),
        lambda: penstock.log.memory(lease=lease),
    ):
        with pytest.raises(UsageError, match="lease must be a number of seconds, more than 0"):
            wrong()
    assert not (tmp_path / "runs.db").exists()


@pytest.mark.parametrize("address", [None, b"runs.db", 5, "runs\0.db"])
def test_what_is_not_the_path_of_a_log_creates_no_file(
    address: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="open takes the path of a file or a postgresql:// URL"):
        penstock.log.open(address)
    assert [*tmp_path.iterdir()] == []
