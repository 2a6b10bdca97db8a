"""The condition of a log, read without changing it: the version of its tables, its runs, its size, its problems."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from penstock.log.retention.table_versions import TableVersions
from penstock.log.sqlite import schema as sqlite_schema
from penstock.log.sqlite.survey import size_of
from penstock.log.store import StoreError

MAX_PROBLEMS = 20
"""How many problems are listed."""

_STATES = "SELECT state, count(*) FROM {schema}runs GROUP BY state ORDER BY state"
_SQLITE_GAPS = """
SELECT id, seq, coalesce(found, 0) FROM runs JOIN heads ON run = number
LEFT JOIN (SELECT run_id, count(*) AS found FROM events GROUP BY run_id) ON run_id = id
WHERE seq <> coalesce(found, 0) ORDER BY id LIMIT ?
"""
_POSTGRES_GAPS = """
SELECT id, run.seq, found FROM {schema}.runs AS run, LATERAL (
    SELECT count(*) AS found FROM {schema}.events AS event WHERE event.run_id = run.id
) AS counted WHERE run.seq <> found ORDER BY id LIMIT %(limit)s
"""


class LogStatus(Struct, frozen=True):
    """The condition of a log. Runs are counted by state, and `size` is in bytes.

    Runs and problems are looked for only in tables of the current version.
    """

    versions: TableVersions
    size: int
    runs: dict[str, int] = {}
    problems: tuple[str, ...] = ()

    @property
    def is_current(self) -> bool:
        return self.versions.version >= self.versions.own


def status_of(address: str, schema: str = "penstock") -> LogStatus:
    """The condition of the log at this address; a `StoreError` if there is none, or it cannot be read."""
    return _postgres_status(address, schema) if "://" in address else _sqlite_status(address)


def _sqlite_status(path: str) -> LogStatus:
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=5)) as connection:
            versions = sqlite_schema.versions_of(connection, path)
            size = size_of(path)
            broken = [text for (text,) in connection.execute(f"PRAGMA quick_check({MAX_PROBLEMS})") if text != "ok"]
            if versions.version < versions.own or broken:
                return LogStatus(versions, size, problems=tuple(broken))
            gaps = _gaps(connection.execute(_SQLITE_GAPS, (MAX_PROBLEMS,)))
            return LogStatus(versions, size, dict(connection.execute(_STATES.format(schema="")).fetchall()), gaps)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"the log {path} cannot be read: {error}") from error


def _postgres_status(url: str, schema: str) -> LogStatus:
    from penstock.log.postgres import schema as postgres_schema
    from penstock.log.postgres.connections import Connections
    from penstock.log.postgres.survey import SIZE

    connections = Connections(url)
    try:
        versions = postgres_schema.versions_of(connections, schema)
        [(size,)] = connections.execute(SIZE, {"schema": schema})
        if versions.version < versions.own:
            return LogStatus(versions, size or 0)
        runs: Any = dict(connections.maintain(_STATES.format(schema=f"{schema}.")))
        gaps = _gaps(connections.maintain(_POSTGRES_GAPS.format(schema=schema), {"limit": MAX_PROBLEMS}))
        return LogStatus(versions, size, runs, gaps)
    finally:
        connections.close()


def _gaps(rows: Iterable[tuple[Any, ...]]) -> tuple[str, ...]:
    return tuple(f"the run {id} has {found:,} events, and should have {seq:,}" for id, seq, found in rows)
