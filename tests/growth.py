"""How time grows with the input, measured so that a busy machine does not decide."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable

ROUNDS = 6  # what grows too fast does so in every round; what a busy machine adds, it does not
RUNS = 3


def assert_linear(
    prepare: Callable[[int], Callable[[], object]], size: int, factor: int = 4, exponent: float = 1.5
) -> None:
    """Assert that `factor` times the input takes at most `factor ** exponent` times the CPU.

    `prepare(size)` gives the work that is timed; what it does itself is not. Quadratic work has the exponent 2.
    """
    found = []
    for _ in range(ROUNDS):
        small, large = _least(prepare, size, factor)
        found.append(math.log(large / small) / math.log(factor))
        if found[-1] <= exponent:
            return
    raise AssertionError(f"{factor} times the input took {factor ** min(found):.1f} times the time: {found}")


def _least(prepare: Callable[[int], Callable[[], object]], size: int, factor: int) -> tuple[float, float]:
    """The least of some runs of each, in turns: what disturbs the one is likely to disturb the other."""
    small = large = math.inf
    for _ in range(RUNS):
        small = min(small, *(cpu(prepare(size)) for _ in range(RUNS)))
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
