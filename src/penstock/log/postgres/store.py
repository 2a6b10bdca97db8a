"""A store in a PostgreSQL database, for many machines (psycopg 3).

Each operation is one statement, so a frozen or disconnected worker holds no lock, and times are those of the server.
Other processes are notified of new events (NOTIFY, once per append); as this is only a hint, they also poll.
"""

from __future__ import annotations

import builtins
import re
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import UsageError
from penstock.log.doorbell import Doorbell, wait_for_event
from penstock.log.forks import Shared
from penstock.log.media import put_back, take_out
from penstock.log.postgres import statements as statements
from penstock.log.postgres.columns import Blobs, Floats, Integers, Texts, append_values, media_values
from penstock.log.postgres.connections import Connections
from penstock.log.postgres.schema import prepare
from penstock.log.postgres.survey import PostgresSurvey
from penstock.log.retention.known_runs import same_run
from penstock.log.starts.postgres import STARTED, PostgresStarts, values_of
from penstock.log.starts.requests import StartRequest, StoredStart, key_taken
from penstock.log.store import (
    LEASE,
    QUEUE,
    VERSION,
    Batch,
    Claim,
    Cutoff,
    Input,
    QueuedRuns,
    Row,
    RunPhase,
    RunRow,
    StoreError,
    Watcher,
    row_of,
    run_exists,
    unknown_run,
)
from penstock.log.suspects import LostLease, Outages, retry_group, suspects_of
from penstock.run.events import Taken, encode

if TYPE_CHECKING:
    import psycopg

    from penstock.log.retention.keep import Keep


POLL = 0.5
"""The seconds between two checks for events of other processes, in addition to the notifications."""

_NAME = re.compile("[a-z_][a-z0-9_]{0,47}")  # with a prefix, it is the name of the channel too
_Rows = list[tuple[Any, ...]]
_ADDED = (
    "id", "agent", "thread", "tenant", "version", "state", "epoch", "owner", "seq", "created", "updated", "wake_at",
)  # fmt: skip


