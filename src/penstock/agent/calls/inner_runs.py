"""Agents that run as tools of a run: each has a dispatcher of its own, inside the dispatcher of the run.

What an inner run emits goes to the run around it, and its gates stand in the one outbox of the outermost run: so the
order of events, the log, back-pressure and what the reader must have read before hold for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.agent.calls.step_hooks import StepHooks
from penstock.agent.driver.driven_run import DrivenRun, Raised
from penstock.agent.records import RunRecords
from penstock.run.events import StreamEvent
from penstock.run.machine import Run

if TYPE_CHECKING:
    from penstock.agent.driver.dispatcher import Dispatcher


class InnerDrivenRun(DrivenRun):
    """A run inside a call of another run, with which it shares outbox, lease and log."""

    def __init__(self, config: Any, run: Run, outer: DrivenRun, key: str) -> None:
        self._outer = outer
        self._key = key
        around = outer.config
        rules = {"is_read": around.is_read, "tracing": config.tracing or around.tracing}
        if around.tool_exceptions == "raise":  # the setting of a run holds for the agents inside it
            rules["tool_exceptions"] = "raise"
        config = replace(config, **rules, guard=config.guard or around.guard, prices=config.prices or around.prices)
        super().__init__(config, run, outer.deps, None, outer.code)
        self.ownership = outer.ownership
        self.key_prefix = f"{outer.key_prefix}{key}/"
        execution = outer.run.state.executions.table.find(key)
        self.agent_tools = (*outer.agent_tools, "" if execution is None else execution.name)
        self.outbox = outer.outbox
        self.records = RunRecords(config, outer.records.run_id)
        self.hooks = StepHooks(outer.records.run_id, outer.deps, has_log=run.state.is_logged)
        if outer.run.state.price_of is not None:
            self.limit_cost()

    @property
    def is_cancelled(self) -> bool:
        return self._is_cancelled or self._outer.is_cancelled

    @is_cancelled.setter
    def is_cancelled(self, value: bool) -> None:
        self._is_cancelled = value

    def take_ends(self, events: list[StreamEvent]) -> None:
        super().take_ends(events)
        if self.tool_failures:
            self._outer.raised[self._key] = Raised(self.tool_failures, self.error, self.run.state.error)

    def enter(self) -> None:
        self.scope.enter(self.config, self.records, None)

    @property
    def seconds_left(self) -> float | None:
        seconds, owned = self.config.limits.seconds, self.ownership.owned
        inner = self._outer.run.inner.find(self._key)
        if seconds is None or owned is None or inner is None or inner.call_id not in owned.began:
            return seconds
        return max(0.0, seconds - (owned.seconds - owned.began[inner.call_id]))


class InnerRun(Struct, frozen=True):
    """An agent that runs in a call, or is about to."""

    driven: DrivenRun
    dispatcher: Dispatcher

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
