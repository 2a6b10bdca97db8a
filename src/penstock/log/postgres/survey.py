"""The survey of a log in PostgreSQL. Each operation is one statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.log.postgres.statements import IS_LOST, IS_WOKEN, NOW
from penstock.log.retention.survey import (
    ALIVE_SECONDS,
    KEPT_SECONDS,
    MAX_CONTINUED,
    Owned,
    RunCounts,
    WorkerRow,
    age,
    join_workers,
)

_COUNTS = f"""
SELECT 'state', state, count(*), NULL::float8 FROM {{schema}}.runs WHERE state <> 'over' GROUP BY state
UNION ALL
SELECT 'ready', agent, count(*), min(created) FILTER (WHERE epoch = 0) FROM {{schema}}.runs
WHERE state = 'ready' GROUP BY agent
UNION ALL
SELECT 'continued', '', 0, min(greatest(updated, put)) FROM (
    SELECT updated, (SELECT max(at) FROM {{schema}}.inputs WHERE run_id = id AND taken_seq IS NULL) AS put
    FROM {{schema}}.runs WHERE state = 'ready' AND epoch <> 0 ORDER BY created LIMIT {MAX_CONTINUED}
) AS run
UNION ALL
SELECT 'woken', '', 0, min(wake_at) FROM {{schema}}.runs WHERE {IS_WOKEN}
UNION ALL
SELECT 'expired', '', count(*), NULL FROM {{schema}}.runs WHERE {IS_LOST}
UNION ALL
SELECT 'workers', '', count(*), NULL FROM {{schema}}.workers WHERE abs({NOW} - seen) <= {ALIVE_SECONDS}
UNION ALL
SELECT 'now', '', 0, {NOW}
"""
_WORKERS = f"SELECT owner, kind, agents, started, seen, {NOW} FROM {{schema}}.workers"
_OWNERS = f"""
SELECT owner, count(*), bool_or(NOT ({IS_LOST})) FROM {{schema}}.runs WHERE state = 'running' GROUP BY owner
"""
_BEAT = f"""
WITH forgotten AS (DELETE FROM {{schema}}.workers WHERE seen < {NOW} - {KEPT_SECONDS} AND owner <> %(owner)s)
INSERT INTO {{schema}}.workers (owner, kind, agents, started, seen)
SELECT %(owner)s, %(kind)s, %(agents)s, at, at FROM (SELECT {NOW} AS at) AS clock
ON CONFLICT (owner) DO UPDATE SET seen = excluded.seen RETURNING 1
"""
_LEAVE = "DELETE FROM {schema}.workers WHERE owner = %(owner)s RETURNING 1"
SIZE = """
SELECT sum(pg_total_relation_size(class.oid))::int8 FROM pg_class AS class
JOIN pg_namespace AS named ON named.oid = relnamespace WHERE nspname = %(schema)s AND relkind = 'r'
"""


class PostgresSurvey:
    """The survey of a database; `execute` is that of its store."""

    def __init__(self, execute: Callable[..., list[tuple[Any, ...]]], schema: str) -> None:
        self._execute = execute
        self._schema = schema

    def counts(self) -> RunCounts:
        rows = self._execute(_COUNTS)
        found = {kind: (count, at) for kind, _, count, at in rows}
        since = [at for kind, _, _, at in rows if kind in ("ready", "continued", "woken") and at is not None]
        now = found["now"][1]
        return RunCounts(
            runs={name: count for kind, name, count, _ in rows if kind == "state"},
            ready={name: count for kind, name, count, _ in rows if kind == "ready"},
            oldest_ready=age(min(since, default=now), now),
            expired=found["expired"][0],
            workers=found["workers"][0],
        )

    def workers(self) -> list[WorkerRow]:
        rows = self._execute(_WORKERS)
        owned = {owner: Owned(runs, is_leased) for owner, runs, is_leased in self._execute(_OWNERS)}
        known = [
            WorkerRow(owner=owner, kind=kind, agents=msgspec.json.decode(agents), started=started, seen=seen)
            for owner, kind, agents, started, seen, _ in rows
        ]
        return join_workers(known, owned, rows[0][5] if rows else 0.0)

    def beat(self, worker: WorkerRow) -> None:
        agents = msgspec.json.encode([*worker.agents]).decode()
        self._execute(_BEAT, owner=worker.owner, kind=worker.kind, agents=agents)

    def leave(self, owner: str) -> None:
        self._execute(_LEAVE, owner=owner)

    def size(self) -> int:
        [(size,)] = self._execute(SIZE, schema=self._schema)
        return int(size or 0)
