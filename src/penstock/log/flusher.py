"""Writes the logs of all runs of a process: one thread per store.

A run hands over its units and continues. A callback tells it that they are committed; only then its reader gets them.
The thread gathers units during a commit, so there are few commits for any number of runs. Large commits are made less
often: they keep the interpreter from the runs. It also renews the leases, and looks for inputs from other processes, so
that neither depends on an event loop that may be blocked.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct

from penstock.log import points
from penstock.log.bodies import types_of
from penstock.log.forks import Shared
from penstock.log.run_writer import RunCallbacks, RunWriter, Unit
from penstock.log.store import Batch, Claim, Input, LostRunError, Store, StoreError
from penstock.log.store_retries import with_retries

DELAY = 0.01
"""How many seconds events wait for others, to be committed together, after a commit of up to `USUAL_EVENTS`."""

USUAL_EVENTS = 100
"""How many events a commit usually has at most. After a larger one, the next waits as many times longer."""

MAX_DELAY = 0.04
"""How many seconds events wait at most."""

POLL = 0.1
"""The seconds between two polls for inputs from other processes."""

RETRY = 1.0
"""How many seconds pass until leases are renewed again after the store has failed, if that is sooner than usual."""

COMMIT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The upper bounds of the durations by which commits are counted."""


class _Gathered(Struct, frozen=True):
    """The batches of one commit; `durable` if they must be on disk."""

    writers: Sequence[RunWriter]
    batches: Sequence[Batch]
    at: float
    durable: bool


