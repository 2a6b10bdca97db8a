"""Crashes of a process for tests of runs with a log, and a clock for leases."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Literal

from penstock.log import points
from penstock.log.points import Countdown, Point
from penstock.log.run_writer import RunWriter


class Crashed(Exception):
    """A simulated crash: this process writes nothing more to the log of the run."""


@contextmanager
def crash_at(
    point: Point, detail: str = "", *, number: int = 1, how: Literal["raise", "kill"] = "raise"
) -> Generator[None]:
    """End a run with a log at a named point: `raise` in this process, or `kill` the process as `kill -9` does.

    With `raise`, whoever reads or drives the run gets `Crashed`, and nothing more is written to its log, not even that
    it was given up: as if the process had died, the run can be claimed when its lease has expired. Tools that run
    are cancelled. `detail` is the name of a tool, or the type of an event for the points about appends.
    """
    countdown = Countdown(point, detail, number)

    def crash(point: Point, details: Iterable[str], writer: RunWriter | None) -> None:
        if not countdown.is_reached(point, details):
            return
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
        error = Crashed(f"the process crashed at {point}")
        if writer is None or point.endswith("_append"):
            raise error
        writer.lose(error)

    before, points.hook = points.hook, crash
    try:
        yield
    finally:
        points.hook = before


class FakeClock:
    """A clock that a test moves: `SQLiteStore(path, clock=clock)`, and `clock.advance(20)` lets leases expire."""

    def __init__(self, now: float | None = None) -> None:
        self.now = time.time() if now is None else now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let this many seconds pass."""
        self.now += seconds
