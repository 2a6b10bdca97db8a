"""The requests of a log in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from penstock.log.sqlite.file import SQLiteFile
from penstock.log.starts.requests import COLUMNS, FIELDS, StartRequest, StoredStart, key_taken, start_of

_INSERT = f"INSERT INTO starts ({FIELDS}) VALUES ({', '.join('?' * len(COLUMNS))}) ON CONFLICT DO NOTHING"
_TAKEN = "SELECT 1 FROM starts WHERE tenant = ? AND key = ? AND key <> '' AND run_id <> ?"
_UNANSWERED = "tenant = ? AND caller = ? AND answered = 0 AND key = '' ORDER BY at DESC, id LIMIT ?"


def insert(connection: sqlite3.Connection, request: StartRequest, run_id: str, seq: int, now: float) -> None:
    """Add a request inside a transaction, unless it is there; a `KeyTakenError` if another run has its key."""
    if connection.execute(_TAKEN, (request.tenant, request.key, run_id)).fetchone() is not None:
        raise key_taken(request.key)
    values = (
        request.id, request.tenant, request.key, request.caller, request.body, run_id, seq, now,
        now + request.seconds, not request.seconds,
    )  # fmt: skip
    connection.execute(_INSERT, values)


def restore(connection: sqlite3.Connection, starts: Sequence[StoredStart]) -> None:
    """Add rows of requests inside a transaction; a `KeyTakenError` if another run has the key of one."""
    for start in starts:
        if connection.execute(_TAKEN, (start.tenant, start.key, start.run_id)).fetchone() is not None:
            raise key_taken(start.key)
        connection.execute(_INSERT, tuple(getattr(start, name) for name in COLUMNS))


class SQLiteStarts:
    """The requests of a file."""

    def __init__(self, file: SQLiteFile, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock

    def add(self, request: StartRequest, run_id: str, seq: int = 0) -> None:
        now = self._clock()
        self._file.write(lambda connection: insert(connection, request, run_id, seq, now), durable=True)

    def find(self, id: str) -> StoredStart | None:
        return next(iter(self._rows("id = ?", id)), None)

    def find_key(self, tenant: str, key: str) -> StoredStart | None:
        return next(iter(self._rows("tenant = ? AND key = ? AND key <> ''", tenant, key)), None)

    def of_run(self, run_id: str) -> list[StoredStart]:
        return self._rows("run_id = ? ORDER BY at, id", run_id)

    def unanswered(self, tenant: str, caller: str, limit: int = 20) -> list[StoredStart]:
        return self._rows(_UNANSWERED, tenant, caller, limit)

    def renew(self, ids: Sequence[str], seconds: float) -> None:
        values = [(self._clock() + seconds, id) for id in ids]
        statement = "UPDATE starts SET open_until = ? WHERE id = ? AND answered = 0"
        self._file.write(lambda connection: connection.executemany(statement, values), durable=False)

    def reopen(self, start: StoredStart, seconds: float) -> bool:
        now = self._clock()
        condition = "answered = 0 AND open_until = ? AND open_until <= ?"
        return self._update("open_until = ?", condition, now + seconds, start.id, start.open_until, now)

    def answer(self, id: str, *, only_lost: bool = False) -> bool:
        condition = "answered = 0 AND (? = 0 OR open_until <= ?)"
        return self._update("answered = 1", condition, id, only_lost, self._clock())

    def remove(self, id: str) -> None:
        self._file.write(lambda connection: connection.execute("DELETE FROM starts WHERE id = ?", (id,)), durable=True)

    def _update(self, change: str, condition: str, *values: Any) -> bool:
        statement = f"UPDATE starts SET {change} WHERE id = ? AND {condition}"
        return self._file.write(lambda connection: connection.execute(statement, values).rowcount == 1, durable=False)

    def _rows(self, where: str, *values: Any) -> list[StoredStart]:
        self._file.check()
        statement, now = f"SELECT {FIELDS}, open_until > ? FROM starts WHERE {where}", self._clock()
        return self._file.read(
            lambda connection: [start_of(row) for row in connection.execute(statement, (now, *values))]
        )
