"""The running tools of a run: one object per started call, which owns all that belongs to it until it has ended.

A plain function runs in a worker thread. An async function runs in a task: on the loop of an async run, or, in sync
code, on the loop that sync code shares. Either way the result comes back to the loop of the run, which reports it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.agent.agent_tool import AgentTool
from penstock.agent.calls.inner_runs import InnerDrivenRun, InnerRun
from penstock.agent.calls.preparations import Preparations
from penstock.agent.calls.running_tool import Report, RunningTool
from penstock.agent.calls.tool_execution import Awaited
from penstock.agent.driver.driven_run import DrivenRun
from penstock.log import points
from penstock.log.branches.past_calls import PastCalls, outcome_of
from penstock.results import Outcome, failure
from penstock.run.calls.execution import ToolTime
from penstock.run.commands import AnswerTool, PrepareTool, StartTool
from penstock.run.machine import Run
from penstock.run.outbox import MAX_AHEAD
from penstock.transport.threads.worker_threads import Work, workers

if TYPE_CHECKING:
    from penstock.agent.driver.dispatcher import Dispatcher


class RunningTools:
    """The running tools of one run, by the key of their executions. Tools are started here and nowhere else."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher) -> None:
        self.driven = driven
        self.dispatcher = dispatcher
        self.loop = dispatcher.loop
        self.lock = threading.Lock()  # for questions and reports of tools, which come from any thread
        self.inbox: deque[Report] = deque()  # reports from other threads
        self._running: dict[str, RunningTool] = {}
        self._stopped: list[RunningTool] = []  # whose tasks, or inner runs, may not have ended
        self.preparations = Preparations(driven, dispatcher)
        self._made: dict[str, InnerRun] = {}  # those that continue, and have not begun here
        self._last: Work | None = None  # plain functions begin in the order in which they were started
        driven.run.state.rules.time_of = self.time

    def start(self, start: StartTool) -> None:
        """Start a tool: a plain function in a thread, an async one in a task, an agent that continues as it was."""
        driven, key = self.driven, start.key
        past = None if (owned := driven.ownership.owned) is None else owned.past
        if past is not None and (known := _past_outcome(past, driven, start)) is not None:
            self.loop.call_soon(partial(self.dispatcher.report, partial(driven.run.tool_done, key, known)))
            return
        variables = driven.scope.variables.copy()
        if driven.scope.observer is not None:
            variables.run(driven.scope.observer.begin_tool, start)
        tool = self._running[key] = RunningTool(self, start, variables)
        used = 0.0
        if tool.tool.preparation is not None:
            call = PrepareTool(key, start.call_id, start.name, start.arguments, start.timeout)
            tool.preparing = self.preparations.take(call)
            used = tool.preparing.seconds
        if start.timeout is not None:
            tool.timer = asyncio.get_running_loop().call_later(max(0.0, start.timeout - used), tool.late)
        if tool.preparing is None:
            self.begin(tool)
        else:
            tool.preparing.claim(tool.prepared)
        if points.hook is not None:
            driven.ownership.visit("after_tool_start", start.name)

    def begin(self, tool: RunningTool) -> None:
        """Call the function of a tool that has been prepared."""
        driven, start, key = self.driven, tool.start, tool.start.key
        try:
            if tool.agent is not None and (inner := driven.run.inner.find(key)) is not None:
                made = self._made.pop(key, None) or self.make_inner(key, tool.agent, inner.run)
                tool.continue_inner(made)
            elif tool.tool.is_async:
                self.begin_task(tool)
            else:
                self._last = workers.start(tool.run_in_thread, f"penstock-{start.name}", tool.variables, self._last)
        except RuntimeError as error:  # no thread can be started
            tool.end(failure(error))

    def begin_task(self, tool: RunningTool, value: Awaited | None = None) -> None:
        """Let a tool run in a task, or await what it returned: on this loop, or on the one that sync code shares."""
        if (loop := self.driven.code.loop) is None:
            tool.run_in_task(value)
        else:
            loop.thread.call_soon(partial(tool.run_in_task, value))

    @property
    def is_on_shared_loop(self) -> bool:
        """Whether this is the thread of the loop that sync code shares, which must not block."""
        loop = self.driven.code.loop
        return loop is not None and loop.is_here

    def take_report(self) -> None:
        """Pass on the progress that a tool has reported in another thread."""
        with self.lock:
            report = self.inbox.popleft()
            report.tool.report_taken(report)
        self.dispatcher.carry_out(self.driven.run.tool_progress(report.tool.start.key, report.data))

    @property
    def is_behind(self) -> bool:
        """Whether too many events are unread."""
        outbox = self.driven.outbox
        return outbox.is_full or len(self.inbox) + outbox.unread > MAX_AHEAD

    def answer(self, command: AnswerTool) -> None:
        """The answer to the question of a tool has come."""
        if (tool := self._running.get(command.key)) is not None:
            tool.answer(command.outcome)

    def time(self, key: str) -> ToolTime | None:
        """When a running tool began, and how long it has run; None if there is none."""
        tool = self._running.get(key)
        return None if tool is None else tool.clock.time

    def stop(self, key: str) -> None:
        """Cancel a tool, if it has not ended, or what prepares it."""
        self.preparations.stop(key)
        if (tool := self._running.get(key)) is not None:
            tool.stop()

    def stop_all(self) -> None:
        """Cancel all tools."""
        for tool in list(self._running.values()):
            tool.stop()

    def prevent(self) -> None:
        """Prevent tools from starting, and signal those that run to end; from any thread."""
        for tool in list(self._running.values()):
            tool.prevent()
            if tool.inner is not None:
                tool.inner.dispatcher.prevent()

    def forget(self, tool: RunningTool) -> None:
        """A tool has ended, or was stopped."""
        self._running.pop(tool.start.key, None)
        if tool.task is not None or tool.inner is not None:
            self._stopped.append(tool)

    def close(self) -> list[asyncio.Future[Any]]:
        """Cancel all; returns what ends soon, to be waited for."""
        self.stop_all()
        stopped, self._stopped = self._stopped, []
        left: list[asyncio.Future[Any]] = [*self.preparations.close()]
        for tool in stopped:
            if tool.task is not None:
                tool.gone = asyncio.get_running_loop().create_future()
                left.append(tool.gone)
            if tool.inner is not None:
                left += tool.inner.dispatcher.close()
        return left

    # -- agents that run in calls ----------------------------------------------------------------------------------

    def inner(self) -> list[Dispatcher]:
        """The dispatchers of the agents that run."""
        return [tool.inner.dispatcher for tool in list(self._running.values()) if tool.inner is not None]

    def prepare_inner(self) -> list[Dispatcher]:
        """The dispatchers of inner runs that continue, before they begin: their tools may have to be listed."""
        for inner in self.driven.run.inner:
            execution = self.driven.run.state.executions.table.find(inner.key)
            tool = None if execution is None else self.driven.config.tools.get(execution.name)
            if isinstance(tool, AgentTool) and inner.key not in self._made:
                self._made[inner.key] = self.make_inner(inner.key, tool, inner.run)
        return [made.dispatcher for made in self._made.values()]

    def holder(self, call_id: str) -> Dispatcher:
        """The dispatcher of the run in which this call waits: that of this run, or of an inner one."""
        inner = self.driven.run.inner.holder(call_id)
        tool = None if inner is None else self._running.get(inner.key)
        return self.dispatcher if tool is None or tool.inner is None else tool.inner.dispatcher.tools.holder(call_id)

    def make_inner(self, key: str, tool: AgentTool, run: Run) -> InnerRun:
        """The run of an agent inside a call."""
        driven = InnerDrivenRun(tool.config, run, self.driven, key)
        return InnerRun(driven, self.dispatcher.new_inner(driven, key))


def _past_outcome(past: PastCalls, driven: DrivenRun, start: StartTool) -> Outcome | None:
    """The result that a call of a fork had in the parent: its effect is not repeated."""
    if not start.awaits_reader or driven.run.inner.find(start.key):
        return None
    call = past.take(driven.agent_tools, start)
    return None if call is None else outcome_of(call)
