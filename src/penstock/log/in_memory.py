"""A store in the memory of one process, for tests and for runs that need not outlive it. It is capped."""

from __future__ import annotations

import builtins
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from penstock.log.doorbell import Doorbell, wait_for_event
from penstock.log.forks import Shared
from penstock.log.media import Rows, put_back, take_out
from penstock.log.retention.known_runs import is_old, same_run
from penstock.log.retention.survey import MemorySurvey
from penstock.log.starts.in_memory import MemoryStarts
from penstock.log.starts.requests import StartRequest, StoredStart
from penstock.log.store import (
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
    StoreError,
    Watcher,
    run_exists,
    unknown_run,
)
from penstock.log.suspects import is_claimable, is_joinable, is_open, living, next_rows, retry_group, swept
from penstock.run.events import Taken, encode

if TYPE_CHECKING:
    from penstock.log.retention.keep import Keep

MAX_BYTES = 64 * 1024 * 1024
"""How many bytes of events and media a store in memory holds, unless it is opened with another number."""


class _Run(Struct):
    row: RunRow
    events: Rows
    media: set[str]
    inputs: dict[tuple[str, str], Input]  # by kind and key
    open_inputs: set[int]
    size: int = 0
    in_tool: bool = False


class MemoryStore(Shared):
    """Logs in memory.

    When it is full, finished runs are deleted, the oldest first. A child process that inherits it begins without runs:
    it would otherwise take over those of its parent.
    """

    def __init__(
        self, *, max_bytes: int = MAX_BYTES, lease: float = LEASE, clock: Callable[[], float] = time.time
    ) -> None:
        self.lease = lease
        self.poll = 5.0
        self.flusher: object = None
        self.keep: Keep | None = None
        self._doorbell = Doorbell()
        self._max_bytes = max_bytes
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._over: dict[str, None] = {}  # ids of finished runs, in the order of their ends
        self._media: dict[str, bytes] = {}
        self._media_runs: Counter[str] = Counter()  # how many runs have each of the media
        self._size = 0
        self._inputs = 0
        self._is_closed = False
        self.starts = MemoryStarts(self._open, clock)
        self.survey = MemorySurvey(self._open, self._runs, clock, lease, lambda: self._size)
        super().__init__()

    # -- the operations of a store -----------------------------------------------------------------------------------

    def create(self, row: RunRow, start: bytes, *, owner: str = "", request: StartRequest | None = None) -> bool:
        now = self._clock()
        with self._open():
            if request is not None:
                self.starts.check(row.id, request)
            known = self._runs.get(row.id)
            if known is not None and known.events[0][2] != take_out(start)[0]:
                raise run_exists(row.id)
            if request is not None:
                self.starts.insert(request, row.id, 0)
            if known is not None:
                return False
            self._make_room([start])
            row = replace(row, epoch=0, owner="", lease_until=0.0, seq=0, created=now, updated=now)
            run = self._runs[row.id] = _Run(row, [], set(), {}, set())
            self._add(run, [start], now)
            if owner:
                self._take(run, owner, now)
        if row.state == "ready" and not owner:
            self._doorbell.ring([QUEUE])
        return True

    def claim(self, owner: str, *, run_id: str | None = None, agents: Sequence[str] | None = None) -> Claim | None:
        return next(iter(self._claim(owner, 1, agents, run_id, group="")), None)

    def claim_next(
        self, owner: str, *, agents: Sequence[str] | None = None, limit: int = 1, group: str | None = None
    ) -> list[Claim]:
        return self._claim(owner, limit, agents, group=group)

    def suspects(self, *, agents: Sequence[str] | None = None, limit: int = 1000) -> list[RunRow]:
        now = self._clock()
        with self._open():
            rows = [run.row for run in self._runs.values() if not is_joinable(run.row.suspect)]
        rows = [row for row in rows if is_claimable(row, now, agents)]
        return sorted(rows, key=lambda row: (row.suspect, row.created, row.id))[:limit]

    def acquit(self, owned: Sequence[tuple[str, int]]) -> None:
        with self._open():
            for run in self._runs.values():
                if run.row.state == "running" and (run.row.id, run.row.epoch) in owned:
                    run.row = replace(run.row, suspect="")

    def retry(self, run_id: str) -> bool:
        with self._open():
            if (run := self._runs.get(run_id)) is None:
                raise unknown_run(run_id)
            if run.row.state != "parked":
                return False
            run.row = replace(run.row, state="ready", suspect=retry_group(run_id))
        self._doorbell.ring([QUEUE])
        return True

    def claimable(
        self, *, agents: Sequence[str] | None = None, after: RunRow | None = None, limit: int = 1000
    ) -> Sequence[RunRow]:
        now = self._clock()
        with self._open():
            rows = [run.row for run in self._runs.values() if is_open(run.row, now, self.lease, agents)]
        if after is not None:
            rows = [row for row in rows if (row.created, row.id) > (after.created, after.id)]
        return sorted(rows, key=lambda row: (row.created, row.id))[:limit]

    def queued(self) -> dict[str, QueuedRuns]:
        created: dict[str, builtins.list[float]] = {}
        with self._open():
            for run in self._runs.values():
                if run.row.state == "ready":
                    created.setdefault(run.row.agent, []).append(run.row.created)
        return {agent: QueuedRuns(len(times), min(times)) for agent, times in created.items()}

    def append(self, batches: Sequence[Batch], *, durable: bool) -> list[bool]:
        now = self._clock()
        with self._open():
            self._make_room([body for batch in batches for body in batch.bodies])
            owned = [self._append(batch, now) for batch in batches]
        mine = [batch for batch, is_owner in zip(batches, owned, strict=True) if is_owner]
        self._doorbell.ring_with((batch, now) for batch in mine)
        return owned

    def renew(self, owned: Sequence[tuple[str, int]]) -> list[bool]:
        now = self._clock()
        with self._open():
            renewed = []
            for run_id, epoch in owned:
                run = self._runs.get(run_id)
                is_owner = run is not None and run.row.epoch == epoch and run.row.state == "running"
                if run is not None and is_owner:
                    run.row = replace(living(run.row), lease_until=now + self.lease)
                renewed.append(is_owner)
            return renewed

    def read(self, run_id: str, after: int = 0, limit: int = 1000) -> list[tuple[int, float, bytes]]:
        with self._open():
            run = self._runs.get(run_id)
            rows = run.events[after : after + limit] if run else []
            return put_back(
                run_id, rows, lambda hashes: {digest: self._media[digest] for digest in self._media.keys() & hashes}
            )

    def wait(self, run_id: str, after: int, seconds: float) -> None:
        wait_for_event(self, run_id, after, seconds)

    def watch(self, run_id: str, callback: Watcher) -> AbstractContextManager[None]:
        return self._doorbell.watch(run_id, callback)

    def put(self, input: Input) -> bool:
        with self._open():
            run = self._runs.get(input.run_id)
            if run is None:
                raise unknown_run(input.run_id)
            if run.row.state == "over" or (input.kind, input.key) in run.inputs:
                return False
            self._make_room([input.body])
            self._put(run, input, self._clock())
            if run.row.state == "waiting" or (run.row.state in ("damaged", "parked") and input.kind == "cancel"):
                run.row = replace(run.row, state="ready")
        self._doorbell.ring([QUEUE])
        return True

    def inputs(self, run_ids: Sequence[str]) -> list[Input]:
        with self._open():
            runs = [self._runs[run_id] for run_id in run_ids if run_id in self._runs]
            inputs = [input for run in runs for input in run.inputs.values() if input.number in run.open_inputs]
            return sorted(inputs, key=lambda input: input.number)

    def find(self, run_id: str) -> RunRow | None:
        with self._open():
            run = self._runs.get(run_id)
            return run.row if run else None

    def list(
        self, *, state: RunPhase | None = None, agent: str | None = None, thread: str | None = None,
        tenant: str | None = None, prefix: str = "", limit: int = 100,
    ) -> list[RunRow]:  # fmt: skip
        values = {"state": state, "agent": agent, "thread": thread, "tenant": tenant}
        values = {name: value for name, value in values.items() if value is not None}
        with self._open():
            rows = [run.row for run in self._runs.values() if run.row.id.startswith(prefix)]
        rows = [row for row in rows if all(getattr(row, name) == value for name, value in values.items())]
        return sorted(rows, key=lambda row: (-row.created, row.id))[:limit]

    def prunable(
        self, cutoff: Cutoff, *, after: RunRow | None = None, limit: int = 1000
    ) -> tuple[Sequence[RunRow], RunRow | None]:
        with self._open():
            ended = [run.row for run in self._runs.values() if run.row.state == "over"]
            ended = sorted([row for row in ended if row.updated < cutoff.latest], key=lambda row: (row.updated, row.id))
            if after is not None:
                ended = [row for row in ended if (row.updated, row.id) > (after.updated, after.id)]
            page = ended[:limit]
            return self._old(page, cutoff), page[-1] if len(page) == limit else None

    def delete(self, run_ids: Sequence[str], cutoff: Cutoff) -> int:
        with self._open():
            rows = [self._runs[run_id].row for run_id in dict.fromkeys(run_ids) if run_id in self._runs]
            old = self._old([row for row in rows if row.state == "over"], cutoff)
            for row in old:
                self._delete(self._runs[row.id])
            return len(old)

    def prune(self, *, before: float, limit: int = 1000) -> int:
        cutoff = Cutoff(before)
        rows, _ = self.prunable(cutoff, limit=limit)
        return self.delete([row.id for row in rows], cutoff)

    def add(
        self, row: RunRow, events: Sequence[Row], inputs: Sequence[Input] = (), starts: Sequence[StoredStart] = ()
    ) -> bool:
        with self._open():
            if row.id in self._runs:
                return same_run(self, row, events)
            self.starts.check(row.id, *starts)
            self._make_room([*(body for _, _, body in events), *(input.body for input in inputs)])
            run = self._runs[row.id] = _Run(replace(row, lease_until=0.0), [], set(), {}, set())
            for _, at, body in events:
                self._add(run, [body], at)
            run.row = replace(run.row, updated=row.updated)
            for input in inputs:
                self._put(run, input, input.at)
            self.starts.restore(*starts)
        self._doorbell.ring([QUEUE])
        return True

    def close(self) -> None:
        with self.lock:
            self._is_closed = True
            self._clear()

    # -- inside ------------------------------------------------------------------------------------------------------

    def in_child(self) -> None:
        super().in_child()
        self._clear()

    def _clear(self) -> None:
        self._runs.clear()
        self._over.clear()
        self._media.clear()
        self._media_runs.clear()
        self.starts.clear()
        self._size = 0

    @contextmanager
    def _open(self) -> Generator[None]:
        with self.lock:
            if self._is_closed:
                raise StoreError("the log in memory was closed")
            yield

    def _claim(
        self, owner: str, limit: int, agents: Sequence[str] | None = None, run_id: str | None = None,
        group: str | None = None,
    ) -> builtins.list[Claim]:  # fmt: skip
        deadline, now = time.monotonic() + self.lease, self._clock()
        claims: builtins.list[Claim] = []
        with self._open():
            self._sweep(now)
            free = [run for run in self._runs.values() if is_claimable(run.row, now, agents, run_id)]
            if run_id is None:
                free = [self._runs[row.id] for row in next_rows([run.row for run in free], group)]
            for run in sorted(free, key=lambda run: (run.row.epoch == 0, run.row.created))[:limit]:
                state, row = run.row.state, self._take(run, owner, now)
                found = state, row.lost, row.suspect, run.in_tool
                claims.append(Claim(row.id, row.agent, row.epoch, row.seq, deadline, *found, tenant=row.tenant))
        self._doorbell.ring([claim.run_id for claim in claims])
        return claims

    def _sweep(self, now: float) -> None:
        """Make suspects of the runs whose workers have died."""
        for row in swept([(run.row, run.in_tool) for run in self._runs.values()], now, self.lease):
            self._runs[row.id].row = row

    def _take(self, run: _Run, owner: str, now: float) -> RunRow:
        """Let a worker own the run."""
        epoch, until, is_lost = run.row.epoch + 1, now + self.lease, run.row.state == "running"
        run.row = replace(run.row, state="running", epoch=epoch, owner=owner, lease_until=until, wake_at=0.0)
        self._add(run, [encode(Taken(epoch, owner, is_lost))], now)
        return run.row

    def _append(self, batch: Batch, now: float) -> bool:
        run = self._runs.get(batch.run_id)
        if run is None or (run.row.epoch, run.row.seq) != (batch.epoch, batch.seq):
            return False
        for key, input in list(run.inputs.items()):
            if input.number not in run.open_inputs or input.number not in (*batch.inputs, *batch.refused):
                continue
            run.open_inputs.discard(input.number)
            self._grow(run, -len(input.body))
            if input.number in batch.refused:
                del run.inputs[key]
            else:
                run.inputs[key] = replace(input, body=b"")  # the events have what it contained
        state: RunPhase = "ready" if batch.state == "waiting" and run.open_inputs else batch.state
        lease = now + self.lease if batch.state == "running" else 0.0
        wake_at = 0.0 if batch.wake_in is None else now + batch.wake_in
        run.row = replace(living(run.row, batch.progress), state=state, lease_until=lease, wake_at=wake_at)
        run.in_tool = run.in_tool if batch.in_tool is None else batch.in_tool
        self._add(run, batch.bodies, now)
        return True

    def _put(self, run: _Run, input: Input, now: float) -> None:
        self._inputs += 1
        run.inputs[input.kind, input.key] = replace(input, number=self._inputs, at=now)
        run.open_inputs.add(self._inputs)
        self._grow(run, len(input.body))

    def _old(self, rows: Sequence[RunRow], cutoff: Cutoff) -> builtins.list[RunRow]:
        """Those of these finished runs that may be deleted, as the conversation of each."""
        live = {(row.tenant, row.thread) for run in self._runs.values() for row in [run.row] if not is_old(row, cutoff)}
        return [row for row in rows if is_old(row, cutoff) and (not row.thread or (row.tenant, row.thread) not in live)]

    def _add(self, run: _Run, bodies: Sequence[bytes], now: float) -> None:
        for body in bodies:
            body, media = take_out(body)
            run.events.append((len(run.events) + 1, now, body))
            self._grow(run, len(body))
            for digest in media.keys() - self._media.keys():
                self._media[digest] = media[digest]
                self._size += len(media[digest])
            self._media_runs.update(media.keys() - run.media)
            run.media.update(media)
        run.row = replace(run.row, seq=len(run.events), updated=now)
        if run.row.state == "over":
            self._over[run.row.id] = None

    def _grow(self, run: _Run, size: int) -> None:
        run.size += size
        self._size += size

    def _make_room(self, bodies: Sequence[bytes]) -> None:
        """Delete finished runs, the oldest first, until the bodies fit; a `StoreError` if they cannot."""
        size = sum(map(len, bodies))
        while self._size + size > self._max_bytes:
            oldest = next(iter(self._over), None)
            if oldest is None:
                raise StoreError(
                    f"the log in memory is full: it holds at most {self._max_bytes} bytes of runs that are not over; "
                    "raise max_bytes, or keep the runs in a file (penstock.log.open)"
                )
            self._delete(self._runs[oldest])

    def _delete(self, run: _Run) -> None:
        del self._runs[run.row.id], self._over[run.row.id]
        self.starts.delete(run.row.id)
        self._size -= run.size
        self._media_runs.subtract(run.media)
        for digest in run.media:
            if not self._media_runs[digest]:
                del self._media_runs[digest]
                self._size -= len(self._media.pop(digest))
