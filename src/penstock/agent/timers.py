"""Timers by key: for the run, its hooks, and its calls that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timers:
    """Timers that call back on the running event loop."""

    def __init__(self) -> None:
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def start(self, key: str, seconds: float, callback: Callable[[], None]) -> None:
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, callback)

    def cancel(self, key: str) -> None:
        """Cancel the timer of this key, if there is one."""
        if key in self._timers:
            self._timers.pop(key).cancel()

    def close(self) -> None:
        """Cancel all."""
        for timer in list(self._timers.values()):
            timer.cancel()
        self._timers.clear()
