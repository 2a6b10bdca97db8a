"""How time grows with the input, measured so that a busy machine does not decide."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable

RUNS = (1, 1, 3, 3, 3, 3, 5, 5, 5)
"""How often the larger work runs in each round.

One round is enough unless the machine is busy: what grows too fast does so in every round, what others add does not.
"""
SMALL_RUNS = 3
"""How often the smaller work runs for each run of the larger: if all were disturbed, growth would go unnoticed."""


def assert_linear(
    prepare: Callable[[int], Callable[[], object]], size: int, factor: int = 4, exponent: float = 1.5
) -> None:
    """Assert that `factor` times the input takes at most `factor ** exponent` times the CPU.

    `prepare(size)` gives the work that is timed; what it does itself is not. Quadratic work has the exponent 2.
    """
    found = []
    for runs in RUNS:
        small, large = _least(prepare, size, factor, runs)
        found.append(math.log(large / small) / math.log(factor))
        if found[-1] <= exponent:
            return
    raise AssertionError(f"{factor} times the input took {factor ** min(found):.1f} times the time: {found}")


def _least(prepare: Callable[[int], Callable[[], object]], size: int, factor: int, runs: int) -> tuple[float, float]:
    """The least of some runs of each, in turns: what disturbs the one is likely to disturb the other."""
    small = large = math.inf
    for _ in range(runs):
        small = min(small, *(cpu(prepare(size)) for _ in range(SMALL_RUNS)))
        large = min(large, cpu(prepare(size * factor)))
    return small, large


def cpu(work: Callable[[], object]) -> float:
    """The seconds of CPU. Python's collector is off: a pass of its walks the heap of the whole test session."""
    gc.collect(1)
    gc.disable()
    try:
        start = time.process_time()
        work()
        return time.process_time() - start
    finally:
        gc.enable()
