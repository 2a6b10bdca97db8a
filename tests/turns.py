"""Counts the turns that an event loop makes while something else runs on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def counted_turns() -> AsyncIterator[Callable[[], int]]:
    """Says how many turns the loop has made since the block was entered."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        yield lambda: turns
    finally:
        counting.cancel()