class PostgresStore:
    """Logs in a PostgreSQL database. `clock` replaces that of the server in tests.

    If it `is_flushed`, every append waits until the disk has it.
    """

    def __init__(
        self, url: str, *, schema: str = "penstock", lease: float = LEASE, clock: Callable[[], float] | None = None,
        is_flushed: bool = False,
    ) -> None:  # fmt: skip
        if not _NAME.fullmatch(schema):
            raise UsageError(f"{schema!r} cannot be the schema of a log: use a-z, 0-9 and _, at most 48 characters")
        self.lease = lease
        self.poll = POLL
        self.flusher: object = None
        self.keep: Keep | None = None
        self._clock = clock
        self._is_flushed = is_flushed
        self._schema = schema
        self._channel = f"penstock_{schema}"
        self._connections = Connections(url)
        self._outages = Outages(lease)
        self._doorbell = Doorbell()
        self._listener = Listener(self._connections, self._channel, self._doorbell)
        self.starts = PostgresStarts(self._execute)
        self.survey = PostgresSurvey(self._execute, schema)
        try:
            prepare(self._connections, schema)
        except BaseException:
            self.close()
            raise

    # -- the operations of a store -----------------------------------------------------------------------------------

    def create(self, row: RunRow, start: bytes, *, owner: str = "", request: StartRequest | None = None) -> bool:
        start, media = take_out(start)
        values = {name: getattr(row, name) for name in ("id", "agent", "thread", "tenant", "version", "state")}
        statement, bodies = statements.CREATE, [start]
        if owner:
            statement, bodies = statements.CREATE_CLAIMED, [start, encode(Taken(1, owner))]
        values |= values_of(request) if request is not None else {}
        statement = statements.with_start(statement, STARTED if request is not None else "")
        if self._execute(statement, owner=owner, bodies=bodies, **values, **media_values({row.id: media})):
            if row.state == "ready" and not owner:
                self._doorbell.ring([QUEUE])
            return True
        if request is not None and self.starts.is_taken(request, row.id):
            raise key_taken(request.key)
        first = self._execute(statements.FIRST, id=row.id)
        if not first or first[0][0] != start:
            if request is not None:
                self.starts.remove(request.id)  # another process has added the run at the same moment
            raise run_exists(row.id)
        if request is not None:
            self.starts.add(request, row.id)
        return False

    def claim(self, owner: str, *, run_id: str | None = None, agents: Sequence[str] | None = None) -> Claim | None:
        if run_id is None:
            return next(iter(self.claim_next(owner, agents=agents, group="")), None)
        return next(iter(self._claim(statements.CLAIM_ONE, owner, agents, run_id=run_id)), None)

    def claim_next(
        self, owner: str, *, agents: Sequence[str] | None = None, limit: int = 1, group: str | None = None
    ) -> list[Claim]:
        return self._claim(statements.CLAIM, owner, agents, limit=limit, group=group)

    def suspects(self, *, agents: Sequence[str] | None = None, limit: int = 1000) -> list[RunRow]:
        return [row_of(row) for row in self._execute(statements.SUSPECTS, limit=limit, **_known(agents))]

    def acquit(self, owned: Sequence[tuple[str, int]]) -> None:
        ids, epochs = Texts([run_id for run_id, _ in owned]), Integers([epoch for _, epoch in owned])
        self._execute(statements.ACQUIT, run_ids=ids, epochs=epochs)

    def retry(self, run_id: str) -> bool:
        [(parked, runs, _)] = self._execute(statements.RETRY, run_id=run_id, group=retry_group(run_id))
        if not runs:
            raise unknown_run(run_id)
        if parked:
            self._doorbell.ring([QUEUE])
        return bool(parked)

    def claimable(
        self, *, agents: Sequence[str] | None = None, after: RunRow | None = None, limit: int = 1000
    ) -> Sequence[RunRow]:
        created, id = (after.created, after.id) if after else (float("-inf"), "")
        rows = self._execute(statements.CLAIMABLE, created=created, id=id, limit=limit, **_known(agents))
        return [row_of(row) for row in rows]

    def queued(self) -> dict[str, QueuedRuns]:
        return {agent: QueuedRuns(count, oldest) for agent, count, oldest in self._execute(statements.QUEUED)}

    def append(self, batches: Sequence[Batch], *, durable: bool) -> list[bool]:
        statement = statements.APPEND_DURABLE if durable or self._is_flushed else statements.APPEND_FAST
        times = {row[0]: row[1] for row in self._execute(statement, **append_values(batches))}
        placed = [*enumerate(batches, 1)]
        self._doorbell.ring_with((batch, times[place]) for place, batch in placed if place in times)
        return [place in times for place, _ in placed]

    def renew(self, owned: Sequence[tuple[str, int]]) -> list[bool]:
        run_ids, epochs = [run_id for run_id, _ in owned], [epoch for _, epoch in owned]
        places = {row[0] for row in self._execute(statements.RENEW, run_ids=run_ids, epochs=epochs)}
        return [place in places for place in range(1, len(owned) + 1)]

    def read(self, run_id: str, after: int = 0, limit: int = 1000) -> list[tuple[int, float, bytes]]:
        rows = self._execute(statements.READ, run_id=run_id, after=after, limit=limit)
        events = [(seq, at, body) for seq, at, body in rows]
        return put_back(run_id, events, lambda hashes: dict(self._execute(statements.MEDIA, hashes=[*hashes])))

    def wait(self, run_id: str, after: int, seconds: float) -> None:
        wait_for_event(self, run_id, after, seconds)

    @contextmanager
    def watch(self, run_id: str, callback: Watcher) -> Generator[None]:
        with self._doorbell.watch(run_id, callback):
            if not self._connections.is_pooled:  # a pooler in transaction mode passes no notifications on
                self._listener.start()
            yield

    def put(self, input: Input) -> bool:
        [(added, runs, _)] = self._execute(
            statements.PUT, run_id=input.run_id, kind=input.kind, key=input.key, body=input.body
        )
        if not runs:
            raise unknown_run(input.run_id)
        if added:
            self._doorbell.ring([QUEUE])
        return bool(added)

    def inputs(self, run_ids: Sequence[str]) -> list[Input]:
        return [Input(*row) for row in self._execute(statements.INPUTS, run_ids=[*run_ids])] if run_ids else []

    def find(self, run_id: str) -> RunRow | None:
        return next(map(row_of, self._execute(statements.FIND, id=run_id)), None)

    def list(
        self, *, state: RunPhase | None = None, agent: str | None = None, thread: str | None = None,
        tenant: str | None = None, prefix: str = "", limit: int = 100,
    ) -> list[RunRow]:  # fmt: skip
        filters = {"state": state, "agent": agent, "thread": thread, "tenant": tenant}
        conditions = [f"{name} = %({name})s" for name, value in filters.items() if value is not None]
        if state not in (None, "over"):
            conditions.append("state <> 'over'")  # the condition of an index, which the value of a parameter hides
        statement = statements.LIST_PREFIX if prefix else statements.LIST
        statement = statement.replace("{conditions}", " AND ".join(conditions) or "true")
        rows = self._execute(
            statement, state=state, agent=agent, thread=thread, tenant=tenant, prefix=prefix, limit=limit
        )
        return [row_of(row) for row in rows]

    def prunable(
        self, cutoff: Cutoff, *, after: RunRow | None = None, limit: int = 1000
    ) -> tuple[Sequence[RunRow], RunRow | None]:
        ended, id = (after.updated, after.id) if after else (float("-inf"), "")
        page = self._execute(
            statements.PRUNABLE, self._connections.maintain, latest=cutoff.latest, ended=ended, id=id, limit=limit,
            **_cutoff_values(cutoff),
        )  # fmt: skip
        rows = [row_of(row) for *row, _ in page]
        old = [row for row, (*_, may_go) in zip(rows, page, strict=True) if may_go]
        return old, rows[-1] if len(rows) == limit else None

    def delete(self, run_ids: Sequence[str], cutoff: Cutoff) -> int:
        if not run_ids:
            return 0
        [(count,)] = self._execute(
            statements.DELETE, self._connections.maintain, ids=[*run_ids], **_cutoff_values(cutoff)
        )
        self._execute(statements.PRUNE_MEDIA, self._connections.maintain)
        return int(count)

    def prune(self, *, before: float, limit: int = 1000) -> int:
        cutoff = Cutoff(before)
        rows, _ = self.prunable(cutoff, limit=limit)
        return self.delete([row.id for row in rows], cutoff)

    def add(
        self, row: RunRow, events: Sequence[Row], inputs: Sequence[Input] = (), starts: Sequence[StoredStart] = ()
    ) -> bool:
        taken_out = [take_out(body) for _, _, body in events]
        media = {digest: body for _, of_event in taken_out for digest, body in of_event.items()}
        added = self._execute(
            statements.ADD,
            self._connections.maintain,
            **{name: getattr(row, name) for name in _ADDED},
            times=Floats([at for _, at, _ in events]),
            bodies=Blobs([body for body, _ in taken_out]),
            kinds=Texts([input.kind for input in inputs]),
            keys=Texts([input.key for input in inputs]),
            input_bodies=Blobs([input.body for input in inputs]),
            input_times=Floats([input.at for input in inputs]),
            **media_values({row.id: media}),
            starts=msgspec.json.encode(starts).decode(),
        )
        for start in () if added else starts:
            if self.starts.is_taken(start, row.id):
                raise key_taken(start.key)
        return bool(added) or same_run(self, row, events)

    def close(self) -> None:
        self._listener.close()
        self._connections.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _claim(
        self, statement: str, owner: str, agents: Sequence[str] | None, group: str | None = None, **values: Any
    ) -> builtins.list[Claim]:
        deadline = time.monotonic() + self.lease
        self._sweep()
        if group == "":
            [(group,)] = self._execute(statements.FIRST_GROUP, **_known(agents))
        if group is not None:
            statement, values = statements.CLAIM_GROUP, {**values, "group": group}
        head, tail = encode(Taken(0, owner)).decode().split("0", 1)
        _, lost_tail = encode(Taken(0, owner, is_lost=True)).decode().split("0", 1)
        taken: dict[str, Any] = {"owner": owner, "head": head, "tail": tail, "lost_tail": lost_tail}
        rows = self._execute(statement, **taken, **_known(agents), **values)
        self._doorbell.ring([row[0] for row in rows])
        return [
            Claim(id, agent, epoch, seq, deadline, state, lost, suspect, in_tool, tenant=tenant)
            for id, agent, epoch, seq, state, lost, suspect, in_tool, tenant, _ in rows
        ]

    def _sweep(self) -> None:
        """Make suspects of the runs whose workers have died."""
        leases = [LostLease(*row) for row in self._execute(statements.EXPIRED)]
        if not self._outages.are_over() or not leases:
            return
        living = self._execute(statements.LIVING, owners=[*{lease.owner for lease in leases}])
        found = suspects_of(leases, {owner for (owner,) in living})
        self._execute(
            statements.SUSPECT,
            run_ids=Texts([one.run_id for one in found]),
            epochs=Integers([one.epoch for one in found]),
            losts=Integers([one.lost for one in found]),
            groups=Texts([one.group for one in found]),
        )  # fmt: skip

    def _execute(self, statement: str, execute: Callable[..., _Rows] | None = None, **values: Any) -> _Rows:
        now = self._clock() if self._clock else None
        settings = {"now": now, "lease": self.lease, "channel": self._channel}
        statement = statement.replace("{schema}", self._schema)
        began = time.monotonic()
        try:
            rows = (execute or self._connections.execute)(statement, {**settings, **values})
        except StoreError as error:
            if error.is_temporary:
                self._outages.note()
            raise
        if execute is None and time.monotonic() - began > self._outages.slow:
            self._outages.note()
        return rows


