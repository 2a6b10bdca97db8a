"""A store in a SQLite file, for one machine: several processes may use it at the same time.

The file is in WAL mode, so readers never wait. A process that is frozen inside a write, not dead, blocks the other
writers of the file until it continues or dies.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from penstock.log import points, sqlite_events
from penstock.log.bodies import types_of
from penstock.log.doorbell import Doorbell, wait_for_event
from penstock.log.media import put_back, take_out
from penstock.log.sqlite_schema import prepare
from penstock.log.store import (
    LEASE,
    MAX_LEASES,
    VERSION,
    Batch,
    Claim,
    Input,
    RunPhase,
    RunRow,
    StoreError,
    Watcher,
    not_text,
    run_exists,
    unknown_run,
)
from penstock.run.events import Taken, encode

POLL = 0.05
"""How many seconds pass between two looks for events of other processes."""

_TEMPORARY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
              sqlite3.SQLITE_CANTOPEN}  # fmt: skip

_FIELDS = "id, agent, thread, tenant, version, state, epoch, owner, lease_until, seq, created, updated, wake_at"
_OWNED = "WHERE id = ? AND epoch = ? AND seq = ?"
_UPDATE = f"UPDATE runs SET last = max(?, last), seq = ?, updated = ?, state = ?, lease_until = ?, wake_at = ? {_OWNED}"
_ADVANCE = f"UPDATE runs SET last = max(?, last), seq = ?, updated = ? {_OWNED}"  # which changes no index


class SQLiteStore:
    """Logs in a SQLite file. Each thread has a connection of its own; a lock lets one of them write at a time."""

    def __init__(self, path: str | Path, *, lease: float = LEASE, clock: Callable[[], float] = time.time) -> None:
        self.path = str(path)
        self._place = Path(path).absolute()  # also if the process changes its folder
        self.lease = lease
        self.poll = POLL
        self.flusher: object = None
        self._doorbell = Doorbell()
        self._clock = clock
        self._local = threading.local()
        self._connections: weakref.WeakSet[ThreadConnection] = weakref.WeakSet()
        weakref.finalize(self, _close, self._connections).atexit = False  # threads may use the store until the end
        self._lock = threading.Lock()
        self._is_closed = False
        if not self._place.parent.is_dir():
            raise StoreError(f"the log {self.path} cannot be opened: its folder does not exist")
        try:
            with self._failing("opened"):
                prepare(self._connection, self.path)
                self._file = self._place.stat()
        except BaseException:
            self.close()
            raise

    # -- the operations of a store -----------------------------------------------------------------------------------

    def create(self, row: RunRow, start: bytes, *, durable: bool = True) -> bool:
        now = self._clock()
        with self._writing(durable=durable) as connection:
            values = (row.id, row.agent, row.thread, row.tenant, row.version, row.state, now, now)
            added = connection.execute(
                f"INSERT INTO runs ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, 0, '', 0, 1, ?, ?, 0) ON CONFLICT DO NOTHING",
                values,
            )
            if added.rowcount:
                _add_event(connection, row.id, 1, now, start)
                return True
            first = sqlite_events.read(connection, row.id, 0, 1)
            if [bytes(body) for seq, _, body in first if seq == 1] != [take_out(start)[0]]:
                raise run_exists(row.id)
            return False

    def claim(self, owner: str, *, run_id: str | None = None, agents: Sequence[str] | None = None) -> Claim | None:
        deadline, now = time.monotonic() + self.lease, self._clock()
        where, values = _claimable(now, run_id, agents)
        with self._writing(durable=True) as connection:
            picked = connection.execute(
                f"SELECT id, agent, epoch, seq, state FROM runs WHERE {where} ORDER BY updated LIMIT 1",
                values,
            ).fetchone()
            if picked is None:
                return None
            id, agent, epoch, seq, found = picked
            claim = Claim(id, agent, epoch + 1, seq + 1, deadline, found)
            connection.execute(
                "UPDATE runs SET state = 'running', epoch = ?, owner = ?, lease_until = ?, seq = ?, updated = ?, "
                "wake_at = 0, lease = ? WHERE id = ?",
                (claim.epoch, owner, now + self.lease, claim.seq, now, self.lease, id),
            )
            _add_event(connection, id, claim.seq, now, encode(Taken(claim.epoch, owner)))
        self._doorbell.ring([id])
        return claim

    def claimable(
        self, *, agents: Sequence[str] | None = None, after: RunRow | None = None, limit: int = 1000
    ) -> Sequence[RunRow]:
        where, values = _claimable(self._clock(), None, agents)
        if after is not None:
            where, values = f"{where} AND (updated, id) > (?, ?)", [*values, after.updated, after.id]
        with self._failing("read"):
            rows = self._connection.execute(
                f"SELECT {_FIELDS} FROM runs WHERE {where} ORDER BY updated, id LIMIT ?", [*values, limit]
            )
            return [_row(values) for values in rows]

    def append(self, batches: Sequence[Batch], *, durable: bool) -> list[bool]:
        now = self._clock()
        with self._writing(durable=durable) as connection:
            owned = [*self._add(connection, batches, now)]
            mine = [batch for batch, is_owner in zip(batches, owned, strict=True) if is_owner]
            for batch in mine:
                if batch.inputs or batch.refused or batch.state == "waiting":
                    self._take(connection, batch)
            if points.hook is not None:
                points.hook("inside_append", [name for batch in batches for name in types_of(batch.bodies)], None)
        self._doorbell.ring_with((batch, now) for batch in mine)
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
            return put_back(run_id, sqlite_events.read(self._connection, run_id, after, limit), self._media)

    def wait(self, run_id: str, after: int, seconds: float) -> None:
        wait_for_event(self, run_id, after, seconds)

    def watch(self, run_id: str, callback: Watcher) -> AbstractContextManager[None]:
        return self._doorbell.watch(run_id, callback)

    def put(self, input: Input) -> bool:
        with self._writing(durable=True) as connection:
            if connection.execute("SELECT 1 FROM runs WHERE id = ?", (input.run_id,)).fetchone() is None:
                raise unknown_run(input.run_id)
            added = connection.execute(
                "INSERT INTO inputs (run_id, kind, key, body, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (input.run_id, input.kind, input.key, input.body, self._clock()),
            )
            if added.rowcount:
                connection.execute(
                    "UPDATE runs SET state = 'ready' "
                    "WHERE id = ? AND (state = 'waiting' OR (state = 'damaged' AND ? = 'cancel'))",
                    (input.run_id, input.kind),
                )
            return bool(added.rowcount)

    def inputs(self, run_ids: Sequence[str]) -> list[Input]:
        if not run_ids:
            return []
        places = ", ".join("?" * len(run_ids))
        with self._failing("read"):
            if self._connection.execute("SELECT 1 FROM inputs WHERE taken_seq IS NULL LIMIT 1").fetchone() is None:
                return []  # as most often, without a look at each run
            rows = self._connection.execute(
                "SELECT run_id, kind, key, body, number, at FROM inputs "
                f"WHERE taken_seq IS NULL AND run_id IN ({places}) ORDER BY number",
                tuple(run_ids),
            )
            return [Input(*row) for row in rows]

    def find(self, run_id: str) -> RunRow | None:
        self._check_file()
        with self._failing("read"):
            rows = self._connection.execute(f"SELECT {_FIELDS} FROM runs WHERE id = ?", (run_id,))
            return next((_row(values) for values in rows), None)

    def list(
        self, *, state: RunPhase | None = None, agent: str | None = None, thread: str | None = None,
        tenant: str | None = None, prefix: str = "", limit: int = 100,
    ) -> list[RunRow]:  # fmt: skip
        values = {"state": state, "agent": agent, "thread": thread, "tenant": tenant}
        values = {name: value for name, value in values.items() if value is not None}
        where = "".join(f" AND {name} = ?" for name in values)
        with self._failing("read"):
            rows = self._connection.execute(
                f"SELECT {_FIELDS} FROM runs WHERE id >= ? AND id < ?{where} ORDER BY created DESC, id LIMIT ?",
                (prefix, f"{prefix}\U0010ffff", *values.values(), limit),
            )
            return [_row(values) for values in rows]

    def prune(self, *, before: float, limit: int = 1000) -> int:
        with self._writing(durable=False) as connection:
            rows = connection.execute(
                "SELECT id FROM runs WHERE state = 'over' AND updated < ? LIMIT ?", (before, limit)
            ).fetchall()
            sqlite_events.delete(connection, rows)
            for table, column in (("inputs", "run_id"), ("media_uses", "run_id"), ("runs", "id")):
                connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", rows)
            connection.execute("DELETE FROM media WHERE hash NOT IN (SELECT hash FROM media_uses)")
            return len(rows)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            _close(self._connections)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _add(self, connection: sqlite3.Connection, batches: Sequence[Batch], now: float) -> Sequence[bool]:
        """Add events, all at once if nobody has lost a run; for each, False if another worker owns it."""
        if self._add_owned(connection, batches, now):
            return [True] * len(batches)
        connection.execute("ROLLBACK")  # rarely, and a savepoint would keep copies of pages each time
        connection.execute("BEGIN IMMEDIATE")
        owned: list[bool] = []
        for batch in batches:
            connection.execute("SAVEPOINT one")
            owned.append(self._add_owned(connection, [batch], now))
            connection.execute("RELEASE one" if owned[-1] else "ROLLBACK TO one")
        return owned

    def _add_owned(self, connection: sqlite3.Connection, batches: Sequence[Batch], now: float) -> bool:
        """Add events, and update the rows of their runs; returns whether this worker owns all of them."""
        last = sqlite_events.add(connection, batches, now)
        light = (
            (number, batch.seq + len(batch.bodies), now, batch.run_id, batch.epoch, batch.seq)
            for batch, number in zip(batches, last, strict=True)
            if not batch.renew and batch.state == "running"
        )
        whole = (
            (
                number, batch.seq + len(batch.bodies), now, batch.state,
                now + self.lease if batch.state == "running" else 0.0,
                0.0 if batch.wake_in is None else now + batch.wake_in,
                batch.run_id, batch.epoch, batch.seq,
            )
            for batch, number in zip(batches, last, strict=True)
            if batch.renew or batch.state != "running"
        )  # fmt: skip
        updates = connection.executemany(_ADVANCE, light), connection.executemany(_UPDATE, whole)
        return sum(update.rowcount for update in updates) == len(batches)

    def _take(self, connection: sqlite3.Connection, batch: Batch) -> None:
        """Mark the inputs of a batch as taken; a run does not wait while it has others."""
        seq = batch.seq + len(batch.bodies)
        connection.executemany(  # the events have what an input contained
            "UPDATE inputs SET taken_seq = ?, body = x'' WHERE number = ?", [(seq, number) for number in batch.inputs]
        )
        connection.executemany("DELETE FROM inputs WHERE number = ?", [(number,) for number in batch.refused])
        if batch.state == "waiting":
            connection.execute(
                "UPDATE runs SET state = 'ready' WHERE id = ? "
                "AND EXISTS (SELECT 1 FROM inputs WHERE run_id = ? AND taken_seq IS NULL)",
                (batch.run_id, batch.run_id),
            )

    def _media(self, hashes: Sequence[str]) -> dict[str, bytes]:
        places = ", ".join("?" * len(hashes))
        rows = self._connection.execute(f"SELECT hash, body FROM media WHERE hash IN ({places})", hashes)
        return dict(rows.fetchall())

    @property
    def _connection(self) -> sqlite3.Connection:
        """The connection of this thread."""
        own: ThreadConnection | None = getattr(self._local, "own", None)
        if own is None or own.process != os.getpid():  # a connection does not survive a fork
            if self._is_closed:
                raise StoreError(f"the log {self.path} was closed")
            wait = max(0.1, min(5.0, self.lease / 3))
            connection = sqlite3.connect(self._place, timeout=wait, isolation_level=None, check_same_thread=False)
            own = ThreadConnection(connection)
            with self._lock:
                self._connections.add(own)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            # The pages of active runs are written again and again. With a checkpoint every 1000 pages, the default, an
            # event of 200 runs at once costs about 4 µs more; with fewer than every 4000, none less.
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
            self._local.own = own
        return own.connection

    def _check_file(self) -> None:
        """Raise a `StoreError` if the file was deleted or replaced: what is written to it would be lost."""
        try:
            if os.path.samestat(self._place.stat(), self._file):
                return
        except OSError:
            pass
        raise StoreError(f"the log {self.path} was deleted or replaced since it was opened: restart this process")

    @contextmanager
    def _failing(self, verb: str) -> Generator[None]:
        """Turn an error of SQLite into a `StoreError`."""
        try:
            yield
        except UnicodeEncodeError as error:
            raise not_text(error) from None
        except sqlite3.Error as error:
            code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
            raise StoreError(
                f"the log {self.path} cannot be {verb}: {error}", is_temporary=code in _TEMPORARY
            ) from error

    @contextmanager
    def _writing(self, *, durable: bool) -> Generator[sqlite3.Connection]:
        """A transaction; a durable one waits until the disk has it."""
        self._check_file()
        with self._failing("written"):
            connection = self._connection
            with self._lock:
                if self._local.own.is_durable is not durable:
                    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                    self._local.own.is_durable = durable
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:  # SQLite has ended it itself after some errors, such as a full disk
                        connection.execute("ROLLBACK")
                    raise


class ThreadConnection:
    """The connection of one thread, which ends with the thread: it occupies two open files.

    `is_durable` if its transactions wait until the disk has them.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.process = os.getpid()
        self.is_durable = False

    def __del__(self) -> None:
        if self.process == os.getpid():
            self.connection.close()
        else:
            _inherited.append(self.connection)


