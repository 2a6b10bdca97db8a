"""The events of all runs in a SQLite file: one table in the order in which they were written.

Runs that write at the same time share pages. Where each run has pages of its own, a commit with one event of each of
200 runs writes 200 pages, which was most of what a log cost. In return, the events of one run are found as a chain:
the row of a run has the number of its last event, and each event has that of the one before it. A table of marks has
the number of every 64th event, so that no part of a long run is far from a place where a reader can begin. A chain goes
back from larger to smaller events of a run, so it ends also where the file was damaged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

MARK_EVERY = 64
"""How many events of a run there are from one mark to the next."""

Events = tuple[str, int, Sequence[bytes]]
"""Events of a run: its id, the number of the event before them, and their bodies."""

_INSERT = "INSERT INTO events (number, run_id, seq, at, body, previous) VALUES (?, ?, ?, ?, ?, "
_FIRST = f"{_INSERT}(SELECT last FROM runs WHERE id = ?))"
_NEXT = f"{_INSERT}?)"

_READ = """
WITH RECURSIVE chain (seq, at, body, previous) AS (
    SELECT seq, at, body, previous FROM events WHERE run_id = :run_id AND seq > :after AND number = coalesce(
        (SELECT number FROM marks WHERE run_id = :run_id AND seq >= :after + :limit ORDER BY seq LIMIT 1),
        (SELECT last FROM runs WHERE id = :run_id))
    UNION ALL
    SELECT events.seq, events.at, events.body, events.previous FROM chain JOIN events ON number = chain.previous
    WHERE run_id = :run_id AND events.seq > :after AND events.seq < chain.seq
)
SELECT seq, at, body FROM chain ORDER BY seq LIMIT :limit
"""
_SCAN = "SELECT seq, at, body FROM events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?"
_DELETE = """
WITH RECURSIVE chain (number, seq, previous) AS (
    SELECT number, seq, previous FROM events
    WHERE run_id = :run_id AND number = (SELECT last FROM runs WHERE id = :run_id)
    UNION ALL
    SELECT events.number, events.seq, events.previous FROM chain JOIN events ON events.number = chain.previous
    WHERE run_id = :run_id AND events.seq < chain.seq
)
DELETE FROM events WHERE number IN (SELECT number FROM chain)
"""


def add(connection: sqlite3.Connection, runs: Iterable[Events], now: float) -> list[int | None]:
    """Append events of some runs; returns the number of the last one of each, which the row of the run has to
    have, or None if there was none."""
    [number] = connection.execute("SELECT coalesce(max(number), 0) FROM events").fetchone()
    first: list[tuple[object, ...]] = []
    following: list[tuple[object, ...]] = []
    marks: list[tuple[str, int, int]] = []
    last: list[int | None] = []
    for run_id, seq, bodies in runs:
        previous: object = run_id
        rows = first
        for body in bodies:
            number += 1
            seq += 1
            rows.append((number, run_id, seq, now, body, previous))
            if not seq % MARK_EVERY:
                marks.append((run_id, seq, number))
            previous, rows = number, following
        last.append(number if bodies else None)
    connection.executemany(_FIRST, first)
    if following:
        connection.executemany(_NEXT, following)
    if marks:
        connection.executemany("INSERT OR REPLACE INTO marks VALUES (?, ?, ?)", marks)
    return last


def read(connection: sqlite3.Connection, run_id: str, after: int, limit: int) -> list[tuple[int, float, bytes]]:
    """The events of a run after a number, in order: all that there are, also if some are missing between them."""
    if limit <= 0:
        return []
    values = {"run_id": run_id, "after": after, "limit": limit}
    rows: list[tuple[int, float, bytes]] = connection.execute(_READ, values).fetchall()
    if rows and rows[0][0] == after + 1:
        return rows
    seq = connection.execute("SELECT seq FROM runs WHERE id = ?", (run_id,)).fetchone()
    if not rows and (seq is None or seq[0] <= after):
        return []
    return connection.execute(_SCAN, (run_id, after, limit)).fetchall()  # the chain is broken


def delete(connection: sqlite3.Connection, run_ids: Sequence[tuple[str]]) -> None:
    """Delete the events of runs."""
    for run_id in run_ids:
        deleted = connection.execute(_DELETE, {"run_id": run_id[0]})
        [seq] = connection.execute("SELECT seq FROM runs WHERE id = ?", run_id).fetchone()
        if deleted.rowcount != seq:  # the chain is broken
            connection.execute("DELETE FROM events WHERE run_id = ?", run_id)
    connection.executemany("DELETE FROM marks WHERE run_id = ?", run_ids)
