"""Follows a run through its log until it can be claimed, or has finished. Blocking code, without its own thread."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.events import Fault
from penstock.log.bodies import body_of
from penstock.log.follow import is_in_log, read_after
from penstock.log.position import OtherPastError, Position, position_at
from penstock.log.start import OwnedRun
from penstock.log.starts.requests import StartRequest
from penstock.log.store import (
    ParkedRunError,
    RunRow,
    Store,
    StoreError,
    UnknownRunError,
    check_version,
    first_claim,
    unknown_run,
)
from penstock.log.take_up import begin, read_log, read_run, take_up
from penstock.output.output_type import OutputType
from penstock.run.commands import Emit
from penstock.run.events import (
    CallReviewed,
    Done,
    LogEvent,
    Reset,
    RunStart,
    StreamEvent,
    Taken,
    ToolReturned,
    Waiting,
    is_for_readers,
)
from penstock.run.forked import Forked
from penstock.run.limits import Limits
from penstock.run.machine import Run
from penstock.run.rebuild import Replay
from penstock.tools.policy import ToolPolicy

POLL = 0.05
"""The seconds between two checks of a log for new events, or for a run that can be claimed."""

MAX_WAIT = 0.2
"""The seconds between two checks of the state of a run without new events."""


def new_owner() -> str:
    """A unique name for this process."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def parked_reason(store: Store, row: RunRow) -> str:
    """Why a run is parked; empty if it is not."""
    if row.state != "parked":
        return ""
    return next((event.why for _, _, event in read_log(store, row.id, row.seq - 1) if isinstance(event, Waiting)), "")


class LoggedStart(Struct, frozen=True):
    """The start of a run in a store; an existing run is followed.

    The reader has its events until `after`. If the reader leaves, a run that `outlives_reader` is released to the
    store; any other is cancelled. The `request` is stored with a new run.
    """

    store: Store
    row: RunRow
    start: RunStart
    after: int = 1
    outlives_reader: bool = False
    request: StartRequest | None = None


def stored_start(store: Store, run_id: str, after: int = 1, *, outlives_reader: bool = False) -> LoggedStart:
    """The start of an existing run."""
    row = store.find(run_id)
    first = next(read_log(store, run_id), None)
    if row is None or first is None or not isinstance(first[2], RunStart):
        raise unknown_run(run_id)
    return LoggedStart(store, row, first[2], after, outlives_reader)


class Settings(Struct, frozen=True):
    """The settings of a run from its agent."""

    policies: Mapping[str, ToolPolicy]
    limits: Limits | None = None
    run_repaired: Collection[Fault] = ()
    output: OutputType[Any] | None = None
    pauses: bool = True


