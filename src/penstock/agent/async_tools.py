"""The tools of a run in async code: each in a task of the run's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context as Variables
from functools import partial

from penstock.agent.tool_execution import Room, ToolExecution
from penstock.results import Outcome

End = Callable[[str, asyncio.Task[Outcome]], None]


class AsyncTools:
    """Starts tools and cancels them. `end` is called with the key of each execution and its task.

    A tool that is cancelled and does not end is left alone.
    """

    def __init__(self, end: End) -> None:
        self._end = end
        self._tasks: dict[str, asyncio.Task[Outcome]] = {}
        self._executions: dict[str, ToolExecution] = {}  # those that were not cancelled

    def start(self, key: str, execution: ToolExecution, room: Room, variables: Variables) -> None:
        """Run a tool in a task of its own."""
        self._executions[key] = execution
        task = self._tasks[key] = asyncio.create_task(execution.run_on_loop(room), context=variables.copy())
        task.add_done_callback(partial(self._end, key))

    def is_running(self, key: str) -> bool:
        return key in self._tasks

    def is_cancelled(self, key: str) -> bool:
        return key not in self._executions

    def running_keys(self) -> list[str]:
        """The keys of the executions that have not ended."""
        return list(self._tasks)

    def prevent(self) -> None:
        """Cancel executions that have not begun, and signal the others to end; from any thread."""
        for execution in list(self._executions.values()):
            execution.cancel()

    def cancel(self, key: str) -> None:
        """Cancel an execution, if it has not ended."""
        if key in self._executions:
            self._executions.pop(key).cancel()
        if key in self._tasks:
            with suppress(RuntimeError):  # the loop is closed
                self._tasks[key].cancel()

    def forget(self, key: str) -> None:
        """An execution has ended."""
        self.cancel(key)
        self._tasks.pop(key, None)

    def close(self) -> list[asyncio.Task[Outcome]]:
        """Forget all; returns the tasks."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        return tasks
