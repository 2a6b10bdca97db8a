"""Agents that run as tools of a run: each has a dispatcher of its own, inside the dispatcher of the run.

What an inner run emits goes to the run around it, and its gates stand in the one outbox of the outermost run: so the
order of events, the log, back-pressure and what the reader must have read before hold for all of them.
"""

from __future__ import annotations

from contextvars import Context as Variables
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from penstock.agent.agent_tool import AgentTool
from penstock.agent.dispatcher import Dispatcher
from penstock.agent.driven_run import DrivenRun
from penstock.agent.records import RunRecords
from penstock.agent.step_hooks import StepHooks
from penstock.results import Outcome, failure
from penstock.run.commands import StartTool
from penstock.run.machine import Run

D = TypeVar("D", bound=Dispatcher)


class InnerDrivenRun(DrivenRun):
    """A run inside a call of another run, with which it shares outbox, lease and log."""

    def __init__(self, config: Any, run: Run, outer: DrivenRun, key: str) -> None:
        self._outer = outer
        self._key = key
        around = outer.config
        rules = {"is_read": around.is_read, "tracing": config.tracing or around.tracing}
        super().__init__(replace(config, **rules, guard=config.guard or around.guard), run, outer.deps, None)
        self.ownership = outer.ownership
        self.outbox = outer.outbox
        self.records = RunRecords(config, outer.records.run_id)
        self.hooks = StepHooks(outer.records.run_id, outer.deps, has_log=run.state.is_logged)

    @property
    def is_cancelled(self) -> bool:
        return self._is_cancelled or self._outer.is_cancelled

    @is_cancelled.setter
    def is_cancelled(self, value: bool) -> None:
        self._is_cancelled = value

    def enter(self) -> None:
        self.scope.enter(self.config, self.records, None)

    def unique_key(self, key: str) -> str:
        return self._outer.unique_key(f"{self._key}/{key}")

    @property
    def seconds_left(self) -> float | None:
        seconds, owned = self.config.limits.seconds, self.ownership.owned
        inner = self._outer.run.inner.find(self._key)
        if seconds is None or owned is None or inner is None or inner.call_id not in owned.began:
            return seconds
        return max(0.0, seconds - (owned.seconds - owned.began[inner.call_id]))


class _Running(Struct, Generic[D], frozen=True):
    """An agent that runs, or is about to."""

    driven: DrivenRun
    dispatcher: D

    def begin(self) -> None:
        """Begin, in this context, or continue."""
        self.driven.enter()
        self.dispatcher.report(self.dispatcher.first or self.driven.run.begin)
        self.dispatcher.start_time_limit()

    def end(self) -> None:
        """Stop what is left of it."""
        self.driven.is_cancelled = True
        self.dispatcher.stop_all()
        self.dispatcher.timers.close()
        self.driven.scope.close()


class InnerAgents(Generic[D]):
    """The agents that run as tools of one run, by the key of the execution. `D` is the dispatcher, sync or async."""

    def __init__(self, driven: DrivenRun, outer: D) -> None:
        self._driven = driven
        self._outer = outer
        self._prompted: dict[str, tuple[AgentTool, Variables]] = {}  # whose prompts are being made
        self._made: dict[str, _Running[D]] = {}  # those that continue, and have not begun here
        self._running: dict[str, _Running[D]] = {}
        self._ended: list[D] = []  # whose tasks or threads may not have ended

    def tool_of(self, start: StartTool) -> AgentTool | None:
        """The tool of this call, if it is an agent."""
        tool = self._driven.config.tools.get(start.name)
        return tool if isinstance(tool, AgentTool) else None

    def expect(self, start: StartTool, variables: Variables) -> bool:
        """An agent starts, with these context variables. False if its prompt must be made first: see `prompted`."""
        tool = self.tool_of(start)
        if tool is None:
            return False
        if (inner := self._driven.run.inner.find(start.key)) is None:
            self._prompted[start.key] = tool, variables
            return False
        made = self._made.pop(start.key) if start.key in self._made else self._make(start.key, tool, inner.run)
        self._begin(start.key, made, variables)
        return True

    def prompted(self, key: str, outcome: Outcome) -> Outcome | None:
        """A tool has ended. None if it made the prompt of an agent, which runs from now on; else its outcome."""
        if key not in self._prompted:
            return outcome
        tool, variables = self._prompted.pop(key)
        if outcome.is_error:
            return outcome
        try:
            messages = tool.first_messages(outcome.data)
        except Exception as error:  # noqa: BLE001  # the prompt is what a user's function returned
            return failure(error)
        run = self._driven.run
        self._outer.report(partial(run.inner_begins, key, messages, tool.agent.name or tool.name))
        if (inner := run.inner.find(key)) is not None:
            self._begin(key, self._make(key, tool, inner.run), variables)
        return None

    def make_all(self) -> list[D]:
        """The dispatchers of inner runs that continue, before they begin: their tools may have to be listed."""
        for inner in self._driven.run.inner:
            execution = self._driven.run.state.executions.table.find(inner.key)
            tool = None if execution is None else self._driven.config.tools.get(execution.name)
            if isinstance(tool, AgentTool) and inner.key not in self._made:
                self._made[inner.key] = self._make(inner.key, tool, inner.run)
        return [made.dispatcher for made in self._made.values()]

    def all(self) -> list[D]:
        """The dispatchers of the agents that run."""
        return [running.dispatcher for running in list(self._running.values())]

    def holder(self, call_id: str) -> D:
        """The dispatcher of the run in which this call waits: that of this run, or of an inner one."""
        inner = self._driven.run.inner.holder(call_id)
        running = None if inner is None else self._running.get(inner.key)
        if running is None:
            return self._outer
        holder: D = running.dispatcher.inner.holder(call_id)
        return holder

    def stop(self, key: str) -> None:
        """An agent has ended, or its call was cancelled: stop everything in it."""
        self._prompted.pop(key, None)
        if key in self._running:
            running = self._running.pop(key)
            running.end()
            self._ended.append(running.dispatcher)

    def stop_all(self) -> None:
        """Stop all agents."""
        for key in list(self._running):
            self.stop(key)

    def close(self) -> list[D]:
        """Forget all; returns their dispatchers, to be closed."""
        self.stop_all()
        dispatchers, self._ended = self._ended, []
        return dispatchers

    def _make(self, key: str, tool: AgentTool, run: Run) -> _Running[D]:
        driven = InnerDrivenRun(tool.config, run, self._driven, key)
        return _Running(driven, self._outer.new_inner(driven, key))

    def _begin(self, key: str, running: _Running[D], variables: Variables) -> None:
        self._running[key] = running
        variables.copy().run(running.begin)
