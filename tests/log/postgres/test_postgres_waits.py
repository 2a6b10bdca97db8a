"""No wait for PostgreSQL lasts for ever: locks of other sessions, slow statements, and servers that hang."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import StoreError
from penstock.log import PostgresStore, RunRow, points
from penstock.log.postgres import connections as postgres_connections
from penstock.log.store import Batch
from tests.log_stores import Desk
from tests.postgres import NoServer, drop, new_schema, own_server

SOON = 60.0
"""How many seconds a busy machine may take for what takes a moment; a wait without a limit takes longer."""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_connections, "MAX_STATEMENT", 1.0)
    monkeypatch.setattr(postgres_connections, "MAX_LOCKED", 0.3)
    monkeypatch.setattr(postgres_connections, "GRACE", 0.3)


@pytest.fixture
def schema(postgres_url: str) -> Iterator[str]:
    schema = new_schema()
    yield schema
    drop(postgres_url, schema)


@pytest.fixture
def store(postgres_url: str, schema: str) -> Iterator[PostgresStore]:
    store = PostgresStore(postgres_url, schema=schema)
    yield store
    store.close()


@contextmanager
def locked(url: str, statement: str) -> Iterator[None]:
    """Another session, in a transaction that has this lock."""
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode())
        yield
        connection.rollback()


def test_a_lock_that_another_session_holds_is_an_error_that_passes(
    store: PostgresStore, postgres_url: str, schema: str
) -> None:
    store.create(RunRow(id="r", agent="desk"), b"start")
    claim = store.claim("one", run_id="r")
    assert claim is not None
    batch = Batch("r", claim.epoch, claim.seq, [b"event"])
    with locked(postgres_url, f"SELECT FROM {schema}.runs FOR UPDATE"):
        for wait in (lambda: store.append([batch], durable=True), lambda: store.renew([("r", claim.epoch)])):
            with pytest.raises(StoreError, match="lock timeout") as caught:
                wait()
            assert caught.value.is_temporary
        assert store.claim("another", run_id="r") is None
        assert [seq for seq, _, _ in store.read("r")] == [1, 2]
    assert store.append([batch], durable=True) == [True]


def test_a_table_that_another_session_has_locked_is_an_error_that_passes(
    store: PostgresStore, postgres_url: str, schema: str
) -> None:
    with locked(postgres_url, f"LOCK TABLE {schema}.runs IN ACCESS EXCLUSIVE MODE"):
        for wait in (lambda: store.find("r"), store.list, lambda: store.prune(before=0), lambda: store.claim("one")):
            with pytest.raises(StoreError, match="lock timeout") as caught:
                wait()
            assert caught.value.is_temporary
    assert store.find("r") is None


def test_a_run_outlasts_a_lock_on_its_row(store: PostgresStore, postgres_url: str, schema: str) -> None:
    desk = Desk(store)
    failures: list[StoreError] = []
    append, release = store.append, threading.Event()

    def counted(batches: Any, *, durable: bool) -> list[bool]:
        try:
            return append(batches, durable=durable)
        except StoreError as error:
            failures.append(error)
            if len(failures) == 2:
                release.set()
            raise

    store.append = counted  # type: ignore[method-assign]
    has_lock = threading.Event()

    def lock() -> None:
        with locked(postgres_url, f"SELECT FROM {schema}.runs FOR UPDATE"):
            has_lock.set()
            assert release.wait(SOON)
            assert desk.sent == []

    locker = threading.Thread(target=lock)

    def hook(point: points.Point, details: Iterable[str], writer: Any) -> None:
        if point == "before_append" and "tool_start" in details and not locker.ident:
            locker.start()
            assert has_lock.wait(SOON)

    points.hook = hook
    try:
        desk.runs.start("desk", "Send it.", run_id="r")
        assert desk.runs.drive("r").state == "over"
    finally:
        points.hook = None
        release.set()
        locker.join(SOON)
    assert desk.sent == ["sent"]
    assert desk.log("r").count("taken") == 1


def test_a_statement_that_takes_too_long_is_an_error_that_passes(store: PostgresStore) -> None:
    begin = time.monotonic()
    with pytest.raises(StoreError, match="statement timeout") as caught:
        store._execute("SELECT pg_sleep(3600)")
    assert caught.value.is_temporary
    assert time.monotonic() - begin < SOON


def test_a_timeout_in_the_url_is_left_alone(postgres_url: str, schema: str) -> None:
    separator = "&" if "?" in postgres_url else "?"
    options = "options=-cstatement_timeout%3D7s%20-clock_timeout%3D6s"
    store = PostgresStore(f"{postgres_url}{separator}{options}", schema=schema)
    settings = store._execute("SELECT current_setting('statement_timeout'), current_setting('lock_timeout')")
    assert settings == [("7s", "6s")]
    [connection] = store._connections._idle
    assert connection.seconds == pytest.approx(7.3)
    store.close()


def test_deleting_runs_may_take_longer_than_other_statements(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connections, "MAX_STATEMENT", 0.05)
    [(_,)] = store._connections.maintain("SELECT pg_sleep(0.2)")
    monkeypatch.setattr(postgres_connections, "MAX_MAINTENANCE", 0.1)
    with pytest.raises(StoreError, match="statement timeout"):
        store._connections.maintain("SELECT pg_sleep(3600)")


# -- servers that hang -------------------------------------------------------------------------------------------------


def freeze(pids: Iterable[int], number: int = signal.SIGSTOP) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # a backend ends with its connection
            os.kill(pid, number)


@pytest.fixture
def frozen() -> Iterator[list[int]]:
    """The processes that a test has frozen: they continue at its end."""
    pids: list[int] = []
    yield pids
    freeze(pids, signal.SIGCONT)


needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot freeze a process")


@pytest.fixture
def own() -> Iterator[Any]:
    try:
        server = own_server()
    except NoServer as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with server:
        yield server


def in_time(operation: Callable[[], Any]) -> None:
    """Do what must not hang."""
    begin = time.monotonic()
    operation()
    assert time.monotonic() - begin < SOON


@needs_signals
def test_a_backend_that_hangs_is_an_error_and_another_one_is_used(own: Any, frozen: list[int]) -> None:
    store = PostgresStore(own.get_uri())
    store.create(RunRow(id="r", agent="desk"), b"start")
    others = [store._connections.connect() for _ in range(3)]
    backends = [connection.info.backend_pid for connection in (*store._connections._idle, *others)]
    for connection in others:
        store._connections._give_back(connection)
    freeze(backends)
    frozen += backends

    def find() -> None:
        with pytest.raises(StoreError, match=r"the server has not answered for 1\.3 seconds") as caught:
            store.find("r")
        assert caught.value.is_temporary

    in_time(find)
    assert store._connections._idle == [], "the others would hang too"
    row = store.find("r")
    assert row is not None
    store.close()


@needs_signals
def test_a_run_outlasts_a_backend_that_hangs(own: Any, frozen: list[int]) -> None:
    desk = Desk(PostgresStore(own.get_uri()))
    assert isinstance(desk.store, PostgresStore)
    connections = desk.store._connections

    def hook(point: points.Point, details: Iterable[str], writer: Any) -> None:
        if point == "before_append" and "tool_start" in details and not frozen:
            frozen.extend(connection.info.backend_pid for connection in connections._idle)
            freeze(frozen)

    points.hook = hook
    try:
        desk.runs.start("desk", "Send it.", run_id="r")
        in_time(lambda: desk.runs.drive("r"))
    finally:
        points.hook = None
    assert frozen
    assert desk.runs.find("r").state == "over"
    assert desk.sent == ["sent"]
    desk.store.close()


@needs_signals
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="only Linux lists the processes of a server here")
def test_a_server_that_hangs_as_a_whole_is_waited_for_a_bounded_time(own: Any, frozen: list[int]) -> None:
    desk = Desk(PostgresStore(f"{own.get_uri()}&connect_timeout=2"))
    desk.runs.start("desk", "Send it.", run_id="r")
    main = own.get_pid()
    children = Path(f"/proc/{main}/task/{main}/children").read_text(encoding="utf-8").split()
    frozen += [main, *map(int, children)]
    freeze(frozen)

    def find() -> None:
        for message in ("has not answered", "timeout"):
            with pytest.raises(StoreError, match=message) as caught:
                desk.store.find("r")
            assert caught.value.is_temporary

    in_time(find)
    freeze(frozen, signal.SIGCONT)
    assert desk.runs.drive("r").state == "over"
    assert desk.sent == ["sent"]
    desk.store.close()