class Follower:
    """Reads the events of a run from its log, and claims the run when it has no owner.

    `run` is the run as the log has it. `owned` is set when this process owns the run: then it continues from `run`, and
    the reader still gets the events until the claim from here. `done` is set when the reader has got the end.
    """

    def __init__(self, start: LoggedStart, settings: Settings) -> None:
        self.run_id = start.row.id
        self.store = start.store
        self._start = start
        self._settings = settings
        self.run = Run(start.start.messages, *self._rules)
        self.owned: OwnedRun | None = None
        self.done: Done | None = None
        self.position = Position(max(1, start.after))  # of the last event that the reader got
        self._replay = Replay(self.run)
        self._replayed = 1
        self._owner = new_owner()
        self._next_claim = 0.0

    @property
    def seq(self) -> int:
        """The number of the last event that the reader got."""
        return self.position

    @property
    def has_more(self) -> bool:
        """Whether the reader gets more events from here."""
        return self.done is None and (self.owned is None or self.seq < self.owned.claim.seq)

    def open(self) -> None:
        """Start or find the run; claim it if it has no owner."""
        start, asked = self._start, time.monotonic()
        if self.store.create(start.row, body_of(start.start), owner=self._owner, request=start.request):
            claim = first_claim(self.store, start.row, asked)
            self._own(*begin(self.store, claim, start.start, *self._rules))
            self.position = Position(claim.seq)  # a reader gets none of the events before
            return
        row = self._row()
        check_version(row)
        if row.state == "damaged":
            read_run(self.store, row)
        if not self._claim():
            self._catch_up()

    def next_events(self) -> list[StreamEvent]:
        """The next events for the reader; none if there are none at the moment."""
        events: list[StreamEvent] = []
        try:
            events.extend(self._read())
        except StoreError:
            if not events:  # else those before it are read first
                raise
        except OtherPastError:
            return [self._begin_again()]
        if not events and self.has_more:
            events = self._wait_or_claim()
        return events

    def _begin_again(self) -> Reset:
        """Forget what was read: the log lost a part of it."""
        self.position = Position(1)
        if self.owned is None:
            self.run = Run(self._start.start.messages, *self._rules)
            self._replay, self._replayed = Replay(self.run), 1
        return Reset()

    def _read(self) -> Iterator[StreamEvent]:
        last = self.owned.claim.seq if self.owned else None
        for seq, at, event in read_after(self.store, self.run_id, self.position, last):
            self.position = position_at(seq, at)
            self._fold(seq, event)
            if isinstance(event, Done):
                self.done = event = replace(event, messages=tuple(self.run.state.history))
            if isinstance(event, RunStart | Taken | Waiting | Forked | CallReviewed | ToolReturned):
                continue
            if is_for_readers(event):
                yield event

    def wait(self) -> None:
        """Wait briefly for more events in the log: then the run may have lost its owner."""
        self.store.wait(self.run_id, self.seq, MAX_WAIT)

    def _row(self) -> RunRow:
        row = self.store.find(self.run_id)
        if row is None:
            raise UnknownRunError(f"the run {self.run_id!r} was deleted")
        return row

    def _wait_or_claim(self) -> list[StreamEvent]:
        row = self._row()
        if not is_in_log(self.store, row, self.position):
            return [self._begin_again()]
        if row.state == "waiting" and row.seq == self.seq and self._settings.pauses and self.run.is_waiting:
            [pause] = self.run.pause()
            assert isinstance(pause, Emit)
            [done] = pause.events
            assert isinstance(done, Done)
            self.done = done
            return [done]
        if row.state == "parked" and row.seq == self.seq:
            self.done = self.run.steps.done("paused", parked_reason(self.store, row))
            return [self.done]
        if self.run.state.is_over:  # the reader has had all events, the end too
            self.done = self.run.done
            return []
        if row.state == "damaged":
            read_run(self.store, row)
        if row.state == "ready" or (row.state != "over" and time.monotonic() >= self._next_claim):
            self._claim()
        return []

    def _claim(self) -> bool:
        """Claim the run if it has no owner."""
        self._next_claim = time.monotonic() + min(0.5, self.store.lease / 4)
        claim = self.store.claim(self._owner, run_id=self.run_id)
        if claim is None:
            return False
        try:
            self._own(*take_up(self.store, claim, *self._rules))
        except ParkedRunError:
            return False
        return True

    @property
    def _rules(self) -> tuple[Any, ...]:
        settings = self._settings
        return settings.policies, settings.limits, settings.run_repaired, settings.output

    def _own(self, run: Run, owned: OwnedRun) -> None:
        """Continue the run from here: this process owns it."""
        self.run, self.owned = run, replace(owned, outlives_reader=self._start.outlives_reader)

    def _catch_up(self) -> None:
        """Bring the run up to its log, before anything was read."""
        for seq, _, event in read_log(self.store, self.run_id, self._replayed):
            self._fold(seq, event)

    def _fold(self, seq: int, event: LogEvent) -> None:
        if self.owned is None and seq > self._replayed:
            self._replayed = seq
            self._replay.apply(event)
