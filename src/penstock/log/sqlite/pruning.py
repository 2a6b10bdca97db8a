"""Deletes finished runs of a SQLite file, a few at a time, and gives the space back to the file system."""

from __future__ import annotations

import sqlite3

from penstock.log.sqlite import events as sqlite_events

MAX_EVENTS = 5000
"""How many events one transaction deletes, unless a single run has more. Writers wait for it some hundredths of a
second."""

MAX_PAGES = 2000
"""How many free pages one transaction returns to the file system."""

_OLD = """
SELECT id, number, seq FROM runs INDEXED BY runs_ended CROSS JOIN heads ON run = number
WHERE state = 'over' AND ended < :before AND updated < :before ORDER BY ended LIMIT :limit
"""
_UNUSED = "DELETE FROM media WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM media_uses WHERE hash = ?1)"


def prune(connection: sqlite3.Connection, before: float, limit: int) -> int:
    """Delete finished runs that were not changed since a time: as many as fit in a small transaction, or one.

    Returns how many; 0 if there are no more.
    """
    rows: list[tuple[str, int]] = []
    size = 0
    for id, number, seq in connection.execute(
        _OLD, {"before": before, "limit": min(limit, MAX_EVENTS // 10)}
    ).fetchall():
        size += seq
        if rows and size > MAX_EVENTS:
            break
        rows.append((id, number))
    _delete(connection, rows)
    [free] = connection.execute("PRAGMA freelist_count").fetchone()
    for _ in range(min(free, MAX_PAGES)):
        connection.execute("PRAGMA incremental_vacuum(1)")  # `sqlite3` ends it after a page, however many are asked for
    return len(rows)


def _delete(connection: sqlite3.Connection, rows: list[tuple[str, int]]) -> None:
    """Delete runs, with everything that belongs to them."""
    ids, numbers = [(id,) for id, _ in rows], [(number,) for _, number in rows]
    used = [row for id in ids for row in connection.execute("SELECT hash FROM media_uses WHERE run_id = ?", id)]
    sqlite_events.delete(connection, ids)
    for table in ("inputs", "media_uses"):
        connection.executemany(f"DELETE FROM {table} WHERE run_id = ?", ids)
    connection.executemany("DELETE FROM heads WHERE run = ?", numbers)
    connection.executemany("DELETE FROM runs WHERE number = ?", numbers)
    connection.executemany(_UNUSED, used)
