"""The survey of a SQLite file: its unfinished runs, the processes that drive them, and its size."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.log.retention.survey import (
    KEPT_SECONDS,
    MAX_CONTINUED,
    Owned,
    RunCounts,
    WorkerRow,
    age,
    is_alive,
    join_workers,
)
from penstock.log.sqlite.file import SQLiteFile
from penstock.log.sqlite.queue import IS_LOST, IS_WOKEN

_STATES = "SELECT state, count(*) FROM runs INDEXED BY runs_by_state WHERE state <> 'over' GROUP BY state"
_READY = """
SELECT agent, begun, count(*), min(created) FROM runs INDEXED BY runs_ready WHERE state = 'ready' GROUP BY agent, begun
"""
_CONTINUED = """
SELECT min(since) FROM (
    SELECT max(updated, coalesce((SELECT max(at) FROM inputs WHERE run_id = id AND taken_seq IS NULL), 0)) AS since
    FROM runs INDEXED BY runs_ready CROSS JOIN heads ON run = number
    WHERE state = 'ready' AND agent = ? AND begun = 1 ORDER BY created LIMIT ?
)
"""
_WOKEN = f"SELECT min(wake_at) FROM runs INDEXED BY runs_waking WHERE {IS_WOKEN}"
_EXPIRED = f"SELECT count(*) FROM runs INDEXED BY runs_running WHERE {IS_LOST}"
_SEEN = "SELECT seen FROM workers"
_WORKERS = "SELECT owner, kind, agents, started, seen FROM workers"
_OWNERS = f"""
SELECT owner, count(*), max(NOT ({IS_LOST})) FROM runs INDEXED BY runs_running WHERE state = 'running' GROUP BY owner
"""
_BEAT = """
INSERT INTO workers (owner, kind, agents, started, seen) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (owner) DO UPDATE SET seen = excluded.seen
"""
_FORGET = "DELETE FROM workers WHERE seen < ?"
_LEAVE = "DELETE FROM workers WHERE owner = ?"


class SQLiteSurvey:
    """The survey of a file."""

    def __init__(self, file: SQLiteFile, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock

    def counts(self) -> RunCounts:
        now = self._clock()
        return self._file.read(lambda connection: _counts(connection, now))

    def workers(self) -> list[WorkerRow]:
        now = self._clock()

        def workers(connection: sqlite3.Connection) -> list[WorkerRow]:
            known = [
                WorkerRow(owner=owner, kind=kind, agents=msgspec.json.decode(agents), started=started, seen=seen)
                for owner, kind, agents, started, seen in connection.execute(_WORKERS)
            ]
            owned = {
                owner: Owned(runs, bool(is_leased))
                for owner, runs, is_leased in connection.execute(_OWNERS, (now, now))
            }
            return join_workers(known, owned, now)

        return self._file.read(workers)

    def beat(self, worker: WorkerRow) -> None:
        now = self._clock()
        agents = msgspec.json.encode([*worker.agents]).decode()

        def beat(connection: sqlite3.Connection) -> None:
            connection.execute(_BEAT, (worker.owner, worker.kind, agents, now, now))
            connection.execute(_FORGET, (now - KEPT_SECONDS,))

        self._file.write(beat, durable=False)

    def leave(self, owner: str) -> None:
        self._file.write(lambda connection: connection.execute(_LEAVE, (owner,)), durable=False)

    def size(self) -> int:
        return size_of(self._file.path)


def size_of(path: str) -> int:
    """The bytes of a file, with those that are not in their place yet."""
    files = [Path(path + suffix) for suffix in ("", "-wal")]
    return sum(file.stat().st_size for file in files if file.exists())


def _counts(connection: sqlite3.Connection, now: float) -> RunCounts:
    ready: dict[str, int] = {}
    since: list[float | None] = []
    for agent, begun, count, created in connection.execute(_READY).fetchall():
        ready[agent] = ready.get(agent, 0) + count
        if begun:
            since += connection.execute(_CONTINUED, (agent, MAX_CONTINUED)).fetchone()
        else:
            since.append(created)
    since += connection.execute(_WOKEN, (now,)).fetchone()
    [expired] = connection.execute(_EXPIRED, (now, now)).fetchone()
    return RunCounts(
        runs=dict(connection.execute(_STATES).fetchall()),
        ready=ready,
        oldest_ready=age(min((one for one in since if one is not None), default=now), now),
        expired=expired,
        workers=sum(is_alive(seen, now) for (seen,) in connection.execute(_SEEN)),
    )
