"""The tools of a run in sync code: starts them, passes on their progress, and reports their outcomes."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any

from penstock.agent.dispatcher import PAUSE, Dispatcher
from penstock.agent.driven_run import DrivenRun
from penstock.agent.sync_tools import SyncTools
from penstock.agent.tool_runner import ToolRunner
from penstock.results import Outcome, failure
from penstock.run.commands import Command, StartTool
from penstock.transport.loop_thread import Joinable, RunLoop


class SyncToolRunner(ToolRunner[SyncTools]):
    """The tools of a run that is read in sync code. The lock is the run's; it is held while a tool is started."""

    def __init__(
        self, driven: DrivenRun, dispatcher: Dispatcher, lock: threading.RLock, loop: RunLoop | None = None
    ) -> None:
        super().__init__(driven, dispatcher)
        self._lock = lock
        self._tools = SyncTools(lock, self._ended, loop)

    @property
    def loop(self) -> RunLoop:
        """The loop on which async tools run."""
        return self._tools.loop

    def start(self, start: StartTool) -> list[Command]:
        """Start a tool; returns the commands that follow if no thread can be started."""
        execution = self._execution(start)
        try:
            self._start_timer(start)
            variables = self._driven.scope.of_tool(start)
            if not self._dispatcher.inner.expect(start, variables):
                self._tools.start(self._tool(start), start, execution, partial(self._room, start.key), variables)
            self._driven.ownership.visit("after_tool_start", start.name)
        except RuntimeError as error:
            self.stop(start.key)
            return self._driven.guarded(partial(self._driven.run.tool_done, start.key, failure(error)))
        return []

    def close(self) -> list[Joinable]:
        """Cancel what can be stopped; returns the threads and tasks that end soon."""
        return self._tools.close()

    def _report(self, key: str, data: Any) -> None:
        """Pass on the progress of a tool, when the reader has caught up.

        On the loop it does not wait: an async callback runs there too, and the reader may be waiting for it.
        """
        while True:
            with self._lock:
                if not self._driven.outbox.is_full or self.loop.is_here or not self._tools.is_running(key):
                    self._dispatcher.report(partial(self._driven.run.tool_progress, key, data))
                    return
            time.sleep(PAUSE)

    async def _room(self, key: str) -> None:
        """Wait until the reader has caught up, for an async tool."""
        while self._driven.outbox.is_full and self._tools.is_running(key):  # noqa: ASYNC110  # another thread reads
            await asyncio.sleep(PAUSE)

    def _ended(self, key: str, outcome: Outcome) -> None:
        ended = self._dispatcher.inner.prompted(key, outcome)
        if ended is None:
            self._tools.forget(key)
            return
        self._driven.scope.tool_ended(key)
        self._visit_end(key)
        self.stop(key)
        self._dispatcher.report(partial(self._driven.run.tool_done, key, ended))
