"""How time is taken: as CPU time of the process, in turns, and the least of many.

On a machine that others use too, a single time says little and a mean says less. What disturbs a run only ever adds to
it, so the least of many is nearest to the truth; and taking turns lets a slow minute slow all runners alike.
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
    """The least CPU seconds of each runner.

    In each round each runner runs once, or as often as `laps` says (short ones want more tries). After `budget` seconds
    no new round begins.
    """
    best = dict.fromkeys(runners, float("inf"))
    end = time.monotonic() + budget
    for _ in range(rounds):
        for name, run in runners.items():
            for _ in range(laps[name] if laps else 1):
                best[name] = min(best[name], cpu_seconds(run))
        if time.monotonic() > end:
            break
    return best


def cpu_seconds(run: Callable[[], object]) -> float:
    """The CPU time of one run. The garbage collector stays on, as it is where people use this, but starts out clean."""
    gc.collect()
    begin = time.process_time()
    run()
    return time.process_time() - begin
