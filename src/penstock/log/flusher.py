"""Writes the logs of all runs of a process: one thread per store.

A run hands over its units and continues. A callback tells it that they are committed; only then its reader gets them.
The thread gathers what comes while a commit is under way, so there are few commits whatever the number of runs. It also
renews the leases, and looks for inputs from other processes, so that neither depends on an event loop that may be
blocked.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from penstock.log import points
from penstock.log.bodies import body_of, types_of
from penstock.log.patience import patiently
from penstock.log.store import Batch, Claim, Input, LostRunError, RunPhase, Store, StoreError
from penstock.run.events import (
    ApprovalRequest,
    Decision,
    Done,
    LogEvent,
    Nested,
    RunStart,
    Said,
    Taken,
    ToolEnd,
    ToolResults,
    ToolStart,
    Waiting,
    innermost,
)

MAX_DELAY = 0.01
"""How many seconds events may wait for others before they are committed together."""

MAX_GATHERED = 64
"""How many events of a run are gathered at most before they are committed."""

POLL = 0.1
"""The seconds between two polls for inputs from other processes."""

RETRY = 1.0
"""How many seconds pass until leases are renewed again after the store has failed, if that is sooner than usual."""

RENEWALS = 5
"""How often an append renews a lease at most while the lease lasts: others cost less."""

_DURABLE = frozenset({RunStart, Taken, ToolStart, ToolEnd, ApprovalRequest, Decision, Said, Waiting, Done})


class RunCallbacks(Struct, frozen=True):
    """The callbacks of a run, which the thread of the flusher calls: none of them may block.

    `on_committed` gets the number of units that were committed, `on_input` an input from another process, `on_lost` the
    error after which this process must not continue the run. `can_go_on` is asked before the lease is renewed: a run
    that cannot, because its event loop was closed, is given back.
    """

    on_committed: Callable[[int], None]
    on_input: Callable[[Input], None]
    on_lost: Callable[[Exception], None]
    can_go_on: Callable[[], bool] = lambda: True


class _Gathered(Struct, frozen=True):
    """What is written together: batches of some writers, taken at a time; `durable` if they must be on disk."""

    writers: Sequence[RunWriter]
    batches: Sequence[Batch]
    at: float
    durable: bool


class RunWriter:
    """The log of one run that this process owns."""

    def __init__(self, flusher: Flusher, claim: Claim, callbacks: RunCallbacks) -> None:
        self.claim = claim
        self.callbacks = callbacks
        self.seq = claim.seq  # of the last event that is committed
        self.units = 0  # which wait for the next commit, with their events as they are stored
        self.bodies: list[bytes] = []
        self.inputs: tuple[int, ...] = ()
        self.refused: tuple[int, ...] = ()
        self.state: RunPhase = "running"
        self.wake_in: float | None = None
        self.deadline = claim.deadline
        self.next_renewal = 0.0
        self.taken: set[int] = set()  # inputs that were handed to the run
        self.is_closed = False
        self._flusher = flusher

    @property
    def is_owner(self) -> bool:
        """Whether the lease still lasts: right before a tool with side effects starts, or a request is sent."""
        return not self.is_closed and time.monotonic() < self.deadline

    def renewed(self, sent: float, lease: float) -> None:
        """The store has renewed the lease, after it was asked at this time."""
        self.deadline = max(self.deadline, sent + lease)
        self.next_renewal = sent + lease / RENEWALS

    def take(self, now: float) -> Batch:
        """The units that wait, which are written now."""
        batch = Batch(
            self.claim.run_id, self.claim.epoch, self.seq, self.bodies, self.state, self.inputs, self.wake_in,
            self.refused, now >= self.next_renewal, self.units,
        )  # fmt: skip
        self.units, self.bodies, self.inputs, self.refused = 0, [], (), ()
        return batch

    def take_inputs(self, inputs: Sequence[int], *, is_refused: bool) -> None:
        """A unit comes from these inputs; without events, they are refused."""
        if is_refused:
            self.refused += tuple(inputs)
        else:
            self.inputs += tuple(inputs)

    def put(self, events: Sequence[LogEvent], inputs: Sequence[int] = ()) -> None:
        """Append a unit: what one input to the run has emitted, all of it or nothing."""
        self._flusher.put(self, events, inputs)

    def close(self) -> None:
        """Write nothing more, and let the lease end."""
        self._flusher.remove(self)

    def release(self) -> None:
        """Release the run, so that another worker can continue it at once."""
        self._flusher.put(self, (), state="ready")

    def lose(self, error: Exception) -> None:
        """Write nothing more, and report the error to the run."""
        self._flusher.lose(self, error)


class Flusher:
    """Commits the units of all runs of a process to one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._writers: dict[str, RunWriter] = {}  # by the id of the run
        self._due: list[RunWriter] = []  # those with units to write
        self._is_idle = False  # whether the thread waits for any unit, and not only for one that is urgent
        self._is_urgent = False
        self._is_durable = False  # whether a unit must be on disk before its run goes on
        self._thread: threading.Thread | None = None
        self._last_flush = 0.0
        self.is_behind = False  # the store has failed: leases of runs that are owned here may have ended meanwhile
        self.process = os.getpid()

    def attach(self, claim: Claim, callbacks: RunCallbacks, inputs: Sequence[Input] = ()) -> RunWriter:
        """Write the log of a run that was claimed, and that knows of these inputs.

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

    def put(
        self, writer: RunWriter, events: Sequence[LogEvent], inputs: Sequence[int] = (), state: RunPhase = "running"
    ) -> None:
        """Take a unit; its events are encoded here, so that what fails then fails in their own run."""
        bodies: list[bytes] = []
        is_durable, wake_in = False, None
        for event in events:
            kind = _kind(event)
            if kind is not ToolResults:  # which repeat ends
                bodies.append(body_of(event))
            if kind in _DURABLE:
                is_durable = True
        if is_durable:
            state, wake_in = _state_after(events[-1])
        with self._lock:  # not the condition, whose methods cost more
            if writer.is_closed:
                return
            if not writer.units:
                self._due.append(writer)
            writer.units += 1
            writer.bodies += bodies
            writer.state, writer.wake_in = state, wake_in
            if inputs:
                writer.take_inputs(inputs, is_refused=not events)
            is_urgent = is_durable or len(writer.bodies) >= MAX_GATHERED or state != "running"
            if is_urgent or self._is_idle:
                self._is_urgent |= is_urgent
                self._is_durable |= is_durable
                self._wake.notify()

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
            end = self._last_flush + MAX_DELAY
            while not self._is_urgent and self._writers and (left := end - time.monotonic()) > 0:
                self._wake.wait(left)
            while not self._due:
                if not self._writers:
                    self._thread = None
                    self.is_behind = False
                    return None
                if (left := until - time.monotonic()) <= 0:
                    return _Gathered((), (), 0.0, False)
                self._is_idle = True
                self._wake.wait(left)
                self._is_idle = False
            durable, self._is_urgent, self._is_durable = self._is_durable, False, False
            writers = [writer for writer in self._due if not writer.is_closed]
            self._due.clear()
            now = time.monotonic()
            return _Gathered(writers, [writer.take(now) for writer in writers], now, durable)

    def _flush(self, gathered: _Gathered) -> None:
        writers, batches, sent = gathered.writers, gathered.batches, gathered.at
        try:
            _visit("before_append", gathered)
            owned = patiently(partial(self._append, batches, gathered.durable))
            _visit("after_append", gathered)
        except Exception as error:  # noqa: BLE001  # it is reported to the runs
            for writer in writers:
                self.lose(writer, error)
            return
        self._last_flush = time.monotonic()
        for writer, batch, is_owner in zip(writers, batches, owned, strict=True):
            if not is_owner:
                continue
            writer.seq += len(batch.bodies)
            if batch.renew:
                writer.renewed(sent, self.store.lease)
            if batch.state != "running":
                self.remove(writer)
        if self.is_behind or self._last_flush > sent + self.store.lease:  # the runs are still owned, or not
            self._renew()
        for writer, batch, is_owner in zip(writers, batches, owned, strict=True):
            if not is_owner:
                if not writer.is_closed:  # else it knows already
                    self.lose(writer, _lost(writer))
                continue
            if batch.state == "over" and points.hook is not None:
                points.hook("after_done", (), writer)
            writer.callbacks.on_committed(batch.units)

    def _append(self, batches: Sequence[Batch], durable: bool) -> list[bool]:
        try:
            return self.store.append(batches, durable=durable)
        except StoreError:
            self.is_behind = True
            raise

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


_lock = threading.Lock()


def flusher_of(store: Store) -> Flusher:
    """The flusher of a store, one per process."""
    with _lock:
        flusher = store.flusher
        if not isinstance(flusher, Flusher) or flusher.process != os.getpid():  # a thread does not survive a fork
            flusher = store.flusher = Flusher(store)
        return flusher


def _kind(event: LogEvent) -> type[LogEvent]:
    """The class of an event; of an inner run, that of its event."""
    kind = type(event)
    return type(innermost(event)) if kind is Nested else kind


def _visit(point: points.Point, gathered: _Gathered) -> None:
    if points.hook is not None:
        for writer, batch in zip(gathered.writers, gathered.batches, strict=True):
            points.hook(point, types_of(batch.bodies), writer)


def _state_after(last: LogEvent) -> tuple[RunPhase, float | None]:
    """The state of a run after its last event, and after how many seconds it has to continue."""
    match last:
        case Done():
            return "over", None
        case Waiting(seconds):
            return "waiting", seconds
        case _:
            return "running", None


def _lost(writer: RunWriter) -> LostRunError:
    return LostRunError(f"another worker has taken over the run {writer.claim.run_id}")
