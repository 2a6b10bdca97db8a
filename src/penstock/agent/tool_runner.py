"""What both tool runners share. A tool runner starts the tools of a run, and stops them."""

from __future__ import annotations

from functools import partial
from typing import Any, Generic, TypeVar

from penstock.agent.async_tools import AsyncTools
from penstock.agent.dispatcher import Dispatcher
from penstock.agent.driven_run import DrivenRun
from penstock.agent.questions import Questions
from penstock.agent.sync_tools import SyncTools
from penstock.agent.tool_execution import ToolExecution
from penstock.log import points
from penstock.run.commands import Command, StartTool
from penstock.tools.tool import Context, Tool
from penstock.transport.worker_threads import WorkInOrder

T = TypeVar("T", SyncTools, AsyncTools)


class ToolRunner(Generic[T]):
    """The tools of a run, with their timeouts, their progress and their questions."""

    _tools: T

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher) -> None:
        self.questions = Questions(driven, dispatcher)
        self._driven = driven
        self._dispatcher = dispatcher
        self._threads = WorkInOrder()

    def stop(self, key: str) -> None:
        """Forget a tool that has ended, or cancel it."""
        self._dispatcher.timers.cancel(key)
        self.questions.close(key, "the call has ended")
        self._tools.cancel(key)
        self._dispatcher.inner.stop(key)

    def stop_all(self) -> None:
        """Cancel all tools."""
        for key in self._tools.running_keys():
            self.stop(key)
        self._dispatcher.inner.stop_all()

    def _report(self, key: str, data: Any) -> None:
        """Pass on the progress of a tool."""
        raise NotImplementedError

    def _execution(self, start: StartTool) -> ToolExecution:
        """The execution of a tool, to be started."""
        context: Context[Any] = Context(
            deps=self._driven.deps,
            call_id=start.call_id,
            tool=start.name,
            step=self._driven.run.state.step,
            report=partial(self._report, start.key),
            key=self._driven.unique_key(start.key),
            ask=partial(self.questions.ask, start),
        )
        return ToolExecution(self._tool(start), start, context, self._driven.ownership.may_start, self._threads)

    def _tool(self, start: StartTool) -> Tool[..., Any]:
        """The tool to execute: for an agent, that which makes its prompt."""
        agent = self._dispatcher.inner.tool_of(start)
        return self._driven.config.tools[start.name] if agent is None else agent.prompt

    def _start_timer(self, start: StartTool) -> None:
        """Let the tool end when its timeout expires."""
        if start.timeout is not None:
            late = partial(self._dispatcher.report, partial(self._late, start.key))
            self._dispatcher.timers.start(start.key, start.timeout, late)

    def _late(self, key: str) -> list[Command]:
        """A tool exceeded its timeout."""
        self.stop(key)
        return self._driven.run.tool_late(key)

    def _visit_end(self, key: str) -> None:
        """The point at which a tool has ended, and its log does not have the end."""
        if points.hook is not None:
            execution = self._driven.run.state.executions.table.find(key)
            self._driven.ownership.visit("after_tool_end", "" if execution is None else execution.name)
