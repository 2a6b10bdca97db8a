"""The tools of a run in async code: starts them, passes on their progress, and reports their outcomes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import Any

from penstock.agent.async_tools import AsyncTools
from penstock.agent.caller_loop import CallerLoop, is_stopped
from penstock.agent.dispatcher import PAUSE, Dispatcher
from penstock.agent.driven_run import DrivenRun
from penstock.agent.tool_execution import Room
from penstock.agent.tool_runner import ToolRunner
from penstock.results import Outcome, failure
from penstock.run.commands import StartTool
from penstock.run.outbox import MAX_AHEAD


class AsyncToolRunner(ToolRunner[AsyncTools]):
    """The tools of a run that is read in async code. `room` waits until the reader has caught up."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher, loop: CallerLoop, room: Room) -> None:
        super().__init__(driven, dispatcher)
        self._loop = loop
        self._room = room
        self._tools = AsyncTools(self._ended)
        self._inbox: deque[tuple[str, Any]] = deque()  # progress that threads have reported

    def start(self, start: StartTool) -> None:
        """Start a tool in a task."""
        self._start_timer(start)
        variables = self._driven.scope.of_tool(start)
        if not self._dispatcher.inner.expect(start, variables):
            self._tools.start(start.key, self._execution(start), self._room, variables)
        self._driven.ownership.visit("after_tool_start", start.name)

    def prevent(self) -> None:
        """Prevent tools from starting, and signal those that run to end; from any thread."""
        self._tools.prevent()

    def close(self) -> list[asyncio.Task[Outcome]]:
        """Forget all; returns their tasks."""
        return self._tools.close()

    def _report(self, key: str, data: Any) -> None:
        """Pass on the progress of a tool; in a thread, when the reader has caught up."""
        if self._loop.is_here:
            self._dispatcher.carry_out(self._driven.run.tool_progress(key, data))
            return
        outbox = self._driven.outbox
        while self._tools.is_running(key) and (outbox.is_full or len(self._inbox) + outbox.unread > MAX_AHEAD):
            time.sleep(PAUSE)
        if self._tools.is_running(key):
            self._inbox.append((key, data))
            self._loop.call(self._take_in)

    def _take_in(self) -> None:
        self._dispatcher.carry_out(self._driven.run.tool_progress(*self._inbox.popleft()))

    def _ended(self, key: str, task: asyncio.Task[Outcome]) -> None:
        if not task.cancelled() and isinstance(task.exception(), KeyboardInterrupt | SystemExit):
            return  # it has ended the loop already
        if not self._tools.is_cancelled(key) and is_stopped(task) and self._driven.can_give_back:
            self._dispatcher.give_back()
        ended = failure(asyncio.CancelledError()) if task.cancelled() else task.result()
        outcome = self._dispatcher.inner.prompted(key, ended)
        self._tools.forget(key)
        if outcome is None:
            return
        self._driven.scope.tool_ended(key)
        self._visit_end(key)
        self.stop(key)
        self._dispatcher.report(partial(self._driven.run.tool_done, key, outcome))