def _cutoff_values(cutoff: Cutoff) -> dict[str, Any]:
    return {"before": cutoff.before, "tenants": msgspec.json.encode(cutoff.tenants).decode()}


def _known(agents: Sequence[str] | None) -> dict[str, Any]:
    """The values of the condition for runs that this version can continue, of these agents."""
    return {"version": VERSION, "agents": None if agents is None else [*agents]}


EVERY_RUN = "*"
"""The payload of a notification about more runs than fit into one."""

_IDLE = 1.0
"""How many seconds the thread waits for a notification before it checks whether anybody still waits for events."""


class Listener(Shared):
    """Rings a doorbell for events of other processes."""

    def __init__(self, connections: Connections, channel: str, doorbell: Doorbell) -> None:
        self._connections = connections
        self._channel = channel
        self._doorbell = doorbell
        self._thread: threading.Thread | None = None
        self._is_closed = False
        super().__init__()

    def start(self) -> None:
        """Listen while there are waiting readers."""
        with self.lock:
            if self._is_closed or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._run, name="penstock-listen", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._is_closed = True

    def _run(self) -> None:
        while self._is_wanted():
            try:
                connection = self._connections.connect()
            except StoreError:
                time.sleep(_IDLE)  # meanwhile, who waits polls
                continue
            try:
                with self._connections.failing():
                    self._listen(connection)
            except StoreError:
                pass
            finally:
                connection.close()

    def _is_wanted(self) -> bool:
        with self.lock:
            if self._thread is not threading.current_thread():
                return False
            if self._is_closed or not self._doorbell.is_watched:
                self._thread = None
                return False
            return True

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"LISTEN {self._channel}".encode())
        self._doorbell.ring_all()  # for what came before
        while self._is_wanted():
            for notification in connection.notifies(timeout=_IDLE):
                if self._connections.is_own(notification.pid):
                    continue  # the store has rung already, and has said what came
                if notification.payload == EVERY_RUN:
                    self._doorbell.ring_all()
                else:
                    self._doorbell.ring(notification.payload.split("\n"))
                if self._is_closed:
                    return
