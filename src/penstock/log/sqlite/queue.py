"""The runs of a SQLite file that a worker may claim, in the order in which they are claimed.

Each kind of them has its own index, so that a claim costs the same however many runs the file has. Runs that had an
owner come first: somebody may be reading them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from penstock.log.store import MAX_LEASES, VERSION
from penstock.log.suspects import JOINABLE, LostLease, suspects_of

_COLUMNS = "SELECT begun, created, number FROM runs INDEXED BY"
_IS_FREE = f"(suspect = '' OR suspect >= '{JOINABLE}')"
_READY = (
    f"{_COLUMNS} runs_ready WHERE state = 'ready' AND agent = ? AND version <= ? AND {_IS_FREE} "
    "ORDER BY begun DESC, created LIMIT ?"
)
IS_LOST = f"state = 'running' AND (lease_until = 0 OR lease_until NOT BETWEEN ? AND ? + {MAX_LEASES} * lease)"
_HAS_NO_OWNER = "state = 'running' AND lease_until = 0"  # its worker has died, and `sweep` has noted that
_LOST = f"{_COLUMNS} runs_running WHERE {_HAS_NO_OWNER} AND {_IS_FREE}"
IS_WOKEN = "wake_at > 0 AND wake_at <= ? AND state = 'waiting'"
_WOKEN = f"{_COLUMNS} runs_waking WHERE {IS_WOKEN} AND {_IS_FREE}"
_ONE = f"SELECT number FROM runs WHERE id = ? AND (state IN ('ready', 'damaged') OR ({_HAS_NO_OWNER}) OR ({IS_WOKEN}))"
_IS_SUSPECT = f"suspect <> '' AND (state = 'ready' OR ({_HAS_NO_OWNER}) OR ({IS_WOKEN})) AND version <= ?"
_FIRST_GROUP = f"SELECT min(suspect) FROM runs INDEXED BY runs_suspect WHERE {_IS_SUSPECT}"
_GROUP = f"SELECT number FROM runs INDEXED BY runs_suspect WHERE suspect = ? AND {_IS_SUSPECT}"
_EXPIRED = f"""
SELECT id, 0, owner, suspect, lost, in_tool, lease_until < ? - lease FROM runs INDEXED BY runs_running
WHERE {IS_LOST} AND lease_until <> 0
"""
_LIVING = f"""
SELECT DISTINCT owner FROM runs INDEXED BY runs_running
WHERE state = 'running' AND lease_until BETWEEN ? AND ? + {MAX_LEASES} * lease AND lease_until <> 0
"""
_SUSPECT = "UPDATE runs SET lost = ?, suspect = ?, lease_until = 0 WHERE id = ?"
_AGENTS = "SELECT DISTINCT agent FROM runs INDEXED BY runs_ready WHERE state = 'ready'"

QUEUED = """
SELECT agent, count(*), min(created) FROM runs INDEXED BY runs_ready WHERE state = 'ready' GROUP BY agent
"""
IS_OPEN = "(state IN ('ready', 'running') OR wake_at > 0)"
"""The condition of the index `runs_open`, which a statement repeats to use it."""


def sweep(connection: sqlite3.Connection, now: float) -> None:
    """Make suspects of the runs whose workers have died."""
    expired = [LostLease(*row) for row in connection.execute(_EXPIRED, (now, now, now))]
    if expired:
        living = {owner for (owner,) in connection.execute(_LIVING, (now, now))}
        found = suspects_of(expired, living)
        connection.executemany(_SUSPECT, [(one.lost, one.group, one.run_id) for one in found])


def first_claimable(
    connection: sqlite3.Connection, now: float, agents: Sequence[str] | None, limit: int, group: str | None
) -> list[int]:
    """The numbers of the runs that are claimed next, of these agents, or of any; see `Store.claim_next`."""
    if agents is not None and not agents:
        return []
    condition, values = _of_agents(agents)
    if group == "":
        [group] = connection.execute(f"{_FIRST_GROUP}{condition}", (now, VERSION, *values)).fetchone()
    if group is not None:
        rows = connection.execute(
            f"{_GROUP}{condition} ORDER BY created, number LIMIT ?", (group, now, VERSION, *values, limit)
        ).fetchall()
        return [number for (number,) in rows]
    names = [name for (name,) in connection.execute(_AGENTS)] if agents is None else agents
    rows = [row for name in names for row in connection.execute(_READY, (name, VERSION, limit))]
    tail = f"AND version <= ?{condition} ORDER BY begun DESC, created LIMIT ?"
    rows += connection.execute(f"{_LOST} {tail}", (VERSION, *values, limit))
    rows += connection.execute(f"{_WOKEN} {tail}", (now, VERSION, *values, limit))
    rows.sort(key=lambda row: (not row[0], row[1], row[2]))
    return [number for _, _, number in rows[:limit]]


def find_claimable(connection: sqlite3.Connection, now: float, agents: Sequence[str] | None, run_id: str) -> list[int]:
    """The number of a run, if it may be claimed by its id: also a damaged one."""
    condition, values = _of_agents(agents)
    rows = connection.execute(f"{_ONE} AND version <= ?{condition}", (run_id, now, VERSION, *values))
    return [number for (number,) in rows]


def is_suspect(now: float, agents: Sequence[str] | None) -> tuple[str, list[Any]]:
    """The condition for the suspects that a worker without other runs may claim, and its values."""
    condition, values = _of_agents(agents)
    return f"suspect < ? AND {_IS_SUSPECT}{condition}", [JOINABLE, now, VERSION, *values]


def is_claimable(now: float, agents: Sequence[str] | None) -> tuple[str, list[Any]]:
    """The condition for all runs that may be claimed now, and its values."""
    condition, values = _of_agents(agents)
    where = (
        f"{IS_OPEN} AND (state = 'ready' OR ({IS_LOST}) OR (state = 'waiting' AND wake_at > 0 AND wake_at <= ?)) "
        f"AND version <= ?{condition}"
    )
    return where, [now, now, now, VERSION, *values]


def _of_agents(agents: Sequence[str] | None) -> tuple[str, Sequence[str]]:
    """The condition for runs of these agents, and its values."""
    return ("", ()) if agents is None else (f" AND agent IN ({', '.join('?' * len(agents))})", agents)
