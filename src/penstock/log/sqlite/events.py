"""The events of all runs in a SQLite file: one table in the order in which they were written.

Runs that write at the same time share pages: if each run had pages of its own, a commit with one event of each of 200
runs would write 200 pages, which costs more than everything else. In return, the events of one run are found as a
chain: the head of a run has the number of its last event, and each event has that of the one before it. A table of
marks has the number of every 64th event, so that no part of a long run is far from a place where a reader can begin. A
chain goes back from larger to smaller events of a run, so it ends also where the file was damaged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from penstock.log.media import MEDIA_SIZE, take_out
from penstock.log.sqlite.rows import execute_rows
from penstock.log.store import Batch

MARK_EVERY = 64
"""How many events of a run there are from one mark to the next."""

Head = tuple[int, int, int, int, float]
"""The number of a run, its epoch, the `seq` and the number of its last event, and when that was written."""

_INSERT = "INSERT INTO events (run_id, seq, at, body, previous) VALUES {rows}"
_LAST = "SELECT last FROM runs JOIN heads ON run = number WHERE id = :run_id"

_READ = f"""
WITH RECURSIVE chain (seq, at, body, previous) AS (
    SELECT seq, at, body, previous FROM events WHERE run_id = :run_id AND seq > :after AND number = coalesce(
        (SELECT number FROM marks WHERE run_id = :run_id AND seq >= :after + :limit ORDER BY seq LIMIT 1),
        ({_LAST}))
    UNION ALL
    SELECT events.seq, events.at, events.body, events.previous FROM chain JOIN events ON number = chain.previous
    WHERE run_id = :run_id AND events.seq > :after AND events.seq < chain.seq
)
SELECT seq, at, body FROM chain ORDER BY seq LIMIT :limit
"""
_SEQ = "SELECT seq FROM runs JOIN heads ON run = number WHERE id = ?"
_SCAN = "SELECT seq, at, body FROM events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?"
_DELETE = f"""
WITH RECURSIVE chain (number, seq, previous) AS (
    SELECT number, seq, previous FROM events
    WHERE run_id = :run_id AND number = ({_LAST})
    UNION ALL
    SELECT events.number, events.seq, events.previous FROM chain JOIN events ON events.number = chain.previous
    WHERE run_id = :run_id AND events.seq < chain.seq
)
DELETE FROM events WHERE number IN (SELECT number FROM chain)
"""


def add(connection: sqlite3.Connection, batches: Iterable[Batch], heads: Iterable[Head], now: float) -> list[Head]:
    """Append the events of some runs, and their media, after their heads; returns the heads that they have then.

    SQLite numbers the events itself, from the largest number on. Numbers and bytearrays are what `sqlite3` binds at
    once: for None and bytes it first looks for adapters, in 0.7 µs.
    """
    [number] = connection.execute("SELECT coalesce(max(number), 0) FROM events").fetchone()
    values: list[object] = []
    marks: list[tuple[str, int, int]] = []
    last: list[Head] = []
    for batch, (run, _, _, previous, _) in zip(batches, heads, strict=True):
        run_id, seq = batch.run_id, batch.seq
        for body in batch.bodies:
            number += 1
            seq += 1
            stored = body if len(body) < MEDIA_SIZE else _without_media(connection, run_id, body)
            values += (run_id, seq, now, bytearray(stored), previous)
            if not seq % MARK_EVERY:
                marks.append((run_id, seq, number))
            previous = number
        last.append((run, batch.epoch, seq, previous, now))
    execute_rows(connection, _INSERT, 5, values)
    if marks:
        connection.executemany("INSERT OR REPLACE INTO marks (run_id, seq, number) VALUES (?, ?, ?)", marks)
    return last


def read(connection: sqlite3.Connection, run_id: str, after: int, limit: int) -> list[tuple[int, float, bytes]]:
    """The events of a run after a number, in order, also if some are missing between them."""
    if limit <= 0:
        return []
    values = {"run_id": run_id, "after": after, "limit": limit}
    rows: list[tuple[int, float, bytes]] = connection.execute(_READ, values).fetchall()
    if rows and rows[0][0] == after + 1:
        return rows
    seq = connection.execute(_SEQ, (run_id,)).fetchone()
    if not rows and (seq is None or seq[0] <= after):
        return []
    return connection.execute(_SCAN, (run_id, after, limit)).fetchall()  # the chain is broken


def delete(connection: sqlite3.Connection, run_ids: Sequence[tuple[str]]) -> None:
    """Delete the events of runs."""
    broken: list[str] = []
    for run_id in run_ids:
        connection.execute(_DELETE, {"run_id": run_id[0]})
        [deleted] = connection.execute("SELECT changes()").fetchone()  # `rowcount` is -1 after WITH
        [seq] = connection.execute(_SEQ, run_id).fetchone()
        if deleted != seq:
            broken.append(run_id[0])
    if broken:  # their chains do not have all events: a scan of the table finds the others
        connection.execute(f"DELETE FROM events WHERE run_id IN ({', '.join('?' * len(broken))})", broken)
    connection.executemany("DELETE FROM marks WHERE run_id = ?", run_ids)


def _without_media(connection: sqlite3.Connection, run_id: str, body: bytes) -> bytes:
    """The body as it is stored; its large media are added beside it."""
    stored, media = take_out(body)
    connection.executemany("INSERT INTO media (hash, body) VALUES (?, ?) ON CONFLICT DO NOTHING", media.items())
    uses = [(run_id, digest) for digest in media]
    connection.executemany("INSERT INTO media_uses (run_id, hash) VALUES (?, ?) ON CONFLICT DO NOTHING", uses)
    return stored
