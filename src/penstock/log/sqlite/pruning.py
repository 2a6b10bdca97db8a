"""Deletes finished runs of a SQLite file, a few at a time, and gives the space back to the file system."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.log.sqlite import events as sqlite_events
from penstock.log.store import FIELDS, Cutoff, RunRow, row_of

MAX_EVENTS = 5000
"""How many events one transaction deletes, unless a single run has more. Writers wait for it some hundredths of a
second."""

MAX_PAGES = 2000
"""How many free pages one transaction returns to the file system."""

_CUTOFF = "coalesce((SELECT value FROM json_each(:tenants) WHERE key = tenant), :before)"

# Each conversation of the page is looked up once, however many runs it has there.
_MAY_GO = f"""
    threads AS (SELECT DISTINCT tenant, thread, {_CUTOFF} AS cutoff FROM page WHERE thread <> ''),
    live AS (
        SELECT tenant, thread FROM threads WHERE EXISTS (
            SELECT 1 FROM runs AS other INDEXED BY runs_by_end
            WHERE other.thread = threads.thread AND other.thread <> '' AND ended >= cutoff
                AND other.tenant = threads.tenant
        ) OR EXISTS (
            SELECT 1 FROM runs AS other INDEXED BY runs_by_end  -- an unfinished run has no end
            WHERE other.thread = threads.thread AND other.thread <> '' AND ended = 0 AND other.tenant = threads.tenant
        )
    )
"""
_PRUNABLE = f"""
WITH page AS (
        SELECT {FIELDS}, ended FROM runs INDEXED BY runs_ended CROSS JOIN heads ON run = number
        WHERE state = 'over' AND ended < :latest AND ended >= :ended AND (ended, id) > (:ended, :id)
        ORDER BY ended, id LIMIT :limit
    ),
    {_MAY_GO}
SELECT {FIELDS}, ended < {_CUTOFF} AND (tenant, thread) NOT IN (SELECT tenant, thread FROM live) FROM page
ORDER BY ended, id
"""
_DELETABLE = f"""
WITH page AS (
        SELECT number, id, seq, tenant, thread, ended FROM (SELECT DISTINCT value FROM json_each(:ids)) AS given
        CROSS JOIN runs ON id = given.value CROSS JOIN heads ON run = number WHERE state = 'over'
    ),
    {_MAY_GO}
SELECT id, number, seq FROM page
WHERE ended < {_CUTOFF} AND (tenant, thread) NOT IN (SELECT tenant, thread FROM live) ORDER BY ended, id
"""
_UNUSED = "DELETE FROM media WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM media_uses WHERE hash = ?1)"


def prunable(
    connection: sqlite3.Connection, cutoff: Cutoff, after: RunRow | None, limit: int
) -> tuple[list[RunRow], RunRow | None]:
    """A page of the runs that may be deleted, and its last run, if there may be another page."""
    ended, id = (after.updated, after.id) if after else (-1e300, "")
    values = {**_values(cutoff), "latest": cutoff.latest, "ended": ended, "id": id, "limit": limit}
    page = connection.execute(_PRUNABLE, values).fetchall()
    rows = [row_of(row) for *row, _ in page]
    return [row for row, (*_, may_go) in zip(rows, page, strict=True) if may_go], rows[-1] if len(
        rows
    ) == limit else None


def delete(connection: sqlite3.Connection, run_ids: Sequence[str], cutoff: Cutoff) -> tuple[int, int]:
    """Delete those of these runs that may be deleted: as many as fit in a small transaction, or one.

    Returns how many, and how many are left for further transactions.
    """
    ids = msgspec.json.encode(run_ids).decode()
    found = connection.execute(_DELETABLE, {**_values(cutoff), "ids": ids}).fetchall()
    rows: list[tuple[str, int]] = []
    size = 0
    for id, number, seq in found:
        size += seq
        if rows and size > MAX_EVENTS:
            break
        rows.append((id, number))
    _delete(connection, rows)
    [free] = connection.execute("PRAGMA freelist_count").fetchone()
    for _ in range(min(free, MAX_PAGES)):
        connection.execute("PRAGMA incremental_vacuum(1)")  # `sqlite3` ends it after a page, however many are asked for
    return len(rows), len(found) - len(rows)


def _values(cutoff: Cutoff) -> dict[str, Any]:
    return {"before": cutoff.before, "tenants": msgspec.json.encode(cutoff.tenants).decode()}


def _delete(connection: sqlite3.Connection, rows: list[tuple[str, int]]) -> None:
    """Delete runs, with everything that belongs to them."""
    ids, numbers = [(id,) for id, _ in rows], [(number,) for _, number in rows]
    used = [row for id in ids for row in connection.execute("SELECT hash FROM media_uses WHERE run_id = ?", id)]
    sqlite_events.delete(connection, ids)
    for table in ("inputs", "media_uses", "starts"):
        connection.executemany(f"DELETE FROM {table} WHERE run_id = ?", ids)
    connection.executemany("DELETE FROM heads WHERE run = ?", numbers)
    connection.executemany("DELETE FROM runs WHERE number = ?", numbers)
    connection.executemany(_UNUSED, used)
