"""A store in a SQLite file, for one machine: several processes may use it at the same time.

The file is in WAL mode, so readers never wait. A process that is frozen during a write blocks the other writers of the
file until it continues or dies.
"""

from __future__ import annotations

import builtins
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.log import points
from penstock.log.bodies import types_of
from penstock.log.doorbell import Doorbell, wait_for_event
from penstock.log.media import put_back, take_out
from penstock.log.retention.known_runs import same_run
from penstock.log.sqlite import events as sqlite_events
from penstock.log.sqlite import pruning
from penstock.log.sqlite.file import SQLiteFile
from penstock.log.sqlite.heads import Heads
from penstock.log.sqlite.queue import QUEUED, find_claimable, first_claimable, is_claimable, is_suspect, sweep
from penstock.log.sqlite.schema import prepare
from penstock.log.sqlite.survey import SQLiteSurvey
from penstock.log.starts import sqlite as sqlite_starts
from penstock.log.starts.requests import StartRequest, StoredStart
from penstock.log.store import (
    FIELDS,
    LEASE,
    QUEUE,
    Batch,
    Claim,
    Cutoff,
    Input,
    QueuedRuns,
    Row,
    RunPhase,
    RunRow,
    Watcher,
    row_of,
    run_exists,
    unknown_run,
)
from penstock.log.suspects import Outages, retry_group
from penstock.run.events import Taken, encode

if TYPE_CHECKING:
    from penstock.log.retention.keep import Keep

POLL = 0.05
"""The seconds between two checks for events of other processes."""

_RUNS = "runs CROSS JOIN heads ON run = number"
_OPEN_RUNS = "runs INDEXED BY runs_open CROSS JOIN heads ON run = number"
_CREATE = """
INSERT INTO runs (id, agent, thread, tenant, version, state, owner, begun, lease_until, lease, wake_at, created)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?) ON CONFLICT DO NOTHING
"""
_SUSPECTS = "runs INDEXED BY runs_suspect CROSS JOIN heads ON run = number"
_CLAIMED = f"""
SELECT run, epoch, seq, last, updated, id, agent, state, lost, suspect, in_tool, tenant FROM {_RUNS} WHERE number = ?
"""
_TAKE = (
    "UPDATE runs SET state = 'running', owner = ?, begun = 1, lease_until = ?, lease = ?, wake_at = 0 WHERE number = ?"
)
_IS_OWNED = "AND state = 'running' AND EXISTS (SELECT 1 FROM heads WHERE run = number AND epoch = ?)"
# A worker that writes has not died: what was noted when its lease ended is taken back.
_LIVES = """
lost = CASE lease_until WHEN 0 THEN max(lost - 1, 0) ELSE lost END,
suspect = CASE lease_until WHEN 0 THEN '' ELSE suspect END
"""
_UPDATE = f"UPDATE runs SET state = ?, lease_until = ?, wake_at = ?, ended = ?, {_LIVES} WHERE number = ?"
_MARK = """
UPDATE runs SET in_tool = coalesce(?, in_tool), suspect = CASE ? WHEN 'none' THEN suspect ELSE '' END,
lost = CASE ? WHEN 'step' THEN 0 ELSE lost END WHERE number = ?
"""
_RENEW = f"UPDATE runs SET lease_until = ?, {_LIVES} WHERE id = ? {_IS_OWNED}"
_ACQUIT = f"UPDATE runs SET suspect = '' WHERE id = ? {_IS_OWNED}"
_RETRY = "UPDATE runs SET state = 'ready', suspect = ? WHERE id = ? AND state = 'parked'"


