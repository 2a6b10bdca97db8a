"""The heads of runs in a SQLite file: the epoch of each, its last event, and when that was written.

A head is what every commit changes of a run. It is apart from the row of the run, so that those of 200 runs stand in a
few pages, and it is written as a whole: a commit compares the heads of its runs, and then replaces them, with a few
statements for all of them.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Sequence

from penstock.log.sqlite_rows import execute_rows
from penstock.log.store import Batch

MAX_KNOWN = 10_000
"""The heads of how many runs are kept in memory at most. Others are looked up when they are written."""

_COUNT = """
SELECT count(*) FROM (VALUES {rows}) CROSS JOIN heads ON run = column1
WHERE epoch = column2 AND seq = column3 AND last = column4
"""
_FIND = "SELECT number, last FROM runs JOIN heads ON run = number WHERE id = ? AND epoch = ? AND seq = ?"
_REPLACE = "REPLACE INTO heads (run, epoch, seq, last, updated) VALUES {rows}"

Head = tuple[int, int]
"""The number of a run, and that of its last event, of all events in the file."""


class Heads:
    """The heads of the runs of a file. Those that this process writes are known, and only compared with the file."""

    def __init__(self) -> None:
        self._known: dict[str, Head] = {}  # by the id of the run

    def owned(self, connection: sqlite3.Connection, batches: Sequence[Batch]) -> list[Head | None]:
        """The head of each run; None if it is not the one to which the batch can be added: another worker owns it."""
        known = self._known
        heads = [known.get(batch.run_id) for batch in batches]
        values: list[int] = []
        for batch, head in zip(batches, heads, strict=True):
            if head is None:
                break
            values += (head[0], batch.epoch, batch.seq, head[1])
        else:
            counts = [cursor.fetchone()[0] for cursor in execute_rows(connection, _COUNT, 4, values)]
            if sum(counts) == len(batches):
                return heads
        return [connection.execute(_FIND, (batch.run_id, batch.epoch, batch.seq)).fetchone() for batch in batches]

    def write(
        self, connection: sqlite3.Connection, batches: Iterable[Batch], heads: Iterable[Head], now: float
    ) -> None:
        """Replace the heads of runs to which these batches were added."""
        known = self._known
        values: list[float] = []
        for batch, head in zip(batches, heads, strict=True):
            values += (head[0], batch.epoch, batch.seq + len(batch.bodies), head[1], now)
            known[batch.run_id] = head
        deque(execute_rows(connection, _REPLACE, 5, values), maxlen=0)
        if len(known) > MAX_KNOWN:
            known.clear()

    def forget(self, run_id: str) -> None:
        """This process does not write the run any more."""
        self._known.pop(run_id, None)
