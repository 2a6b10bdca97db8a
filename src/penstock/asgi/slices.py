"""Long Python work on the event loop, cut into slices: other tasks run between two of them.

Work is a generator that yields wherever it can be interrupted, and returns its result. How often it yields does not
matter, as long as the time between two yields is short; the event loop gets a turn only when a slice has ended. A
thread would not help: Python code of two threads runs in turns too, and the decoders hold the interpreter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

SLICE_SECONDS = 0.005
"""How long a slice takes at most, if the work yields often enough."""


async def in_slices(work: Generator[None, None, T], seconds: float = SLICE_SECONDS) -> T:
    """The result of some work, done in slices. A task that is cancelled closes the generator."""
    clock = time.monotonic
    try:
        end = clock() + seconds
        while True:
            next(work)
            if clock() > end:
                await asyncio.sleep(0)
                end = clock() + seconds
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        work.close()


def at_once(work: Generator[None, None, T]) -> T:
    """The result of the same work in sync code."""
    try:
        while True:
            next(work)
    except StopIteration as stop:
        result: T = stop.value
        return result