class SQLiteStore:
    """Logs in a SQLite file. Each thread has a connection of its own; a lock lets one of them write at a time.

    If it `is_flushed`, every append waits until the disk has it.
    """

    def __init__(
        self, path: str | Path, *, lease: float = LEASE, clock: Callable[[], float] = time.time,
        is_flushed: bool = False,
    ) -> None:  # fmt: skip
        self.path = str(path)
        self.lease = lease
        self.poll = POLL
        self.flusher: object = None
        self.keep: Keep | None = None
        self._doorbell = Doorbell()
        self._clock = clock
        self._is_flushed = is_flushed
        self._outages = Outages(lease)
        self._file = SQLiteFile(path, wait=max(0.1, min(5.0, lease / 3)), outages=self._outages)
        self._heads = Heads(self._file)
        self.starts = sqlite_starts.SQLiteStarts(self._file, clock)
        self.survey = SQLiteSurvey(self._file, clock)
        self._file.open(prepare)

    # -- the operations of a store -----------------------------------------------------------------------------------

    def create(self, row: RunRow, start: bytes, *, owner: str = "", request: StartRequest | None = None) -> bool:
        now = self._clock()
        state, until, epoch = ("running", now + self.lease, 1) if owner else (row.state, 0.0, 0)
        bodies = [start, encode(Taken(epoch, owner))] if owner else [start]
        values = (
            row.id, row.agent, row.thread, row.tenant, row.version, state, owner, epoch, until, self.lease, now
        )  # fmt: skip

        def create(connection: sqlite3.Connection) -> bool:
            if request is not None:
                sqlite_starts.insert(connection, request, row.id, 0, now)
            added = connection.execute(_CREATE, values)
            if added.rowcount:
                assert added.lastrowid is not None
                head = added.lastrowid, epoch, 0, 0, now
                self._heads.add(connection, [Batch(row.id, epoch, 0, bodies)], [head], now)
                return True
            first = sqlite_events.read(connection, row.id, 0, 1)
            if [bytes(body) for seq, _, body in first if seq == 1] != [take_out(start)[0]]:
                raise run_exists(row.id)
            return False

        is_new = self._file.write(create, durable=True)
        if is_new and state == "ready":
            self._doorbell.ring([QUEUE])
        return is_new

    def claim(self, owner: str, *, run_id: str | None = None, agents: Sequence[str] | None = None) -> Claim | None:
        if run_id is None:
            return next(iter(self.claim_next(owner, agents=agents, group="")), None)
        claims = self._claim(owner, lambda connection, now: find_claimable(connection, now, agents, run_id))
        return next(iter(claims), None)

    def claim_next(
        self, owner: str, *, agents: Sequence[str] | None = None, limit: int = 1, group: str | None = None
    ) -> list[Claim]:
        return self._claim(owner, lambda connection, now: first_claimable(connection, now, agents, limit, group))

    def suspects(self, *, agents: Sequence[str] | None = None, limit: int = 1000) -> list[RunRow]:
        where, values = is_suspect(self._clock(), agents)
        return self._rows(f"{where} ORDER BY suspect, created, id LIMIT ?", [*values, limit], _SUSPECTS)

    def acquit(self, owned: Sequence[tuple[str, int]]) -> None:
        self._file.write(lambda connection: connection.executemany(_ACQUIT, owned), durable=False)

    def retry(self, run_id: str) -> bool:
        def retry(connection: sqlite3.Connection) -> bool:
            if connection.execute(_RETRY, (retry_group(run_id), run_id)).rowcount:
                return True
            if connection.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone() is None:
                raise unknown_run(run_id)
            return False

        is_parked = self._file.write(retry, durable=True)
        if is_parked:
            self._doorbell.ring([QUEUE])
        return is_parked

    def claimable(
        self, *, agents: Sequence[str] | None = None, after: RunRow | None = None, limit: int = 1000
    ) -> Sequence[RunRow]:
        where, values = is_claimable(self._clock(), agents)
        if after is not None:
            where, values = f"{where} AND (created, id) > (?, ?)", [*values, after.created, after.id]
        return self._rows(f"{where} ORDER BY created, id LIMIT ?", [*values, limit], _OPEN_RUNS)

    def queued(self) -> dict[str, QueuedRuns]:
        return self._file.read(lambda connection: {row[0]: QueuedRuns(*row[1:]) for row in connection.execute(QUEUED)})

    def append(self, batches: Sequence[Batch], *, durable: bool) -> list[bool]:
        now = self._clock()
        owned = self._file.write(partial(self._append, batches, now), durable=durable or self._is_flushed)
        self._doorbell.ring_with((batch, now) for batch, is_owner in zip(batches, owned, strict=True) if is_owner)
        return owned

    def renew(self, owned: Sequence[tuple[str, int]]) -> list[bool]:
        until = self._clock() + self.lease

        def renew(connection: sqlite3.Connection) -> list[bool]:
            return [connection.execute(_RENEW, (until, run_id, epoch)).rowcount == 1 for run_id, epoch in owned]

        return self._file.write(renew, durable=False)

    def read(self, run_id: str, after: int = 0, limit: int = 1000) -> list[tuple[int, float, bytes]]:
        def read(connection: sqlite3.Connection) -> list[tuple[int, float, bytes]]:
            rows = sqlite_events.read(connection, run_id, after, limit)
            return put_back(run_id, rows, partial(_media, connection))

        return self._file.read(read)

    def wait(self, run_id: str, after: int, seconds: float) -> None:
        wait_for_event(self, run_id, after, seconds)

    def watch(self, run_id: str, callback: Watcher) -> AbstractContextManager[None]:
        return self._doorbell.watch(run_id, callback)

    def put(self, input: Input) -> bool:
        values = input.run_id, input.kind, input.key, input.body, self._clock()

        def put(connection: sqlite3.Connection) -> bool:
            state = connection.execute("SELECT state FROM runs WHERE id = ?", (input.run_id,)).fetchone()
            if state is None:
                raise unknown_run(input.run_id)
            if state == ("over",):
                return False
            added = connection.execute(
                "INSERT INTO inputs (run_id, kind, key, body, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", values
            )
            if added.rowcount:
                connection.execute(
                    "UPDATE runs SET state = 'ready' "
                    "WHERE id = ? AND (state = 'waiting' OR (state IN ('damaged', 'parked') AND ? = 'cancel'))",
                    (input.run_id, input.kind),
                )
            return bool(added.rowcount)

        is_new = self._file.write(put, durable=True)
        if is_new:
            self._doorbell.ring([QUEUE])
        return is_new

    def inputs(self, run_ids: Sequence[str]) -> list[Input]:
        if not run_ids:
            return []
        places = ", ".join("?" * len(run_ids))

        def inputs(connection: sqlite3.Connection) -> list[Input]:
            if connection.execute("SELECT 1 FROM inputs WHERE taken_seq IS NULL LIMIT 1").fetchone() is None:
                return []  # the usual case, without a search by run
            rows = connection.execute(
                "SELECT run_id, kind, key, body, number, at FROM inputs "
                f"WHERE taken_seq IS NULL AND run_id IN ({places}) ORDER BY number",
                tuple(run_ids),
            )
            return [Input(*row) for row in rows]

        return self._file.read(inputs)

    def find(self, run_id: str) -> RunRow | None:
        self._file.check()
        return next(iter(self._rows("id = ?", [run_id])), None)

    def list(
        self, *, state: RunPhase | None = None, agent: str | None = None, thread: str | None = None,
        tenant: str | None = None, prefix: str = "", limit: int = 100,
    ) -> list[RunRow]:  # fmt: skip
        filters = {"state": state, "agent": agent, "thread": thread, "tenant": tenant}
        values: builtins.list[Any] = [value for value in filters.values() if value is not None]
        conditions = [f"{name} = ?" for name, value in filters.items() if value is not None]
        if state not in (None, "over"):
            conditions.append("state <> 'over'")  # the condition of an index, which SQLite does not infer
        if prefix:
            conditions.append("id >= ? AND id < ?")
            values += prefix, f"{prefix}\U0010ffff"
        return self._rows(f"{' AND '.join(conditions) or 'true'} ORDER BY created DESC, id LIMIT ?", [*values, limit])

    def prunable(
        self, cutoff: Cutoff, *, after: RunRow | None = None, limit: int = 1000
    ) -> tuple[Sequence[RunRow], RunRow | None]:
        return self._file.read(partial(pruning.prunable, cutoff=cutoff, after=after, limit=limit))

    def delete(self, run_ids: Sequence[str], cutoff: Cutoff) -> int:
        count, left = 0, 1
        while left:  # in small transactions: live runs write between them
            deleted, left = self._file.write(partial(pruning.delete, run_ids=run_ids, cutoff=cutoff), durable=False)
            count += deleted
        return count

    def prune(self, *, before: float, limit: int = 1000) -> int:
        cutoff = Cutoff(before)
        rows, _ = self.prunable(cutoff, limit=limit)
        return self.delete([row.id for row in rows], cutoff)

    def add(
        self, row: RunRow, events: Sequence[Row], inputs: Sequence[Input] = (), starts: Sequence[StoredStart] = ()
    ) -> bool:
        is_new = self._file.write(partial(self._add, row, events, inputs, starts), durable=True)
        self._doorbell.ring([QUEUE])
        return is_new

    def close(self) -> None:
        self._file.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _claim(self, owner: str, find: Callable[[sqlite3.Connection, float], Sequence[int]]) -> builtins.list[Claim]:
        """Claim the runs with the numbers that are found in the transaction."""
        deadline, now = time.monotonic() + self.lease, self._clock()

        def claim(connection: sqlite3.Connection) -> builtins.list[Claim]:
            if self._outages.are_over():
                sweep(connection, now)
            numbers = find(connection, now)
            rows = [connection.execute(_CLAIMED, (number,)).fetchone() for number in numbers]
            connection.executemany(_TAKE, [(owner, now + self.lease, self.lease, number) for number in numbers])
            batches = [
                Batch(id, epoch + 1, seq, [encode(Taken(epoch + 1, owner, state == "running"))])
                for _, epoch, seq, _, _, id, _, state, *_ in rows
            ]
            self._heads.add(connection, batches, [row[:5] for row in rows], now)
            return [
                Claim(id, agent, epoch + 1, seq + 1, deadline, state, lost, suspect, bool(in_tool), tenant=tenant)
                for _, epoch, seq, _, _, id, agent, state, lost, suspect, in_tool, tenant in rows
            ]

        claims = self._file.write(claim, durable=True)
        self._doorbell.ring([claimed.run_id for claimed in claims])
        return claims

    def _append(self, batches: Sequence[Batch], now: float, connection: sqlite3.Connection) -> builtins.list[bool]:
        """Add the batches of runs; for each, whether this worker owns the run."""
        run_heads = self._heads.owned(connection, batches)
        owned = [head is not None for head in run_heads]
        heads = [head for head in run_heads if head is not None]
        mine = batches
        if len(heads) < len(owned):
            mine = [batch for batch, is_owner in zip(batches, owned, strict=True) if is_owner]
        self._heads.add(connection, mine, heads, now)
        for batch, head in zip(mine, heads, strict=True):
            if batch.renew or batch.state != "running":
                self._update(connection, batch, head[0], now)
            if batch.in_tool is not None or batch.progress != "none":
                connection.execute(_MARK, (batch.in_tool, batch.progress, batch.progress, head[0]))
            if batch.inputs or batch.refused or batch.state == "waiting":
                self._take(connection, batch)
        if points.hook is not None:
            points.hook("inside_append", [name for batch in batches for name in types_of(batch.bodies)], None)
        return owned

    def _update(self, connection: sqlite3.Connection, batch: Batch, number: int, now: float) -> None:
        """Update the state of a run, and its lease."""
        lease_until = now + self.lease if batch.state == "running" else 0.0
        wake_at = 0.0 if batch.wake_in is None else now + batch.wake_in
        ended = now if batch.state == "over" else 0.0
        connection.execute(_UPDATE, (batch.state, lease_until, wake_at, ended, number))
        if batch.state != "running":
            self._heads.forget(batch.run_id)

    def _take(self, connection: sqlite3.Connection, batch: Batch) -> None:
        """Mark the inputs of a batch as taken; a run does not wait while it has others."""
        seq = batch.seq + len(batch.bodies)
        connection.executemany(  # the events have what an input contained
            "UPDATE inputs SET taken_seq = ?, body = x'' WHERE number = ?", [(seq, number) for number in batch.inputs]
        )
        connection.executemany("DELETE FROM inputs WHERE number = ?", [(number,) for number in batch.refused])
        if batch.state == "waiting":
            connection.execute(
                "UPDATE runs SET state = 'ready' WHERE id = ? "
                "AND EXISTS (SELECT 1 FROM inputs WHERE run_id = ? AND taken_seq IS NULL)",
                (batch.run_id, batch.run_id),
            )

    def _add(
        self, row: RunRow, events: Sequence[Row], inputs: Sequence[Input], starts: Sequence[StoredStart],
        connection: sqlite3.Connection,
    ) -> bool:  # fmt: skip
        """Add a whole run. Events of one time are one batch."""
        values = (row.id, row.agent, row.thread, row.tenant, row.version, row.state, row.owner, row.epoch > 0, 0.0)
        added = connection.execute(_CREATE, (*values, self.lease, row.created))
        if not added.rowcount:
            return same_run(self, row, events)
        assert added.lastrowid is not None
        head: sqlite_events.Head = added.lastrowid, row.epoch, 0, 0, row.created
        for at, group in groupby(events, key=lambda event: event[1]):
            batch = Batch(row.id, row.epoch, head[2], [body for _, _, body in group])
            [head] = sqlite_events.add(connection, [batch], [head], at)
        connection.execute("INSERT INTO heads VALUES (?, ?, ?, ?, ?)", (*head[:4], row.updated))
        ended = row.updated if row.state == "over" else 0.0
        connection.execute(_UPDATE, (row.state, 0.0, row.wake_at, ended, head[0]))
        connection.executemany(
            "INSERT INTO inputs (run_id, kind, key, body, at) VALUES (?, ?, ?, ?, ?)",
            [(row.id, input.kind, input.key, input.body, input.at) for input in inputs],
        )
        sqlite_starts.restore(connection, starts)
        return True

    def _rows(self, where: str, values: Sequence[Any], source: str = _RUNS) -> builtins.list[RunRow]:
        """The rows of the runs that satisfy a condition."""
        statement = f"SELECT {FIELDS} FROM {source} WHERE {where}"
        return self._file.read(lambda connection: [row_of(row) for row in connection.execute(statement, values)])


def _media(connection: sqlite3.Connection, hashes: Sequence[str]) -> dict[str, bytes]:
    places = ", ".join("?" * len(hashes))
    rows = connection.execute(f"SELECT hash, body FROM media WHERE hash IN ({places})", hashes)
    return dict(rows.fetchall())
