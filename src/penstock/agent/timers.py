"""Timers by key: one for each tool with a timeout, and one for the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Protocol

from penstock.agent.tool_execution import in_thread
from penstock.transport.watchdog import watchdog


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
    """Timers that call back in threads of their own. Until then they need none: the watchdog waits for all of them."""

    def _start(self, seconds: float, callback: Callable[[], None]) -> _Timer:
        return _ThreadTimer(seconds, callback)


class _ThreadTimer:
    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self.deadline: float | None = time.monotonic() + seconds
        self._callback = callback
        watchdog.watch(self)

    def cancel(self) -> None:
        watchdog.forget(self)

    def expire(self) -> None:
        try:
            in_thread(self._callback, "timer", copy_context())
        except RuntimeError:  # no thread can be started, and a timeout that is late is better than none
            self._callback()
