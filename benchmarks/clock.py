"""Measures the CPU time of the process: the minimum of many runs, with the runners in turns.

Disturbances on a shared machine only add time, so the minimum is the best estimate; taking turns makes a slow minute
affect all runners alike.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


def race(
    runners: Mapping[Name, Callable[[], object]],
    *,
    rounds: int,
    laps: Mapping[Name, int] | None = None,
    budget: float = 3600.0,
) -> dict[Name, float]:
    """The minimum of the CPU seconds of each runner.

    In each round each runner runs once, or as often in a row as `laps` says (short ones want more tries: the first one
    finds the caches full of what others left there). After `budget` seconds no new round begins.
    """
    best = dict.fromkeys(runners, float("inf"))
    end = time.monotonic() + budget
    for _ in range(rounds):
        for name, run in runners.items():
            gc.collect()
            for _ in range(laps[name] if laps else 1):
                best[name] = min(best[name], _seconds(run))
        if time.monotonic() > end:
            break
    return best


def cpu_seconds(run: Callable[[], object]) -> float:
    """The CPU time of one run. The garbage collector stays enabled, as in real programs, but is run before."""
    gc.collect()
    return _seconds(run)


def _seconds(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin
