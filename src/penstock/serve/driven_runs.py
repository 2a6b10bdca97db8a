"""The runs that this process drives, and their limits."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from penstock.asgi.limits import ServerLimits
from penstock.asgi.request import RejectedRequest
from penstock.log.store import RunRow
from penstock.runs.runs import Runs

logger = logging.getLogger("penstock.serve")

STEERED = ("waiting", "ready", "damaged")
"""The states in which a run must be driven after an input."""


class DrivenRuns:
    """The runs that were started or continued here, each with its task and its tenant."""

    def __init__(self, runs: Runs, limits: ServerLimits) -> None:
        self._runs = runs
        self._limits = limits
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._tenants: dict[str, str] = {}
        self._again: set[str] = set()  # runs that got an input while their tasks were about to end

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def drive(self, run_id: str, tenant: str) -> None:
        """Drive a run in the background, unless this process does so already."""
        if run_id in self._tasks:
            self._again.add(run_id)
            return
        task = asyncio.create_task(self._drive(run_id))
        self._tasks[run_id] = task
        self._tenants[run_id] = tenant
        task.add_done_callback(partial(self._ended, run_id))

    def check_room(self, tenant: str) -> None:
        """Raise a `RejectedRequest` if there is no room for another run of this tenant."""
        of_tenant = sum(other == tenant for other in self._tenants.values())
        if len(self) >= self._limits.runs or of_tenant >= self._limits.tenant_runs:
            raise RejectedRequest(429, "too_many_runs", "too many runs at once; try again later", {"retry-after": "5"})

    def check_room_to_go_on(self, row: RunRow) -> None:
        """Raise a `RejectedRequest` if there is no room to continue a waiting run."""
        if row.state in STEERED and row.id not in self._tasks:
            self.check_room(row.tenant)

    async def close(self, seconds: float) -> None:
        """Wait this many seconds for runs to finish; the others are released to another worker."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _drive(self, run_id: str) -> None:
        await self._runs.adrive(run_id)

    def _ended(self, run_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(run_id, None)
        tenant, is_again = self._tenants.pop(run_id, ""), run_id in self._again
        self._again.discard(run_id)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            logger.error("the run %s could not be continued: %s", run_id, error)
        elif is_again:
            self.drive(run_id, tenant)
