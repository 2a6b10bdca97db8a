"""Rebuilds a claimed run from its log, and adds up the time of earlier owners.

Times are those of the store: how long a run has worked, and how long its calls have waited.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

from msgspec.structs import replace

from penstock.events import Fault
from penstock.log.bodies import body_of, event_of
from penstock.log.branches.past_calls import PastCalls
from penstock.log.start import OwnedRun
from penstock.log.store import Claim, DamagedRunError, Input, ParkedRunError, RunRow, Store, StoreError
from penstock.log.suspects import park, reason_to_park, set_aside
from penstock.output.output_type import OutputType
from penstock.run.events import ApprovalRequest, LogEvent, Nested, RunStart, Taken, innermost
from penstock.run.forked import Forked
from penstock.run.limits import Limits
from penstock.run.machine import Run
from penstock.run.rebuild import rebuild
from penstock.tools.policy import ToolPolicy

PAGE = 1000
"""How many events are read at a time."""

GRACE = 0.05
"""How many seconds more a call waits that was answered in time: the answer may turn out not to be valid."""

_ANSWERS = ("decide", "provide")


def read_log(
    store: Store, run_id: str, after: int = 0, last: int | None = None
) -> Iterator[tuple[int, float, LogEvent]]:
    """The events of a run after a number, until the last one, with their numbers and times.

    A `DamagedRunError` if one is missing.
    """
    while last is None or after < last:
        rows = store.read(run_id, after, PAGE if last is None else min(PAGE, last - after))
        if not rows:
            return
        for seq, at, body in rows:
            if seq != after + 1:
                raise hole(run_id, after + 1)
            after = seq
            yield seq, at, event_of(run_id, seq, body)


def read_start(store: Store, run_id: str) -> RunStart:
    """The first event of a run; a `DamagedRunError` if it is missing."""
    for _, _, event in read_log(store, run_id, last=1):
        if isinstance(event, RunStart):
            return event
    raise hole(run_id, 1)


def take_up(
    store: Store,
    claim: Claim,
    policies: Mapping[str, ToolPolicy],
    limits: Limits | None = None,
    run_repaired: Collection[Fault] = (),
    output: OutputType[Any] | None = None,
) -> tuple[Run, OwnedRun]:
    """Rebuild a claimed run. If its log is damaged, the run is set aside: no worker claims it again.

    A run that has lost too many workers is parked, unless it was cancelled; a `ParkedRunError` says so.
    """
    if (why := reason_to_park(claim, limits)) and not any(
        input.kind == "cancel" for input in store.inputs([claim.run_id])
    ):
        park(store, claim, why)
        raise ParkedRunError(f"the run {claim.run_id} is parked: {why}")
    try:
        return rebuild_claimed(store, claim, policies, limits, run_repaired, output)
    except DamagedRunError:
        with suppress(StoreError):  # else the lease ends, and another worker finds the same
            set_aside(store, claim)
        raise


def begin(
    store: Store, claim: Claim, start: RunStart, policies: Mapping[str, ToolPolicy], *rules: Any
) -> tuple[Run, OwnedRun]:
    """A run that this process has just created and claimed: its log has nothing else, and need not be read.

    The flusher finds later inputs.
    """
    logged = cast(RunStart, event_of(claim.run_id, 1, body_of(start)))  # as another process would read it
    run = rebuild([logged, Taken(claim.epoch)], policies, *rules)
    return run, OwnedRun(store, claim, meta=logged.meta)


def rebuild_claimed(
    store: Store,
    claim: Claim,
    policies: Mapping[str, ToolPolicy],
    limits: Limits | None = None,
    run_repaired: Collection[Fault] = (),
    output: OutputType[Any] | None = None,
) -> tuple[Run, OwnedRun]:
    """Rebuild a claimed run; a `DamagedRunError` if its log is damaged."""
    times = WorkTimes()
    past = PastCalls()
    meta: Any = None
    model = ""

    def events() -> Iterator[LogEvent]:
        nonlocal meta, model
        for number, at, event in read_log(store, claim.run_id, last=claim.seq):
            if isinstance(event, RunStart):
                meta = event.meta
            elif isinstance(event, Forked):
                model = event.model or model
            times.add(number, at, event)
            past.add(event)
            yield event

    run = fold(claim.run_id, events(), policies, limits, run_repaired, output)
    if times.seq < claim.seq:
        raise hole(claim.run_id, times.seq + 1)
    deadlines = times.deadlines
    inputs = [input for input in store.inputs([claim.run_id]) if not _is_late(input, deadlines)]
    answered = {input.key for input in inputs if input.kind in _ANSWERS}
    run.state.seconds_left = {
        call_id: max(deadline - times.taken, GRACE if call_id in answered else 0.0)
        for call_id, deadline in deadlines.items()
    }
    if claim.lost and (claim.in_tool or run.state.phase in ("new", "hook")):  # an interrupted step is not completed
        claim = replace(claim, steps=2)
    return run, OwnedRun(
        store, claim, times.seconds, meta, inputs, began=times.began, model=model, past=past if past.is_fork else None
    )


class WorkTimes:
    """How long the owners of a run have worked on it, and when its waiting calls expire, by the times of its events.

    `began` is how long they had worked when each inner run began. A fork has the time that its parent had used until
    there; the calls that wait in it may wait as long as at first.
    """

    def __init__(self) -> None:
        self.seconds = self.taken = self._last = 0.0
        self.seq = 0
        self.deadlines: dict[str, float] = {}
        self.began: dict[str, float] = {}
        self._expiries: dict[str, float] = {}

    def add(self, number: int, at: float, event: LogEvent) -> None:
        """The next event of the log."""
        if isinstance(event, Taken):
            self._pause()
            self.taken = at
        elif isinstance(event, Forked):
            self._pause()
            self.deadlines = {call_id: at + expires for call_id, expires in self._expiries.items()}
        elif isinstance(event, Nested) and isinstance(event.event, RunStart):
            self.began[event.path[-1]] = self.seconds + max(0.0, at - self.taken)
        elif isinstance(request := innermost(event), ApprovalRequest) and request.expires is not None:
            self._expiries[request.call_id] = request.expires
            self.deadlines[request.call_id] = at + request.expires
        self.seq, self._last = number, at

    def _pause(self) -> None:
        """The last owner has worked until the event before this one."""
        self.seconds += max(0.0, self._last - self.taken) if self.taken else 0.0
        self.taken = 0.0


def read_run(store: Store, row: RunRow) -> Run:
    """A run as its log has it; a `DamagedRunError` if it cannot be rebuilt. It claims and changes nothing."""
    seq = 0

    def events() -> Iterator[LogEvent]:
        nonlocal seq
        for number, _, event in read_log(store, row.id, last=row.seq):
            seq = number
            yield event

    run = fold(row.id, events(), {})
    if seq < row.seq:
        raise hole(row.id, seq + 1)
    return run


def fold(run_id: str, events: Iterable[LogEvent], policies: Mapping[str, ToolPolicy], *rules: Any) -> Run:
    """The run with these events; a `DamagedRunError` if they contradict each other."""
    try:
        return rebuild(events, policies, *rules)
    except StoreError:
        raise
    except Exception as error:  # events that nobody wrote like this may break the fold anywhere
        raise DamagedRunError(f"the log of the run {run_id} is damaged: {error}") from error


def hole(run_id: str, number: int) -> DamagedRunError:
    """The error of a run that lacks an event."""
    return DamagedRunError(f"the log of the run {run_id} has no event {number}: it was damaged")


def _is_late(input: Input, deadlines: Mapping[str, float]) -> bool:
    """Whether an answer came after its call expired. It stays in the store until the run has logged the expiry."""
    return input.kind in _ANSWERS and input.at > deadlines.get(input.key, math.inf)
