"""A survey of a log: how many runs are in each state, which processes drive them, and how large the log is.

Its searches use indexes on unfinished runs, so that they cost the same however many finished runs there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from penstock.log.store import Input, RunRow
from penstock.log.suspects import has_ended

BEAT_SECONDS = 10.0
"""The seconds between two signs of life of a process that drives runs."""

ALIVE_SECONDS = 3 * BEAT_SECONDS
"""How long after its last sign of life a process counts as alive."""

KEPT_SECONDS = 3600.0
"""How long after its last sign of life a process is listed."""

MAX_CONTINUED = 1000
"""Of how many runs that had an owner before it is looked up since when they are ready; the oldest come first."""


class RunCounts(Struct, frozen=True, kw_only=True):
    """How many unfinished runs a log has.

    `runs` are counted by state, `ready` those without an owner by agent. `oldest_ready` is for how many seconds the
    first of them could have been claimed. `expired` runs have lost their owner. `workers` are alive.
    """

    runs: Mapping[str, int] = {}
    ready: Mapping[str, int] = {}
    oldest_ready: float = 0.0
    expired: int = 0
    workers: int = 0


class WorkerRow(Struct, frozen=True, kw_only=True):
    """A process that drives runs: a `worker`, a server (`serve`), or any other (`process`), which owns runs.

    `started` and `seen`, the time of its last sign of life, are in seconds since 1970; 0 if they are unknown. `runs` is
    how many it owns.
    """

    owner: str
    kind: str = "process"
    agents: Sequence[str] = ()
    started: float = 0.0
    seen: float = 0.0
    runs: int = 0
    is_alive: bool = False


class Survey(Protocol):
    """What can be asked about all runs of a store."""

    def counts(self) -> RunCounts:
        """How many unfinished runs there are."""
        ...

    def workers(self) -> list[WorkerRow]:
        """The processes that drive runs, and those that have stopped without saying so within the last hour."""
        ...

    def beat(self, worker: WorkerRow) -> None:
        """Note that a process is alive; the store has the time."""
        ...

    def leave(self, owner: str) -> None:
        """Forget a process that has stopped."""
        ...

    def size(self) -> int:
        """How many bytes the log occupies."""
        ...


def is_alive(seen: float, now: float) -> bool:
    """Whether a process with this last sign of life is alive; one of the future was given by another clock."""
    return abs(now - seen) <= ALIVE_SECONDS


def age(since: float, now: float) -> float:
    """How many seconds ago a time was; 0 if a clock was set back since."""
    return max(0.0, now - since)


class Owned(Struct, frozen=True):
    """How many runs a process owns, and whether a lease of one lasts."""

    runs: int
    is_leased: bool


def join_workers(known: Iterable[WorkerRow], owned: Mapping[str, Owned], now: float) -> list[WorkerRow]:
    """The processes that have said that they are alive, and others that own runs; those that are alive first."""
    workers = {
        worker.owner: replace(worker, is_alive=is_alive(worker.seen, now))
        for worker in known
        if age(worker.seen, now) <= KEPT_SECONDS
    }
    for owner, runs in owned.items():
        worker = workers.get(owner) or WorkerRow(owner=owner)
        workers[owner] = replace(worker, runs=runs.runs, is_alive=worker.is_alive or runs.is_leased)
    return sorted(workers.values(), key=lambda worker: (not worker.is_alive, worker.owner))


class SurveyedRun(Protocol):
    """A run in memory: its row, and its inputs."""

    row: RunRow
    inputs: dict[tuple[str, str], Input]


class MemorySurvey:
    """The survey of a store in memory, which belongs to one process. `lock` is held while its `runs` are read."""

    def __init__(
        self,
        lock: Callable[[], AbstractContextManager[None]],
        runs: Mapping[str, SurveyedRun],
        clock: Callable[[], float],
        lease: float,
        size: Callable[[], int],
    ) -> None:
        self._lock = lock
        self._runs = runs
        self._clock = clock
        self._lease = lease
        self._size = size
        self._workers: dict[str, WorkerRow] = {}

    def _read(self) -> list[tuple[RunRow, float]]:
        """The rows of all runs, each with the time of its last input, or 0."""
        with self._lock():
            return [(run.row, max((one.at for one in run.inputs.values()), default=0.0)) for run in self._runs.values()]

    def counts(self) -> RunCounts:
        now, rows = self._clock(), self._read()
        open_rows = [row for row, _ in rows if row.state != "over"]
        since = [
            max(row.updated, put) if row.epoch else row.created for row, put in rows if row.state == "ready"
        ] + [row.wake_at for row in open_rows if row.state == "waiting" and 0 < row.wake_at <= now]  # fmt: skip
        return RunCounts(
            runs=Counter(row.state for row in open_rows),
            ready=Counter(row.agent for row in open_rows if row.state == "ready"),
            oldest_ready=age(min(since, default=now), now),
            expired=sum(self._is_expired(row, now) for row in open_rows),
            workers=sum(is_alive(worker.seen, now) for worker in [*self._workers.values()]),
        )

    def workers(self) -> list[WorkerRow]:
        now = self._clock()
        running = [row for row, _ in self._read() if row.state == "running"]
        counts = Counter(row.owner for row in running)
        leased = {row.owner for row in running if not self._is_expired(row, now)}
        owned = {owner: Owned(count, owner in leased) for owner, count in counts.items()}
        return join_workers([*self._workers.values()], owned, now)

    def beat(self, worker: WorkerRow) -> None:
        now = self._clock()
        known = self._workers.get(worker.owner)
        self._workers[worker.owner] = replace(worker, seen=now, started=known.started if known else now)

    def leave(self, owner: str) -> None:
        self._workers.pop(owner, None)

    def size(self) -> int:
        return self._size()

    def _is_expired(self, row: RunRow, now: float) -> bool:
        return row.state == "running" and (not row.lease_until or has_ended(row, now, self._lease))