_inherited: list[sqlite3.Connection] = []  # of the parent process: closing them might change its file


def _close(connections: weakref.WeakSet[ThreadConnection]) -> None:
    for own in list(connections):
        own.connection.close()


def _claimable(now: float, run_id: str | None, agents: Sequence[str] | None) -> tuple[str, list[Any]]:
    """The condition for a run that a worker may claim now, and its values."""
    where = (
        "(state = 'ready' OR (state = 'running' AND lease_until NOT BETWEEN ? AND ? + ? * lease) "
        "OR (state = 'waiting' AND wake_at > 0 AND wake_at <= ?) OR (state = 'damaged' AND ?)) AND version <= ?"
    )
    values: list[Any] = [now, now, MAX_LEASES, now, run_id is not None, VERSION]
    if run_id is not None:
        where, values = f"{where} AND id = ?", [*values, run_id]
    if agents is not None:
        where, values = f"{where} AND agent IN ({', '.join('?' * len(agents))})", [*values, *agents]
    return where, values


def _add_event(connection: sqlite3.Connection, run_id: str, seq: int, now: float, body: bytes) -> None:
    """Add an event to a run whose row counts it already."""
    last = sqlite_events.add(connection, [Batch(run_id, 0, seq - 1, [body])], now)
    connection.execute("UPDATE runs SET last = ? WHERE id = ?", (*last, run_id))


def _row(values: tuple[Any, ...]) -> RunRow:
    return RunRow(**dict(zip(_FIELDS.split(", "), values, strict=True)))
