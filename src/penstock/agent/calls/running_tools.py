"""The running tools of a run: one object per started call, which owns all that belongs to it until it has ended.

A plain function runs in a worker thread. An async function runs in a task: on the loop of an async run, or, in sync
code, on the loop that sync code shares. Either way the result comes back to the loop of the run, which reports it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context as Variables
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from penstock.agent.agent_tool import AgentTool
from penstock.agent.calls.inner_runs import InnerDrivenRun, InnerRun
from penstock.agent.calls.questions import Question, refused
from penstock.agent.calls.tool_execution import Awaited, ToolClock, ToolExecution
from penstock.agent.driver.caller_loop import is_stopped
from penstock.agent.driver.driven_run import DrivenRun
from penstock.log import points
from penstock.results import Outcome, failure
from penstock.run.calls.execution import ToolTime
from penstock.run.commands import AnswerTool, Command, StartTool
from penstock.run.machine import Run
from penstock.run.outbox import MAX_AHEAD
from penstock.tools.tool import Context
from penstock.transport.threads.loop_thread import close_coroutine
from penstock.transport.threads.worker_threads import Work, workers

if TYPE_CHECKING:
    from penstock.agent.driver.dispatcher import Dispatcher

PAUSE = 0.01
"""How many seconds a thread sleeps before it checks again whether the reader has caught up."""


class Report(Struct, eq=False):
    """Progress that a tool reported in another thread than that of the run."""

    tool: RunningTool
    data: Any


class RunningTool:
    """A started call of a tool: its thread or task, its timer, its question, and the run of an agent inside it.

    Its end is reported to the machine once. One that was stopped reports nothing: its result is not needed any more.
    """

    def __init__(self, tools: RunningTools, start: StartTool, variables: Variables) -> None:
        driven = tools.driven
        tool = driven.config.tools[start.name]
        self.start = start
        self.agent = tool if isinstance(tool, AgentTool) else None  # whose prompt the execution makes
        self.tool = tool if self.agent is None else self.agent.prompt
        self.variables = variables
        self.clock = ToolClock()  # times the function, or the agent inside it
        self.timer: asyncio.TimerHandle | None = None
        self.question: Question | None = None
        self.inner: InnerRun | None = None
        self.task: asyncio.Task[Outcome] | None = None
        self.gone: asyncio.Future[None] | None = None  # its task has ended, for whoever waits for it
        self._tools = tools
        self._report: Report | None = None  # the last one in the inbox
        self._is_stopped = threading.Event()
        context: Context[Any] = Context(
            driven.deps, start.call_id, start.name, driven.run.state.step, self.report, self._is_stopped.is_set,
            driven.key_prefix + start.key, self.ask,
        )  # fmt: skip
        owned = driven.ownership.owned
        may_start = None if owned is None else driven.ownership.may_start
        self._execution = ToolExecution(self.tool, start, context, may_start, self.clock)

    # -- its thread or task --------------------------------------------------------------------------------------

    def run_in_thread(self) -> None:
        """Call the function in this thread, and give its result to the loop of the run."""
        value = self._execution.run_in_thread()
        self._tools.loop.call_soon(partial(self._returned, value))

    def run_in_task(self, value: Awaited | None = None) -> None:
        """Run the function in a task of this loop, or await the value that it returned."""
        if self._is_stopped.is_set():
            close_coroutine(value)
            self._tools.loop.call(self._left)
            return
        work = self._execution.run_on_loop(self._room, value)
        self.task = asyncio.get_running_loop().create_task(work, context=self.variables.copy())
        self.task.add_done_callback(partial(self._task_ended, value))

    def prevent(self) -> None:
        """Prevent the function from being called, or signal it to end; from any thread."""
        self._is_stopped.set()

    def _returned(self, value: Outcome | Awaited) -> None:
        """The function returned, in its thread."""
        if isinstance(value, Outcome):
            self.end(value)
        elif self._is_stopped.is_set():
            close_coroutine(value)
        else:
            self._tools.begin_task(self, value)

    def _task_ended(self, value: Awaited | None, task: asyncio.Task[Outcome]) -> None:
        if value is not None:
            close_coroutine(value)  # a task that was cancelled before its first step never awaited it
        if not task.cancelled() and isinstance(task.exception(), KeyboardInterrupt | SystemExit):
            return  # it has ended the loop already
        outcome = failure(asyncio.CancelledError()) if task.cancelled() else task.result()
        if self._tools.driven.code.loop is not None:  # another loop than that of the run
            self._tools.loop.call_soon(partial(self._left, outcome))
            return
        if task.cancelled() and is_stopped(task) and not self._is_stopped.is_set() and self._tools.driven.can_give_back:
            self._tools.dispatcher.give_back()
        self._left(outcome)

    def _left(self, outcome: Outcome | None = None) -> None:
        """Its task has ended, or never begins."""
        self.task = None
        if self.gone is not None and not self.gone.done():
            self.gone.set_result(None)
        if outcome is not None:
            self.end(outcome)

    # -- what it does meanwhile ------------------------------------------------------------------------------------

    def report(self, data: Any) -> None:
        """Pass on the progress of the tool, from any thread.

        In a thread, this waits for a slow reader. On a loop it cannot wait, and replaces the last unread report.
        """
        tools = self._tools
        if tools.loop.is_here:
            tools.dispatcher.carry_out(tools.driven.run.tool_progress(self.start.key, data))
            return
        while tools.is_behind and not tools.is_on_shared_loop and not self._is_stopped.is_set():
            time.sleep(PAUSE)
        if self._is_stopped.is_set():
            return
        with tools.lock:
            if self._report is not None and tools.is_behind:
                self._report.data = data
                return
            self._report = Report(self, data)
            tools.inbox.append(self._report)
        tools.loop.call_soon(tools.take_report)

    def report_taken(self, report: Report) -> None:
        """The run takes a report, which cannot be replaced any more; `RunningTools.lock` is held."""
        if self._report is report:
            self._report = None

    async def _room(self) -> None:
        """Wait until the reader has caught up."""
        if self._tools.loop.is_here:
            await self._tools.dispatcher.room()
        while self._tools.is_behind and not self._is_stopped.is_set():  # noqa: ASYNC110  # another thread reads
            await asyncio.sleep(PAUSE)

    def ask(self, question: dict[str, Any], seconds: float) -> Future[Outcome]:
        """Ask the reader what the tool wants to know, from any thread; returns the answer, to wait for."""
        driven, asked = self._tools.driven, Question()
        if not driven.config.is_read and not driven.ownership.has_log:
            return refused("nobody reads this run, so nobody can answer")
        with self._tools.lock:
            if self.question is not None:
                return refused("the call asks another question, which has no answer yet")
            self.question = asked
        emit = partial(self._emit_question, asked, question, seconds)
        self._tools.loop.call(partial(self._tools.dispatcher.report, emit))
        return asked.answer

    def answer(self, outcome: Outcome) -> None:
        """The answer to its question has come."""
        question, self.question = self.question, None  # first: the tool may ask again as soon as it has the answer
        if question is not None:
            question.resolve(outcome)

    def _emit_question(self, asked: Question, question: dict[str, Any], seconds: float) -> list[Command]:
        """The commands for a question; they start its timer."""
        if not (commands := self._tools.driven.run.tool_asks(self.start.key, question)):
            self._close_question("the call has ended")
        else:
            asked.timer = asyncio.get_running_loop().call_later(seconds, self._question_late, seconds)
        return commands

    def _question_late(self, seconds: float) -> None:
        """The time for an answer is over."""
        self._tools.driven.run.question_closed(self.start.key)
        self._tools.driven.outbox.withdraw(self.start.call_id, "input")
        self._close_question(f"no answer came within {seconds:g} seconds")

    def _close_question(self, why: str) -> None:
        question, self.question = self.question, None
        if question is not None:
            question.refuse(why)

    # -- its end ---------------------------------------------------------------------------------------------------

    def end(self, outcome: Outcome) -> None:
        """The function has ended. One that made the prompt of an agent starts its run; any other call has ended."""
        driven, key = self._tools.driven, self.start.key
        if self.agent is not None and not outcome.is_error and not self._is_stopped.is_set():
            if (error := self._begin_inner(self.agent, outcome.data)) is None:
                return
            outcome = error
        if self._is_stopped.is_set():
            return
        if points.hook is not None:
            driven.ownership.visit("after_tool_end", self.start.name)
        self.stop()
        self._tools.dispatcher.report(partial(driven.run.tool_done, key, outcome, self.clock.time))

    def late(self) -> None:
        """The timeout of the call has expired."""
        self.stop()
        self._tools.dispatcher.report(partial(self._tools.driven.run.tool_late, self.start.key, self.clock.time))

    def stop(self) -> None:
        """Forget the call: cancel what still runs of it. A plain function cannot be stopped, and may run on."""
        self._is_stopped.set()
        self._tools.forget(self)
        if self.timer is not None:
            self.timer.cancel()
        if self.question is not None:
            self._close_question("the call has ended")
        if (task := self.task) is not None:
            with suppress(RuntimeError):  # its loop is closed
                task.cancel() if self._tools.driven.code.loop is None else _cancel_elsewhere(task)
        if self.inner is not None:
            self.inner.end()

    def continue_inner(self, inner: InnerRun) -> None:
        """The run of its agent continues, or begins."""
        self.inner = inner
        self.clock.resume()
        self.variables.copy().run(inner.begin)

    def _begin_inner(self, agent: AgentTool, prompt: Any) -> Outcome | None:
        """Begin the run of an agent with its prompt; returns the outcome if the prompt is not one."""
        tools, run = self._tools, self._tools.driven.run
        try:
            messages = agent.first_messages(prompt)
        except Exception as error:  # noqa: BLE001  # the prompt is what a user's function returned
            return failure(error)
        tools.dispatcher.report(partial(run.inner_begins, self.start.key, messages, agent.agent.name or agent.name))
        if (inner := run.inner.find(self.start.key)) is None:
            self.stop()
        else:
            self.continue_inner(tools.make_inner(self.start.key, agent, inner.run))
        return None


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
        self._made: dict[str, InnerRun] = {}  # those that continue, and have not begun here
        self._last: Work | None = None  # plain functions begin in the order in which they were started

    def start(self, start: StartTool) -> None:
        """Start a tool: a plain function in a thread, an async one in a task, an agent that continues as it was."""
        driven, key = self.driven, start.key
        variables = driven.scope.variables.copy()
        if driven.scope.observer is not None:
            variables.run(driven.scope.observer.begin_tool, start)
        tool = self._running[key] = RunningTool(self, start, variables)
        if start.timeout is not None:
            tool.timer = asyncio.get_running_loop().call_later(start.timeout, tool.late)
        try:
            if tool.agent is not None and (inner := driven.run.inner.find(key)) is not None:
                made = self._made.pop(key, None) or self.make_inner(key, tool.agent, inner.run)
                tool.continue_inner(made)
            elif tool.tool.is_async:
                self.begin_task(tool)
            else:
                self._last = workers.start(tool.run_in_thread, f"penstock-{start.name}", variables, self._last)
        except RuntimeError as error:  # no thread can be started
            tool.end(failure(error))
        if points.hook is not None:
            driven.ownership.visit("after_tool_start", start.name)

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
        """Cancel a tool, if it has not ended."""
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
        left: list[asyncio.Future[Any]] = []
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


def _cancel_elsewhere(task: asyncio.Task[Any]) -> None:
    """Cancel a task of another loop."""
    task.get_loop().call_soon_threadsafe(task.cancel)
