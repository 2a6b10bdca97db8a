"""Writes the log of a run: units, which the flusher of the process commits with those of other runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from penstock.events import Reasoning, Refusal, Text, ToolCallDelta, ToolCallStart
from penstock.log.bodies import body_of
from penstock.log.store import Batch, Claim, Input, Progress, RunPhase
from penstock.log.suspects import trial_seconds
from penstock.run.events import (
    ApprovalRequest,
    Decision,
    Done,
    LogEvent,
    Nested,
    RunStart,
    Said,
    StepStart,
    Taken,
    ToolEnd,
    ToolResults,
    ToolReturned,
    ToolStart,
    Waiting,
    innermost,
)

if TYPE_CHECKING:
    from penstock.log.flusher import Flusher

MAX_GATHERED = 64
"""How many events of a run are gathered at most before they are committed."""

RENEWALS = 5
"""How many appends per length of a lease renew it at most: an append that does not renew is cheaper."""

_DURABLE = frozenset({
    RunStart, Taken, ToolStart, ToolReturned, ToolEnd, ApprovalRequest, Decision, Said, Waiting, Done,
})  # fmt: skip
_NOTABLE = _DURABLE | {Nested, StepStart, ToolResults}
_PIECES = frozenset({Text, Reasoning, Refusal, ToolCallStart, ToolCallDelta})
"""Events that consist of numbers and text: decoded from JSON, they are the same again."""
_encode_piece = msgspec.json.Encoder().encode


class RunCallbacks(Struct, frozen=True):
    """The callbacks of a run, which the thread of the flusher calls: none of them may block.

    `on_committed` is called after a commit (see `RunWriter.units`). `on_input` gets an input from another process,
    `on_lost` the error after which this process must not continue the run. `can_go_on` is called before the lease is
    renewed: a run whose event loop was closed is released.
    """

    on_committed: Callable[[], None]
    on_input: Callable[[Input], None]
    on_lost: Callable[[Exception], None]
    can_go_on: Callable[[], bool] = lambda: True


class Unit(Batch, frozen=True, gc=False, kw_only=True):
    """The events that one input to a run emitted: a batch, or a part of one.

    A durable unit must be on disk before its run continues.
    """

    writer: RunWriter
    is_durable: bool = False
    renew: bool = False


class Trial:
    """A run that has lost workers in this step: whether it is cleared, by a completed step or by surviving."""

    __slots__ = ("_claim", "_steps", "is_cleared")

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._steps = claim.steps
        self.is_cleared = not claim.suspect

    def begin_step(self) -> None:
        """The next step begins: the one before is completed."""
        self._steps -= 1

    def progress_with(self, state: RunPhase) -> Progress:
        """What the next batch says, after which the run has this state."""
        if self._steps <= 0 or state == "over":
            self.is_cleared = True
            return "step"
        return "cleared" if state == "waiting" else "none"

    def has_survived(self, now: float, lease: float) -> bool:
        """Whether the run survived for so long that it is cleared now."""
        claimed = self._claim.deadline - lease
        return not self.is_cleared and now - claimed >= trial_seconds(self._claim.lost, lease)


class RunWriter:
    """The log of one run that this process owns."""

    __slots__ = (
        "_flusher",
        "_last",
        "_tools",
        "callbacks",
        "claim",
        "deadline",
        "is_closed",
        "next_renewal",
        "seq",
        "state",
        "taken",
        "trial",
        "units",
    )

    def __init__(self, flusher: Flusher, claim: Claim, callbacks: RunCallbacks) -> None:
        self.claim = claim
        self.callbacks = callbacks
        self.seq = claim.seq  # number of the last committed event
        self.units = 0  # number of committed units
        self.deadline = claim.deadline
        self.next_renewal = 0.0
        self.taken: set[int] = set()  # inputs that were handed to the run
        self.is_closed = False
        self.state: RunPhase = "running"  # after the last unit that was put
        self.trial = Trial(claim) if claim.lost or claim.suspect else None
        self._tools: set[tuple[tuple[str, ...], str]] = set()  # those that run, by path and key
        self._flusher = flusher
        self._last = claim.seq  # the number of the last event that was put

    @property
    def is_owner(self) -> bool:
        """Whether the lease still lasts: right before a tool with side effects starts, or a request is sent."""
        return not self.is_closed and time.monotonic() < self.deadline

    @property
    def is_on_trial(self) -> bool:
        """Whether the run may have ended its last workers, and is not cleared yet."""
        return self.trial is not None and not self.trial.is_cleared

    def renewed(self, sent: float, lease: float) -> None:
        """Note a renewed lease; the store was asked at this time."""
        self.deadline = max(self.deadline, sent + lease)
        self.next_renewal = sent + lease / RENEWALS

    def put(self, events: Sequence[LogEvent], inputs: Sequence[int] = ()) -> None:
        """Append a unit: the events that one input to the run emitted, all or nothing.

        Its events are encoded here, so that an event which cannot be encoded fails its own run and no other.
        """
        bodies: list[bytes] = []
        same: list[LogEvent | None] = []  # those that readers in this process need not decode
        is_durable = False
        for event in events:
            kind = type(event)
            if kind in _PIECES:
                try:
                    bodies.append(_encode_piece(event))
                except ValueError:  # half of a character, which `body_of` replaces
                    pass
                else:
                    same.append(event)
                    continue
            if kind in _NOTABLE:
                if kind is Nested:
                    kind = type(innermost(event))
                is_durable = is_durable or kind in _DURABLE
                if kind is StepStart and self.trial is not None and type(event) is StepStart:
                    self.trial.begin_step()
                if kind is ToolResults:  # they only repeat what the `ToolEnd`s have
                    continue
            bodies.append(body_of(event))
            same.append(None)
        claim, seq = self.claim, self._last
        if is_durable or inputs or self.trial is not None:
            unit = self._notable(events, bodies, same, inputs, is_durable)
        else:
            unit = Unit(claim.run_id, claim.epoch, seq, bodies, writer=self, events=same)
        self._last = seq + len(bodies)
        self._flusher.add(unit, is_durable or self._last - self.seq >= MAX_GATHERED)

    def _notable(
        self, events: Sequence[LogEvent], bodies: list[bytes], same: list[LogEvent | None], inputs: Sequence[int],
        is_durable: bool,
    ) -> Unit:  # fmt: skip
        state, wake_in = _state_after(events)
        self.state = state
        taken, refused = (inputs, ()) if events else ((), inputs)
        progress: Progress = "none"
        if self.trial is not None:
            progress = self.trial.progress_with(state)
            if progress == "step":
                self.trial = None
        return Unit(
            self.claim.run_id, self.claim.epoch, self._last, bodies, state, taken, wake_in, refused, writer=self,
            is_durable=is_durable, events=same, in_tool=self._note_tools(events), progress=progress,
        )  # fmt: skip

    def _note_tools(self, events: Sequence[LogEvent]) -> bool | None:
        """Whether a tool is running after these events; None if that has not changed."""
        before, has_any = bool(self._tools), False
        for event in events:
            inner = innermost(event)
            if isinstance(inner, ToolStart | ToolEnd):
                key = (event.path if isinstance(event, Nested) else (), inner.key)
                has_any = True
                if isinstance(inner, ToolStart):
                    self._tools.add(key)
                else:
                    self._tools.discard(key)
        after = bool(self._tools)
        return after if has_any and (before != after or not after) else None

    def batch(self, units: Sequence[Batch], now: float) -> Batch:
        """Units of this run as one batch, in order, which renews the lease if that is due.

        The state is that after the last unit: nothing follows the end of a run or its pause, also no release.
        """
        first, last = units[0], units[-1]
        bodies = [body for unit in units for body in unit.bodies]
        events = [event for unit in units for event in unit.events]
        inputs = [number for unit in units for number in unit.inputs]
        refused = [number for unit in units for number in unit.refused]
        renew = now >= self.next_renewal
        in_tool = next((unit.in_tool for unit in reversed(units) if unit.in_tool is not None), None)
        marks = {unit.progress for unit in units}
        progress: Progress = "step" if "step" in marks else "cleared" if "cleared" in marks else "none"
        return Batch(
            first.run_id, first.epoch, first.seq, bodies, last.state, inputs, last.wake_in, refused, renew, len(units),
            events, in_tool, progress,
        )  # fmt: skip

    def close(self) -> None:
        """Write nothing more, and let the lease end."""
        self._flusher.remove(self)

    def release(self) -> None:
        """Release the run, so that another worker can continue it at once; not if it has ended or waits."""
        if self.state != "running":
            return  # the unit that says so is about to be written, maybe in the same batch
        self._flusher.add(Unit(self.claim.run_id, self.claim.epoch, self._last, (), "ready", writer=self), True)

    def lose(self, error: Exception) -> None:
        """Write nothing more, and report the error to the run."""
        self._flusher.lose(self, error)


def _state_after(events: Sequence[LogEvent]) -> tuple[RunPhase, float | None]:
    """The state of a run after these events, and after how many seconds it has to continue."""
    match events[-1] if events else None:
        case Done():
            return "over", None
        case Waiting(seconds):
            return "waiting", seconds
        case _:
            return "running", None
