"""A store in a SQLite file, for one machine: several processes may use it at the same time.

The file is in WAL mode, so readers never wait. A process that is frozen inside a write, not dead, blocks the other
writers of the file until it continues or dies.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.log import points
from penstock.log.bodies import types_of
from penstock.log.store import (
    LEASE,
    VERSION,
    Batch,
    Claim,
    Input,
    RunExistsError,
    RunPhase,
    RunRow,
    StoreError,
    UnknownRunError,
)
from penstock.run.events import Taken, encode

SCHEMA_VERSION = 1
APPLICATION_ID = 0x50454E53
"""Marks the file as a log of penstock."""

_SCHEMA = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, agent TEXT NOT NULL, thread TEXT NOT NULL, tenant TEXT NOT NULL, version INTEGER NOT NULL,
    state TEXT NOT NULL, epoch INTEGER NOT NULL, owner TEXT NOT NULL, lease_until REAL NOT NULL, seq INTEGER NOT NULL,
    created REAL NOT NULL, updated REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX runs_open ON runs (state, lease_until) WHERE state <> 'over';
CREATE INDEX runs_by_thread ON runs (thread, created);
CREATE TABLE events (
    run_id TEXT NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, body BLOB NOT NULL, PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE TABLE inputs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
    body BLOB NOT NULL, taken_seq INTEGER, UNIQUE (run_id, kind, key)
);
CREATE INDEX inputs_open ON inputs (run_id) WHERE taken_seq IS NULL;
CREATE TABLE media (hash TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
"""

_FIELDS = "id, agent, thread, tenant, version, state, epoch, owner, lease_until, seq, created, updated"