class Flusher(Shared):
    """Commits the units of all runs of a process to one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._writers: dict[str, RunWriter] = {}  # by the id of the run
        self._units: deque[Unit] = deque()  # which wait for the next commit
        self._is_idle = False  # whether the thread waits for any unit, and not only for one that is urgent
        self._is_urgent = False
        self._thread: threading.Thread | None = None
        self._last_flush = 0.0
        self._delay = DELAY
        self.is_behind = False  # the store has failed: leases of runs that are owned here may have ended meanwhile
        self.commits = [0] * (len(COMMIT_SECONDS) + 1)  # how many took up to each of `COMMIT_SECONDS`, or longer
        self.commit_seconds = 0.0  # of all of them
        super().__init__()
        self._wake = threading.Condition(self.lock)

    def in_child(self) -> None:
        """Start without a thread and runs: the parent process writes them."""
        super().in_child()
        self._wake = threading.Condition(self.lock)
        for writer in self._writers.values():
            writer.is_closed = True
        self._writers.clear()
        self._units.clear()
        self._thread = None
        self._is_idle = self._is_urgent = self.is_behind = False

    def attach(self, claim: Claim, callbacks: RunCallbacks, inputs: Sequence[Input] = ()) -> RunWriter:
        """Write the log of a claimed run that knows of these inputs.

        If this process owned the run before its lease ended (a laptop that slept), the earlier writer loses the run.
        """
        writer = RunWriter(self, claim, callbacks)
        writer.taken.update(input.number for input in inputs)
        with self._wake:
            earlier = self._writers.pop(claim.run_id, None)
            if earlier is not None:
                earlier.is_closed = True  # so that its units are not written
            self._writers[claim.run_id] = writer
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="penstock-log", daemon=True)
                self._thread.start()
        if earlier is not None:
            self.lose(earlier, _lost(earlier))
        return writer

    def add(self, unit: Unit, is_urgent: bool) -> None:
        """Write a unit soon; an urgent unit does not wait for others."""
        if unit.writer.is_closed:
            return
        self._units.append(unit)  # without the lock: the thread of the run would wait for that of the flusher
        if is_urgent or self._is_idle:
            with self._wake:
                self._is_urgent |= is_urgent
                self._is_idle = False
                self._wake.notify()

    def on_trial(self, run_ids: Iterable[str]) -> bool:
        """Whether one of these runs may have ended its last workers, and is not cleared yet.

        Also one that this process is about to write.
        """
        with self._wake:
            writers = [self._writers.get(run_id) for run_id in run_ids]
        return any(writer is None or writer.is_on_trial for writer in writers)

    @property
    def backlog(self) -> int:
        """How many units wait for a commit."""
        return len(self._units)

    @property
    def has_expired(self) -> bool:
        """Whether a lease may have ended while this process was frozen: it is about to be renewed."""
        now = time.monotonic()
        with self._wake:
            return any(writer.deadline < now for writer in self._writers.values())

    def remove(self, writer: RunWriter) -> None:
        with self._wake:
            writer.is_closed = True
            if self._writers.get(writer.claim.run_id) is writer:
                del self._writers[writer.claim.run_id]
            self._wake.notify()

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._write_and_renew()
        except BaseException as error:  # noqa: BLE001  # whoever waits for a commit gets it
            with self._wake:
                self._thread = None
                self.is_behind = False
                writers = list(self._writers.values())
            for writer in writers:
                self.lose(writer, error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _write_and_renew(self) -> None:
        next_poll = next_renewal = 0.0
        while True:
            gathered = self._gather(next_poll)
            if gathered is None:
                return
            if gathered.batches:
                self._flush(gathered)
                events = sum(len(batch.bodies) for batch in gathered.batches)
                self._delay = min(DELAY * max(1.0, events / USUAL_EVENTS), MAX_DELAY)
            now = time.monotonic()
            if now >= next_renewal:
                self._renew()
                next_renewal = now + min(self.store.lease / 3, RETRY if self.is_behind else math.inf)
            if now >= next_poll:
                self._look_for_inputs()
                next_poll = time.monotonic() + POLL

    def _gather(self, until: float) -> _Gathered | None:
        """Wait for units, and for others that may share their commit; None if there are no runs any more."""
        with self._wake:
            end = self._last_flush + self._delay
            while not self._is_urgent and self._writers and (left := end - time.monotonic()) > 0:
                self._wake.wait(left)
            while not self._units:
                if not self._writers:
                    self._thread = None
                    self.is_behind = False
                    return None
                if (left := until - time.monotonic()) <= 0:
                    return _Gathered((), (), 0.0, False)
                self._is_idle = True
                if not self._units:  # a unit that came before the line above did not wake this thread
                    self._wake.wait(left)
                self._is_idle = False
            self._is_urgent = False
        return self._take_units()

    def _take_units(self) -> _Gathered:
        waiting, durable, now = self._units, False, time.monotonic()
        batches: dict[RunWriter, Batch] = {}
        joined: dict[RunWriter, list[Batch]] = {}  # writers with several units, or with a lease to renew
        for _ in range(len(waiting)):
            unit = waiting.popleft()
            writer = unit.writer
            if writer.is_closed:
                continue
            if unit.is_durable:
                durable = True
            if writer in batches:
                joined.setdefault(writer, [batches[writer]]).append(unit)
            else:
                batches[writer] = unit
                if now >= writer.next_renewal:
                    joined[writer] = [unit]
        for writer, units in joined.items():
            batches[writer] = writer.batch(units, now)
        return _Gathered([*batches], [*batches.values()], now, durable)

    def _flush(self, gathered: _Gathered) -> None:
        writers, batches, sent = gathered.writers, gathered.batches, gathered.at
        try:
            if points.hook is not None:
                _visit(points.hook, "before_append", gathered)
            owned = with_retries(partial(self.store.append, batches, durable=gathered.durable), self._on_failure)
            if points.hook is not None:
                _visit(points.hook, "after_append", gathered)
        except Exception as error:  # noqa: BLE001  # it is reported to the runs
            self._fail(gathered, error)
            return
        self._last_flush = time.monotonic()
        self.commits[bisect_left(COMMIT_SECONDS, self._last_flush - sent)] += 1
        self.commit_seconds += self._last_flush - sent
        for writer, batch, is_owner in zip(writers, batches, owned, strict=True):
            if not is_owner:
                continue
            writer.seq += len(batch.bodies)
            if batch.renew:
                writer.renewed(sent, self.store.lease)
            if batch.state != "running":
                self.remove(writer)
        if (
            self.is_behind or self._last_flush > sent + self.store.lease
        ):  # the store was away: find out which runs are still owned
            self._renew()
        for writer, batch, is_owner in zip(writers, batches, owned, strict=True):
            if not is_owner:
                if not writer.is_closed:  # a closed one was notified already
                    self.lose(writer, _lost(writer))
                continue
            if batch.state == "over" and points.hook is not None:
                points.hook("after_done", (), writer)
            writer.units += batch.units
            writer.callbacks.on_committed()

    def _fail(self, gathered: _Gathered, error: Exception) -> None:
        """Report to the runs that they cannot be written. If one of several may be the cause, each is tried alone."""
        is_temporary = isinstance(error, StoreError) and error.is_temporary
        if len(gathered.batches) > 1 and not is_temporary:
            for writer, batch in zip(gathered.writers, gathered.batches, strict=True):
                self._flush(_Gathered([writer], [batch], gathered.at, gathered.durable))
        else:
            for writer in gathered.writers:
                self.lose(writer, error)

    def _on_failure(self) -> None:
        self.is_behind = True

    def _renew(self) -> None:
        with self._wake:
            writers = list(self._writers.values())
        for writer in writers:
            if not writer.callbacks.can_go_on():
                writer.release()
        if not writers:
            return
        sent = time.monotonic()
        try:
            owned = self.store.renew([(writer.claim.run_id, writer.claim.epoch) for writer in writers])
        except StoreError:
            self.is_behind = True
            return  # the next renewal may work; else the lease ends
        self.is_behind = False
        for writer, is_owner in zip(writers, owned, strict=True):
            if is_owner:
                writer.renewed(sent, self.store.lease)
            else:  # its tools and its request are stopped now, and not when it writes next
                self.lose(writer, _lost(writer))
        self._acquit([writer for writer, is_owner in zip(writers, owned, strict=True) if is_owner])

    def _acquit(self, writers: Sequence[RunWriter]) -> None:
        """Clear the suspects that survived for long enough."""
        now, lease = time.monotonic(), self.store.lease
        trials = [
            (writer, trial)
            for writer in writers
            if (trial := writer.trial) is not None and trial.has_survived(now, lease)
        ]
        if not trials:
            return
        with suppress(StoreError):  # the next renewal tries again
            self.store.acquit([(writer.claim.run_id, writer.claim.epoch) for writer, _ in trials])
            for _, trial in trials:
                trial.is_cleared = True

    def _look_for_inputs(self) -> None:
        with self._wake:
            writers = dict(self._writers)
        try:
            inputs = self.store.inputs(list(writers))
        except StoreError:
            return  # the next poll finds them
        for input in inputs:
            writer = writers[input.run_id]
            if input.number not in writer.taken:
                writer.taken.add(input.number)
                writer.callbacks.on_input(input)

    def lose(self, writer: RunWriter, error: Exception) -> None:
        self.remove(writer)
        writer.callbacks.on_lost(error)


_creating = Shared()


def flusher_of(store: Store) -> Flusher:
    """The flusher of a store, one per process."""
    with _creating.lock:
        flusher = store.flusher
        if not isinstance(flusher, Flusher):
            flusher = store.flusher = Flusher(store)
        return flusher


def _visit(hook: points.Hook, point: points.Point, gathered: _Gathered) -> None:
    for writer, batch in zip(gathered.writers, gathered.batches, strict=True):
        hook(point, types_of(batch.bodies), writer)


def _lost(writer: RunWriter) -> LostRunError:
    return LostRunError(
        f"another worker has taken over the run {writer.claim.run_id}, or the log has lost its last events"
    )
