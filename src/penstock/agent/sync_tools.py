"""The tools of a run in sync code: each in a thread, or, if it is async, on the event loop of the run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from typing import Any

from penstock.agent.tool_execution import Room, ToolExecution
from penstock.results import Outcome, failure
from penstock.run.commands import StartTool
from penstock.tools.tool import Tool
from penstock.transport.loop_thread import Joinable, RunLoop
from penstock.transport.worker_threads import Work

End = Callable[[str, Outcome], None]


class SyncTools:
    """Starts tools and cancels them. `end` is called with the key of each execution and its outcome.

    The lock is the driver's: it is held during all these methods and during `end`.
    """

    def __init__(self, lock: threading.RLock, end: End, loop: RunLoop | None = None) -> None:
        self.loop = loop or RunLoop()
        self._lock = lock
        self._end = end
        self._cancels: dict[str, Callable[[], None]] = {}
        self._threads: dict[ToolExecution, Work] = {}

    def start(
        self, tool: Tool[..., Any], start: StartTool, execution: ToolExecution, room: Room, variables: Variables
    ) -> None:
        """Start a tool; raises a `RuntimeError` if no thread can be started."""
        if tool.is_async:
            self._start_on_loop(start.key, execution, room, variables)
        else:
            self._start_in_thread(start, execution, room, variables)

    def is_running(self, key: str) -> bool:
        return key in self._cancels

    def running_keys(self) -> list[str]:
        """The keys of the executions that have not ended."""
        return list(self._cancels)

    def cancel(self, key: str) -> None:
        """Forget an execution, and cancel it if it has not ended."""
        if key in self._cancels:
            self._cancels.pop(key)()

    def forget(self, key: str) -> None:
        """An execution has ended."""
        self._cancels.pop(key, None)

    def close(self) -> list[Joinable]:
        """Cancel the tasks; returns what ends soon. A plain function cannot be stopped and may run on."""
        threads: list[Joinable] = [thread for execution, thread in self._threads.items() if execution.can_stop]
        self._threads = {}
        return [*threads, *self.loop.close()]

    def _start_on_loop(self, key: str, execution: ToolExecution, room: Room, variables: Variables) -> None:
        def end(task: Future[Any]) -> None:
            error = task.exception()
            with self._lock:
                self._end(key, task.result() if error is None else failure(error))

        def cancel() -> None:
            execution.cancel()  # at once: the loop may be about to begin it
            task.stop()

        task = self.loop.begin(execution.run_on_loop(room), variables.copy())
        self._cancels[key] = cancel
        task.add_done_callback(end)

    def _start_in_thread(self, start: StartTool, execution: ToolExecution, room: Room, variables: Variables) -> None:
        def run() -> None:
            outcome = execution.run_in_thread(partial(self.loop.begin, variables=copy_context()), room)
            with self._lock:
                self._threads.pop(execution, None)
                self._end(start.key, outcome)

        self._cancels[start.key] = execution.cancel
        self._threads[execution] = execution.begin_thread(run, variables)
