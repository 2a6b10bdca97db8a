"""One round: some runs, two processes that compete for them, a reader that reconnects, and hits on the processes.

A hit kills a process or freezes it: at a named point, right after a tool has started, or at any time. A frozen process
continues when others have taken over its runs. Or it kills, restarts or restores the database, and all processes go on.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from penstock import Runs
from penstock.log import RunRow, Store
from penstock.log.store_retries import with_retries
from tests.chaos.agents import make_agent
from tests.chaos.database import Database
from tests.chaos.ledger import Ledger, Note
from tests.chaos.processes import Plan, Setup, drive_inline, read_logs, work

How = Literal["kill", "stop", "crash", "restart", "restore"]
"""What is done to the processes, or to the database."""
Mode = Literal["work", "inline"]

RUNS = 4
"""How many runs a round has."""

WORKERS = 2
"""How many processes compete for them."""

SECONDS = 120.0
"""How long a round may take, on a machine that is busy with other things."""


class Hit(Struct, frozen=True):
    """A process that was killed or frozen, when, and by which point; none if it was hit from outside."""

    pid: int
    at: float
    point: str = ""


class Played(Struct):
    """What happened in a round."""

    setup: Setup
    run_ids: list[str]
    hits: list[Hit] = []
    notes: list[Note] = []
    planned: list[str] = []  # the points at which processes were to be hit
    frozen_inside_a_write: int = 0
    parked: int = 0  # runs that were set aside, and continued by hand
    may_lose_events: bool = False  # a database that crashed has lost what was not durable
    may_repeat_effects: bool = False  # a database that was restored has lost what was durable, too
    problems: list[str] = []


class _Worker:
    """A process that drives runs."""

    def __init__(self, process: Any, point: str) -> None:
        self.process = process
        self.pid: int = process.pid
        self.point = point
        self.is_frozen = False
        self.frozen_at = 0.0
        self.owned: list[RunRow] = []  # when it was frozen


class Round:
    """Plays a round with some hits from outside, and one of the points for each process that is started."""

    def __init__(
        self, setup: Setup, *, how: How, mode: Mode = "work", hits: int = 3, points: deque[str] | None = None,
        seed: int, database: Database | None = None,
    ) -> None:  # fmt: skip
        self._database = database
        self._setup = setup
        self._how: How = how
        self._mode: Mode = mode
        self._hits_left = hits
        self._points = points if points is not None else deque[str]()
        self._chance = random.Random(seed)
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["tests.chaos.processes"])
        self._ledger = Ledger(setup.ledger)
        self._workers: list[_Worker] = []
        self._next_hit = 0.0
        self._is_aimed = False
        self._store: Store = setup.open()
        run_ids = [f"run-{uuid.uuid4().hex[:12]}" for _ in range(RUNS)]
        self._is_saved = False
        self._played = Played(
            setup, run_ids, may_lose_events=how in ("crash", "restore"), may_repeat_effects=how == "restore"
        )

    def play(self) -> Played:
        """Play until all runs are over."""
        runs = Runs(self._store, {"agent": make_agent(self._ledger)})
        for run_id in self._played.run_ids:
            runs.start("agent", run_id, run_id=run_id)
        reader = self._start(read_logs, self._setup, self._played.run_ids, self._chance.getrandbits(32))
        try:
            self._play(runs, time.monotonic() + SECONDS)
            Path(self._setup.over).touch()
            reader.join(SECONDS)
            if reader.is_alive():
                self._played.problems.append("the reader has not got everything")
            self._bury()  # the last run may have ended one
        finally:
            for worker in self._workers:
                worker.process.kill()
                worker.process.join()
            reader.kill()
            self._look()
            self._ledger.close()
            self._store.close()
        return self._played

    def _play(self, runs: Runs, end: float) -> None:
        self._plan_hit()
        while not all(self._is_over(runs, run_id) for run_id in self._played.run_ids):
            if time.monotonic() > end:
                states = {run_id: self._state(runs, run_id) for run_id in self._played.run_ids}
                self._played.problems.append(f"not over after {SECONDS:g} seconds: {states}")
                return
            self._staff()
            news = self._look()
            self._wake()
            self._hit(any(note.what == "start" for note in news))
            time.sleep(0.01)

    def _is_over(self, runs: Runs, run_id: str) -> bool:
        state = self._state(runs, run_id)
        if state == "parked":
            self._played.parked += 1
            with_retries(lambda: runs.retry(run_id))
        return state == "over"

    def _state(self, runs: Runs, run_id: str) -> str:
        return with_retries(lambda: runs.find(run_id)).state

    # -- the processes -------------------------------------------------------------------------------------------------

    def _start(self, target: Callable[..., None], *arguments: Any) -> Any:
        process = self._processes.Process(target=target, args=arguments, daemon=True)
        process.start()
        return process

    def _staff(self) -> None:
        """Start a process for each that died or is frozen."""
        self._bury()
        while sum(not worker.is_frozen for worker in self._workers) < WORKERS:
            point = self._points.popleft() if self._points and not self._hits_left else ""
            self._played.planned += [point] if point else []
            plan = Plan(point, signal.SIGKILL if self._how == "kill" else signal.SIGSTOP) if point else None
            more = [self._played.run_ids] if self._mode == "inline" else []
            process = self._start(drive_inline if more else work, self._setup, plan, *more)
            self._workers.append(_Worker(process, point))

    def _bury(self) -> None:
        """Forget the processes that died, some of them at a point."""
        for worker in [worker for worker in self._workers if not worker.process.is_alive()]:
            self._workers.remove(worker)
            if worker.point and self._how == "kill" and worker.process.exitcode == -signal.SIGKILL:
                self._played.hits.append(Hit(worker.pid, time.time(), worker.point))

    def _look(self) -> list[Note]:
        """Read the ledger. Processes may have frozen themselves."""
        notes = self._ledger.news()
        self._played.notes += notes
        for note in notes:
            worker = next((worker for worker in self._workers if worker.pid == note.pid), None)
            if note.what == "frozen" and worker is not None:
                self._note_frozen(worker, note.name)
        return notes

    # -- hits ----------------------------------------------------------------------------------------------------------

    def _plan_hit(self) -> None:
        self._next_hit = time.monotonic() + self._chance.uniform(0.1, 0.8)
        self._is_aimed = self._chance.random() < 0.5

    def _hit(self, has_tool_started: bool) -> None:
        if not self._hits_left or time.monotonic() < self._next_hit or (self._is_aimed and not has_tool_started):
            return
        if self._database is not None:
            self._hits_left -= 1
            self._played.hits.append(Hit(0, time.time()))
            self._hit_database(self._database)
            self._plan_hit()
            return
        owners = {row.owner.split(":")[1] for row in self._store.list(state="running")}
        victims = [worker for worker in self._workers if str(worker.pid) in owners and not worker.is_frozen]
        if not victims:
            return
        victim = self._chance.choice(victims)
        self._hits_left -= 1
        self._plan_hit()
        if self._how == "kill":
            self._played.hits.append(Hit(victim.pid, time.time()))
            victim.point = ""  # it has not come to it
            os.kill(victim.pid, signal.SIGKILL)
            victim.process.join()
        else:
            os.kill(victim.pid, signal.SIGSTOP)
            self._note_frozen(victim, "")

    def _hit_database(self, database: Database) -> None:
        if self._how == "crash":
            database.crash(self._chance)
        elif self._how == "restart":
            database.restart(self._chance)
        elif self._is_saved:
            database.restore()
        else:
            database.save()
            self._is_saved = True

    def _note_frozen(self, worker: _Worker, point: str) -> None:
        worker.is_frozen, worker.frozen_at = True, time.monotonic()
        worker.owned = [row for row in self._store.list(state="running") if f":{worker.pid}:" in row.owner]
        self._played.hits.append(Hit(worker.pid, time.time(), point))

    def _wake(self) -> None:
        """Let frozen processes continue whose runs were taken over."""
        for worker in self._workers:
            if not worker.is_frozen or time.monotonic() < worker.frozen_at + self._setup.lease:
                continue
            rows = [self._store.find(row.id) for row in worker.owned]
            pairs = zip(rows, worker.owned, strict=True)
            is_over = all(now is None or now.epoch > was.epoch or now.state != "running" for now, was in pairs)
            if not is_over and self._is_locked():
                self._played.frozen_inside_a_write += 1
                is_over = True
            if is_over:
                worker.is_frozen = False
                os.kill(worker.pid, signal.SIGCONT)

    def _is_locked(self) -> bool:
        """Whether a frozen process blocks all writers: on SQLite, if it was inside a transaction."""
        if "://" in self._setup.address:
            return False
        connection = sqlite3.connect(self._setup.address, timeout=self._setup.lease / 2, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
        finally:
            connection.close()
        return False
