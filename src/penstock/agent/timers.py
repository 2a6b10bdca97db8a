"""Timers by key: one for each tool with a timeout, and one for the run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol


class _Timer(Protocol):
    def cancel(self) -> None: ...


class Timers:
    """Timers that call back on the running event loop."""

    def __init__(self) -> None:
        self._timers: dict[str, _Timer] = {}

    def start(self, key: str, seconds: float, callback: Callable[[], None]) -> None:
        self._timers[key] = self._start(seconds, callback)

    def cancel(self, key: str) -> None:
        """Cancel the timer of this key, if there is one."""
        if key in self._timers:
            self._timers.pop(key).cancel()

    def close(self) -> None:
        """Cancel all."""
        for timer in list(self._timers.values()):
            timer.cancel()
        self._timers.clear()

    def _start(self, seconds: float, callback: Callable[[], None]) -> _Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


class ThreadTimers(Timers):
    """Timers that call back in threads of their own."""

    def _start(self, seconds: float, callback: Callable[[], None]) -> _Timer:
        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), callback)
        timer.daemon = True
        timer.start()
        return timer
