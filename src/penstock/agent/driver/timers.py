"""Timers by key: for the run, its hooks, and its calls that wait for a decision or a result (`@tool(expires=…)`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from penstock.run.commands import ExpireLater
from penstock.run.machine import Run


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


SLACK = 0.05
"""How many seconds after its expiry a stored run is woken: its log counts from when it had the request."""


class Expiries:
    """The timers of the calls that wait, by call id."""

    def __init__(self, run: Run, timers: Timers) -> None:
        self._run = run
        self._timers = timers
        self._deadlines: dict[str, float] = {}

    def start(self, command: ExpireLater, callback: Callable[[], None]) -> None:
        self._deadlines[command.call_id] = time.monotonic() + command.seconds
        self._timers.start(_key(command.call_id), command.seconds, callback)

    def settle(self) -> None:
        """Cancel the timers of calls that do not wait any more."""
        waiting = self._run.state.executions.table.waiting
        can_expire = {call_id for call_id, execution in waiting.items() if execution.can_expire}
        for call_id in self._deadlines.keys() - can_expire:
            del self._deadlines[call_id]
            self._timers.cancel(_key(call_id))

    @property
    def seconds_left(self) -> dict[str, float]:
        """How many seconds each call that waits may still wait."""
        self.settle()
        now = time.monotonic()
        return {call_id: deadline - now for call_id, deadline in self._deadlines.items()}


def pause_after(left: Mapping[str, float]) -> float | None:
    """The seconds after which a run that is paused has to continue, because a call expires; None if none does."""
    return max(0.0, min(left.values())) + SLACK if left else None


def _key(call_id: str) -> str:
    """The key of a timer; those of tools are numbers."""
    return f"call {call_id}"