class SQLiteStore:
    """Logs in a SQLite file. Each thread has a connection of its own; a lock lets one of them write at a time."""

    def __init__(self, path: str | Path, *, lease: float = LEASE, clock: Callable[[], float] = time.time) -> None:
        self.path = str(path)
        self.lease = lease
        self.flusher: object = None
        self._clock = clock
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._is_closed = False
        with self._failing("opened"):
            self._prepare(self._connection)

    # -- the operations of a store -----------------------------------------------------------------------------------

    def create(self, row: RunRow, start: bytes) -> bool:
        now = self._clock()
        with self._writing(durable=True) as connection:
            values = (row.id, row.agent, row.thread, row.tenant, row.version, row.state, now, now)
            added = connection.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, 0, '', 0, 1, ?, ?) ON CONFLICT DO NOTHING", values
            )
            if added.rowcount:
                connection.execute("INSERT INTO events VALUES (?, 1, ?, ?)", (row.id, now, start))
                return True
            first = connection.execute("SELECT body FROM events WHERE run_id = ? AND seq = 1", (row.id,)).fetchone()
            if first is None or bytes(first[0]) != start:
                raise RunExistsError(f"a run with the id {row.id!r} exists, and it started in another way")
            return False

    def claim(self, owner: str, *, run_id: str | None = None, agents: Sequence[str] | None = None) -> Claim | None:
        now = self._clock()
        found = "state = 'ready' OR (state = 'running' AND lease_until < ?)"
        values: list[Any] = [now, VERSION]
        where = f"({found}) AND version <= ?"
        if run_id is not None:
            where, values = f"{where} AND id = ?", [*values, run_id]
        if agents is not None:
            where, values = f"{where} AND agent IN ({', '.join('?' * len(agents))})", [*values, *agents]
        with self._writing(durable=True) as connection:
            picked = connection.execute(
                f"SELECT id, agent, epoch, seq FROM runs WHERE {where} ORDER BY updated LIMIT 1",
                values,
            ).fetchone()
            if picked is None:
                return None
            id, agent, epoch, seq = picked
            claim = Claim(id, agent, epoch + 1, seq + 1)
            connection.execute(
                "UPDATE runs SET state = 'running', epoch = ?, owner = ?, lease_until = ?, seq = ?, updated = ? "
                "WHERE id = ?",
                (claim.epoch, owner, now + self.lease, claim.seq, now, id),
            )
            body = encode(Taken(claim.epoch, owner))
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (id, claim.seq, now, body))
        return claim

    def append(self, batches: Sequence[Batch], *, durable: bool) -> list[bool]:
        now = self._clock()
        with self._writing(durable=durable) as connection:
            owned = [self._update(connection, batch, now) for batch in batches]
            mine = [batch for batch, is_owner in zip(batches, owned, strict=True) if is_owner]
            connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", _rows(mine, now))
            for batch in mine:
                if batch.inputs or batch.state == "waiting":
                    self._take(connection, batch)
            if points.hook is not None:
                points.hook("inside_append", [name for batch in batches for name in types_of(batch.bodies)], None)
            return owned

    def renew(self, owned: Sequence[tuple[str, int]]) -> list[bool]:
        now = self._clock()
        with self._writing(durable=False) as connection:
            return [
                connection.execute(
                    "UPDATE runs SET lease_until = ? WHERE id = ? AND epoch = ? AND state = 'running'",
                    (now + self.lease, run_id, epoch),
                ).rowcount
                == 1
                for run_id, epoch in owned
            ]

    def read(self, run_id: str, after: int = 0, limit: int = 1000) -> list[tuple[int, float, bytes]]:
        with self._failing("read"):
            rows = self._connection.execute(
                "SELECT seq, at, body FROM events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?",
                (run_id, after, limit),
            )
            return rows.fetchall()

    def put(self, wanted: Input) -> bool:
        with self._writing(durable=True) as connection:
            if connection.execute("SELECT 1 FROM runs WHERE id = ?", (wanted.run_id,)).fetchone() is None:
                raise UnknownRunError(f"there is no run with the id {wanted.run_id!r}")
            added = connection.execute(
                "INSERT INTO inputs (run_id, kind, key, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (wanted.run_id, wanted.kind, wanted.key, wanted.body),
            )
            if added.rowcount:
                connection.execute(
                    "UPDATE runs SET state = 'ready' WHERE id = ? AND state = 'waiting'", (wanted.run_id,)
                )
            return bool(added.rowcount)

    def inputs(self, run_ids: Sequence[str]) -> list[Input]:
        if not run_ids:
            return []
        places = ", ".join("?" * len(run_ids))
        with self._failing("read"):
            rows = self._connection.execute(
                "SELECT run_id, kind, key, body, number FROM inputs "
                f"WHERE taken_seq IS NULL AND run_id IN ({places}) ORDER BY number",
                tuple(run_ids),
            )
            return [Input(*row) for row in rows]

    def find(self, run_id: str) -> RunRow | None:
        with self._failing("read"):
            rows = self._connection.execute(f"SELECT {_FIELDS} FROM runs WHERE id = ?", (run_id,))
            return next((_row(values) for values in rows), None)

    def list(
        self, *, state: RunPhase | None = None, agent: str | None = None, thread: str | None = None,
        tenant: str | None = None, limit: int = 100,
    ) -> list[RunRow]:  # fmt: skip
        wanted = {"state": state, "agent": agent, "thread": thread, "tenant": tenant}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in wanted) or "1"
        with self._failing("read"):
            rows = self._connection.execute(
                f"SELECT {_FIELDS} FROM runs WHERE {where} ORDER BY created DESC, id LIMIT ?",
                (*wanted.values(), limit),
            )
            return [_row(values) for values in rows]

    def prune(self, *, before: float, limit: int = 1000) -> int:
        with self._writing(durable=False) as connection:
            rows = connection.execute(
                "SELECT id FROM runs WHERE state = 'over' AND updated < ? LIMIT ?", (before, limit)
            ).fetchall()
            for table, column in (("events", "run_id"), ("inputs", "run_id"), ("runs", "id")):
                connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", rows)
            return len(rows)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for connection in self._connections:
                connection.close()
            self._connections.clear()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _update(self, connection: sqlite3.Connection, batch: Batch, now: float) -> bool:
        """Update the row of a run; False if another worker owns it."""
        lease = now + self.lease if batch.state == "running" else 0.0
        seq = batch.seq + len(batch.bodies)
        changed = connection.execute(
            "UPDATE runs SET seq = ?, state = ?, lease_until = ?, updated = ? WHERE id = ? AND epoch = ? AND seq = ?",
            (seq, batch.state, lease, now, batch.run_id, batch.epoch, batch.seq),
        )
        return changed.rowcount == 1

    def _take(self, connection: sqlite3.Connection, batch: Batch) -> None:
        """Mark the inputs of a batch as taken; a run does not wait while it has others."""
        seq = batch.seq + len(batch.bodies)
        connection.executemany(
            "UPDATE inputs SET taken_seq = ? WHERE number = ?", [(seq, number) for number in batch.inputs]
        )
        if batch.state == "waiting":
            connection.execute(
                "UPDATE runs SET state = 'ready' WHERE id = ? "
                "AND EXISTS (SELECT 1 FROM inputs WHERE run_id = ? AND taken_seq IS NULL)",
                (batch.run_id, batch.run_id),
            )

    @property
    def _connection(self) -> sqlite3.Connection:
        """The connection of this thread."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None or self._local.process != os.getpid():  # a connection does not survive a fork
            if self._is_closed:
                raise StoreError(f"the log {self.path} was closed")
            wait = max(0.1, min(5.0, self.lease / 3))
            connection = sqlite3.connect(self.path, timeout=wait, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            self._local.connection, self._local.process = connection, os.getpid()
            with self._lock:
                self._connections.append(connection)
        return connection

    @contextmanager
    def _failing(self, verb: str) -> Generator[None]:
        """Turn an error of SQLite into a `StoreError`."""
        try:
            yield
        except sqlite3.Error as error:
            text = str(error)
            is_temporary = any(words in text for words in ("locked", "busy", "disk I/O", "full", "unable to open"))
            raise StoreError(f"the log {self.path} cannot be {verb}: {text}", is_temporary=is_temporary) from error

    @contextmanager
    def _writing(self, *, durable: bool) -> Generator[sqlite3.Connection]:
        """A transaction; a durable one waits until the disk has it."""
        with self._failing("written"):
            connection = self._connection
            with self._lock:
                connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Create the tables, or check that they are ours."""
        if self._is_log(connection):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            if not self._is_log(connection):  # else another process has just created them
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        finally:
            connection.execute("COMMIT")

    def _is_log(self, connection: sqlite3.Connection) -> bool:
        """Whether the tables are there; a `StoreError` if the file is not a log that this version can use."""
        [application], [version] = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        if application == APPLICATION_ID:
            if version > SCHEMA_VERSION:
                raise StoreError(f"the log {self.path} was written by a later version of penstock: upgrade this one")
            return True
        if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None:
            raise StoreError(f"{self.path} is a database of another program, not a log: choose another file")
        return False


def _rows(batches: Sequence[Batch], now: float) -> Iterator[tuple[str, int, float, bytes]]:
    """The rows of events."""
    for batch in batches:
        for number, body in enumerate(batch.bodies, batch.seq + 1):
            yield batch.run_id, number, now, body


def _row(values: tuple[Any, ...]) -> RunRow:
    return RunRow(**dict(zip(_FIELDS.split(", "), values, strict=True)))
