"""Progress of a call, from the loop of the connections to the loop of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

INTERVAL = 0.05
"""The minimum seconds between two reports of one call. If a server reports more often, the newest report counts."""


class ProgressRelay:
    """Passes on the progress of a call; created and closed on the loop of the run."""

    def __init__(self, report: Callable[[Any], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._report = report
        self._latest: dict[str, Any] | None = None
        self._is_due = False
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def offer(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass on progress of the server; called on the loop of the connections, and never waits."""
        self._latest = {"progress": progress, "total": total, "message": message}
        if not self._is_due:
            self._is_due = True
            try:
                self._loop.call_soon_threadsafe(self._schedule)
            except RuntimeError:  # the loop is closed
                pass

    def close(self) -> None:
        """Report the remaining progress: the call has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush()

    def _schedule(self) -> None:
        delay = max(0.0, self._next - self._loop.time())
        self._timer = self._loop.call_later(delay, self._flush)

    def _flush(self) -> None:
        self._is_due = False
        latest, self._latest = self._latest, None
        if latest is not None:
            self._next = self._loop.time() + INTERVAL
            self._report({key: value for key, value in latest.items() if value is not None})
