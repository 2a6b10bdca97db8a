"""The heads of runs in a SQLite file: the epoch of each, its last event, and when that was written.

A head is what every commit changes of a run. It is apart from the row of the run, so that those of 200 runs stand in a
few pages, and it is written as a whole: a commit compares the heads of its runs, in memory if nobody else has written
to the file, and then replaces them with a few statements for all of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain

from penstock.log.sqlite import events as sqlite_events
from penstock.log.sqlite.events import Head
from penstock.log.sqlite.file import SQLiteFile
from penstock.log.sqlite.rows import execute_rows
from penstock.log.store import Batch

MAX_KNOWN = 10_000
"""The heads of how many runs are kept in memory at most. Others are looked up when they are written."""

_COUNT = """
SELECT count(*) FROM (VALUES {rows}) CROSS JOIN heads ON run = column1
WHERE epoch = column2 AND seq = column3 AND last = column4
"""
_FIND = (
    "SELECT run, epoch, seq, last, updated FROM runs JOIN heads ON run = number WHERE id = ? AND epoch = ? AND seq = ?"
)
_REPLACE = "REPLACE INTO heads (run, epoch, seq, last, updated) VALUES {rows}"


class Heads:
    """The heads of the runs of a file. Those that this process writes are known.

    While no other connection has written to the file, and every transaction of this one was committed, what is known is
    what the file has. After that it is a hint, which is compared with the file.
    """

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file
        self._sure: dict[str, Head] = {}  # by the id of the run
        self._hints: dict[str, Head] = {}
        self._seen: tuple[object, ...] = ()  # the state of the file at which `_sure` was true

    def owned(self, connection: sqlite3.Connection, batches: Sequence[Batch]) -> list[Head] | list[Head | None]:
        """The head of each run; None if it is not the one to which the batch can be added: another worker owns it.

        Called inside a transaction, in which nobody else writes. If another connection may have written before, the
        known heads become hints.
        """
        [version] = connection.execute("PRAGMA data_version").fetchone()  # which other connections change
        seen = connection, version, self._file.incomplete
        if seen != self._seen:
            self._hints |= self._sure
            self._sure.clear()
            self._seen = seen
        sure = self._sure
        heads: list[Head] = []
        for batch in batches:
            head = sure.get(batch.run_id)
            if head is None or head[2] != batch.seq or head[1] != batch.epoch:
                return self._find(connection, batches)
            heads.append(head)
        return heads

    def _find(self, connection: sqlite3.Connection, batches: Sequence[Batch]) -> list[Head] | list[Head | None]:
        """The owned heads, compared with the file: all at once, or else one by one."""
        heads: list[Head] = []
        values: list[int] = []
        for batch in batches:
            head = self._sure.get(batch.run_id) or self._hints.get(batch.run_id)
            if head is None:
                break
            heads.append(head)
            values += (head[0], batch.epoch, batch.seq, head[3])
        else:
            counts = [cursor.fetchone()[0] for cursor in execute_rows(connection, _COUNT, 4, values)]
            if sum(counts) == len(batches):
                return heads
        return [connection.execute(_FIND, (batch.run_id, batch.epoch, batch.seq)).fetchone() for batch in batches]

    def add(self, connection: sqlite3.Connection, batches: Sequence[Batch], heads: Sequence[Head], now: float) -> None:
        """Add events after the heads of their runs, and replace the heads."""
        last = sqlite_events.add(connection, batches, heads, now)
        execute_rows(connection, _REPLACE, 5, [*chain.from_iterable(last)])
        self._sure.update(zip([batch.run_id for batch in batches], last, strict=True))
        if len(self._sure) + len(self._hints) > MAX_KNOWN:
            self._sure.clear()
            self._hints.clear()

    def forget(self, run_id: str) -> None:
        """Forget a run that this process no longer writes."""
        self._sure.pop(run_id, None)
        self._hints.pop(run_id, None)
