"""The wake-up of the task that reads a run."""

from __future__ import annotations

import asyncio


class Wakeup:
    """Wakes the one task that waits, on its loop.

    A reader waits for almost every event, and an `asyncio.Event`, which any number of tasks can wait for, costs several
    times as much.
    """

    __slots__ = ("_loop", "_waiter")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the task, if it waits."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """The next call of `set`, to be awaited at once."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        return waiter
