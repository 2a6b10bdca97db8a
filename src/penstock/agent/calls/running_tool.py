"""A started call of a tool: one object owns all that belongs to it until it has ended."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context as Variables
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.agent.agent_tool import AgentTool
from penstock.agent.calls.inner_runs import InnerRun
from penstock.agent.calls.preparations import Preparing
from penstock.agent.calls.questions import Question, refused
from penstock.agent.calls.tool_execution import Awaited, ToolClock, ToolExecution
from penstock.agent.driver.caller_loop import is_stopped
from penstock.log import points
from penstock.results import Outcome, error_outcome, failure
from penstock.run.commands import Command, StartTool
from penstock.sentences import timed_out
from penstock.tools.prepare import Prepared
from penstock.tools.tool import Context
from penstock.transport.threads.loop_thread import close_coroutine

if TYPE_CHECKING:
    from penstock.agent.calls.running_tools import RunningTools

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
        self.preparing: Preparing | None = None  # what it waits for
        self.task: asyncio.Task[Outcome] | None = None
        self.gone: asyncio.Future[None] | None = None  # its task has ended, for whoever waits for it
        self._tools = tools
        self._report: Report | None = None  # the last one in the inbox
        self._stopped = threading.Lock()  # taken once it is stopped: an event costs several times as much
        context: Context[Any] = Context(
            driven.deps, start.call_id, start.name, driven.run.state.tally.step, self.report, self._stopped.locked,
            driven.key_prefix + start.key, self.ask, None, lambda: driven.run.state.history_before,
        )  # fmt: skip
        owned = driven.ownership.owned
        may_start = None if owned is None else driven.ownership.may_start
        self._execution = ToolExecution(self.tool, start, context, may_start, self.clock)

    # -- its thread or task --------------------------------------------------------------------------------------

    def prepared(self, result: Prepared | Outcome) -> None:
        """What prepares the call has ended: the function is called now, unless that failed."""
        if self.preparing is not None:
            self._execution.raised.extend(self.preparing.take_raised())
        self.preparing = None
        if self._stopped.locked():
            return
        if isinstance(result, Outcome):
            self.end(result)
            return
        context = replace(self._execution.context, prepared=result.value)
        self._execution = replace(self._execution, context=context)
        self._tools.begin(self)

    def run_in_thread(self) -> None:
        """Call the function in this thread, and give its result to the loop of the run."""
        value = self._execution.run_in_thread()
        self._tools.loop.call_soon(partial(self._returned, value))

    def run_in_task(self, value: Awaited | None = None) -> None:
        """Run the function in a task of this loop, or await the value that it returned."""
        if self._stopped.locked():
            close_coroutine(value)
            self._tools.loop.call(self._left)
            return
        work = self._execution.run_on_loop(self._room, value)
        self.task = asyncio.get_running_loop().create_task(work, context=self.variables.copy())
        self.task.add_done_callback(partial(self._task_ended, value))

    def prevent(self) -> None:
        """Prevent the function from being called, or signal it to end; from any thread."""
        self._stopped.acquire(blocking=False)

    def _returned(self, value: Outcome | Awaited) -> None:
        """The function returned, in its thread."""
        if isinstance(value, Outcome):
            self.end(value)
        elif self._stopped.locked():
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
        if task.cancelled() and is_stopped(task) and not self._stopped.locked() and self._tools.driven.can_give_back:
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
        while tools.is_behind and not tools.is_on_shared_loop and not self._stopped.locked():
            time.sleep(PAUSE)
        if self._stopped.locked():
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
        while self._tools.is_behind and not self._stopped.locked():  # noqa: ASYNC110  # another thread reads
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
        if self.agent is not None and not outcome.is_error and not self._stopped.locked():
            if (error := self._begin_inner(self.agent, outcome.data)) is None:
                return
            outcome = error
        if self._stopped.locked():
            return
        if points.hook is not None:
            driven.ownership.visit("after_tool_end", self.start.name)
        self.stop()
        ended = partial(driven.tool_ended, key, outcome, self.clock.time, self._execution.raised)
        self._tools.dispatcher.report(ended)

    def late(self) -> None:
        """The timeout of the call has expired."""
        if self.preparing is not None:  # so its function was not called
            self.end(error_outcome(timed_out(self.start.timeout or 0.0, may_have_effect=False)))
            return
        self.stop()
        self._tools.dispatcher.report(partial(self._tools.driven.run.tool_late, self.start.key, self.clock.time))

    def stop(self) -> None:
        """Forget the call: cancel what still runs of it. A plain function cannot be stopped, and may run on."""
        self._stopped.acquire(blocking=False)
        self._tools.forget(self)
        if self.timer is not None:
            self.timer.cancel()
        if self.question is not None:
            self._close_question("the call has ended")
        if self.preparing is not None:
            self._tools.preparations.discard(self.preparing)
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


def _cancel_elsewhere(task: asyncio.Task[Any]) -> None:
    """Cancel a task of another loop."""
    task.get_loop().call_soon_threadsafe(task.cancel)
