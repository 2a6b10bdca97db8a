"""A run that this process drives: its machine, and what the parts of its driver share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from msgspec import Struct

from penstock.agent.calls.step_hooks import StepHooks, with_model
from penstock.agent.calls.step_tools import StepTools
from penstock.agent.calls.tool_exceptions import MAX_FAILURES
from penstock.agent.config import AgentConfig
from penstock.agent.driver.ownership import Ownership
from penstock.agent.driver.user_code import UserCode
from penstock.agent.observer import RunObserver
from penstock.agent.pricing import Pricing
from penstock.agent.records import RunRecords
from penstock.agent.run_errors import as_exception, error_event, is_interrupt, logged_error
from penstock.errors import MissingKeyError, ProviderError
from penstock.events import Error
from penstock.log.outbox import LoggedOutbox
from penstock.log.start import OwnedRun
from penstock.messages import Message
from penstock.results import Outcome
from penstock.run.calls.execution import ToolTime
from penstock.run.commands import AskModel, Command
from penstock.run.events import Done, StreamEvent, ToolEnd
from penstock.run.machine import Run
from penstock.run.outbox import Outbox, UnreadOutbox
from penstock.run.step_changes import ModelUsage


class RunScope:
    """The context variables of a run: those of the code that began it. Its requests and tools get copies."""

    def __init__(self) -> None:
        self.variables = copy_context()
        self.observer: RunObserver | None = None

    def enter(self, config: AgentConfig, records: RunRecords, meta: Any) -> None:
        """The run begins here: its variables are those of the caller, and the tracer of the agent sees it from now."""
        self.variables = copy_context()
        self.variables.run(records.enter)
        if config.tracing is not None:
            self.observer = config.tracing.observe(config, records.run_id, meta)
            self.variables.run(self.observer.begin)

    def begin_request(self, step: int, messages: Sequence[Message], config: AgentConfig) -> None:
        """A request is about to be sent, in this context."""
        if self.observer is not None:
            self.observer.begin_request(step, messages, config)

    def request_failed(self, kind: str) -> None:
        """The request under way failed."""
        if self.observer is not None:
            self.observer.request_failed(kind)

    def spent(self, used: ModelUsage) -> None:
        """A hook has asked a model itself."""
        if self.observer is not None:
            self.observer.spent(used.model, used.usage)

    def close(self) -> None:
        """This process no longer drives the run."""
        if self.observer is not None:
            self.observer.close()


class Raised(Struct, frozen=True, eq=False):
    """What a tool raised that is not a `ToolError`, or the tools of an agent that is a tool.

    `first` is what ends the run where `tool_exceptions="raise"`, and `event` the event for it.
    """

    exceptions: list[Exception]
    first: Exception | None
    event: Error | None


class DrivenRun:
    """A run with its outbox, its configuration at this step, and how it ended.

    `done` is its last event and `error` the exception of a request that failed, once there is one. `tool_failures` are
    the exceptions of its tools that are not `ToolError`s, and those of hooks around its calls. Nothing starts in a run
    that `is_cancelled`, even if its loop is still too busy to cancel it.
    """

    def __init__(
        self, config: AgentConfig, run: Run, deps: Any, owned: OwnedRun | None, code: UserCode | None = None
    ) -> None:
        config = config if owned is None else with_model(config, owned.model)
        self.run = run
        self.code = code or UserCode()
        self.config = config
        self.deps = deps
        self.ownership = Ownership(owned)
        # The keys of executions begin with it: so they are unique among all runs of a store.
        self.key_prefix = "" if owned is None else f"{owned.claim.run_id}:"
        self.agent_tools: tuple[str, ...] = ()  # the names of the calls around it
        self.outbox = self._new_outbox(has_log=owned is not None)
        self.records = RunRecords(config, "" if owned is None else owned.claim.run_id)
        self.scope = RunScope()
        self.step_tools = StepTools(config)
        self.hooks = StepHooks(self.records.run_id, deps, has_log=owned is not None)
        self.conversation = config.model.for_conversation()
        self._is_cancelled = False
        self.done: Done | None = None
        self.error: Exception | None = None
        self.raised: dict[str, Raised] = {}  # by the keys of executions whose end is not emitted yet
        self.tool_failures: list[Exception] = []
        run.state.has_hooks = config.has_hooks
        run.state.rules.raises = config.tool_exceptions == "raise"
        self.pricing = None if config.prices is None else Pricing(config.prices)
        if config.limits.cost is not None:
            self.limit_cost()
        run.state.rules.has_before_call = bool(config.before_call)
        run.state.rules.has_after_call = bool(config.after_call)
        run.state.rules.finds_sources = True

    def _new_outbox(self, *, has_log: bool) -> Outbox:
        if self.is_unseen and not has_log:
            return UnreadOutbox(self.run.state)
        lock = threading.RLock()  # the reader of a sync run is in another thread
        return LoggedOutbox(lock) if has_log else Outbox(lock)

    @property
    def is_unseen(self) -> bool:
        """Whether nobody sees the events of the run before its end, unless it has a log."""
        return not (self.config.is_read or self.config.callbacks.are_set)

    @property
    def is_cancelled(self) -> bool:
        """Whether nothing starts any more."""
        return self._is_cancelled

    @is_cancelled.setter
    def is_cancelled(self, value: bool) -> None:
        self._is_cancelled = value

    def enter(self) -> None:
        """The run begins here, in the context of the caller."""
        owned = self.ownership.owned
        self.scope.enter(self.config, self.records, None if owned is None else owned.meta)

    # -- its end and its errors ------------------------------------------------------------------------------------

    def guarded(self, step: Callable[[], list[Command]]) -> list[Command]:
        """The commands of an input to the run; if it raises, the run fails."""
        try:
            return step()
        except BaseException as error:  # the run calls a user's code
            if is_interrupt(error):
                raise
            return self.failed(error)

    def failed(self, error: BaseException) -> list[Command]:
        """The commands after the request to the model, or anything else, failed; none if the run is over."""
        if self.run.state.is_over:
            return []
        self.error = as_exception(error)
        return self.run.failed(error_event(error))

    def request_failed(self, error: BaseException) -> list[Command]:
        """The commands after a request to the model failed: another model may be asked, if the provider failed, or
        there is no key for it."""
        if not isinstance(error, ProviderError | MissingKeyError):
            return self.failed(error)
        event = error_event(error)
        self.scope.request_failed(event.code)
        commands = self.run.request_failed(event)
        if self.run.state.is_over and commands:
            self.error = error
        return commands

    def tool_ended(
        self, key: str, outcome: Outcome, time: ToolTime | None, exceptions: list[Exception]
    ) -> list[Command]:
        """The commands after a tool ended, perhaps with an exception that is not a `ToolError`."""
        if not exceptions:
            return self.run.tool_done(key, outcome, time)
        raised = self.raised[key] = Raised(exceptions, exceptions[0], error_event(exceptions[0], "tool"))
        return self.run.tool_done(key, outcome, time, raised.event)

    def take_ends(self, events: list[StreamEvent]) -> None:
        """Calls have ended: count what their tools raised, unless it was discarded. It may have ended the run."""
        for event in events if self.raised else ():
            if not isinstance(event, ToolEnd) or (raised := self.raised.pop(event.key, None)) is None:
                continue
            if event.ending != "discarded":
                self.tool_failures += raised.exceptions[: MAX_FAILURES - len(self.tool_failures)]
            if raised.event is not None and raised.event is self.run.state.error:
                self.error = raised.first

    def user_code_ended(self, step: Callable[[], list[Command]], exceptions: list[Exception]) -> list[Command]:
        """The commands after hooks of a call, or what prepares it, ended: `step` reports that, if the run continues."""
        self.tool_failures += exceptions[: MAX_FAILURES - len(self.tool_failures)]
        if not exceptions or self.config.tool_exceptions == "report" or self.run.state.is_over:
            return step()
        self.error = exceptions[0]
        return self.run.failed(error_event(self.error, "tool"))

    def expired(self) -> list[Command]:
        """The commands after the time limit of the run."""
        return self.run.expire(f"the run took longer than {self.config.limits.seconds:g} seconds")

    def remember(self, done: Done) -> None:
        """Keep the last event."""
        self.done = done
        if done.reason == "error" and self.error is None and self.run.state.error is not None:
            self.error = logged_error(self.run.state.error)

    @property
    def should_pause(self) -> bool:
        """Whether a reader who has read everything would wait for a decision or a result."""
        is_idle = self.outbox.is_idle and self.done is None
        return is_idle and self.config.approvals == "pause" and self.run.is_waiting

    # -- its log ---------------------------------------------------------------------------------------------------

    @property
    def logged_outbox(self) -> LoggedOutbox:
        """The outbox of a run with a log."""
        assert isinstance(self.outbox, LoggedOutbox)
        return self.outbox

    @property
    def continues_elsewhere(self) -> bool:
        """Whether another process continues the run if this one leaves it."""
        return self.ownership.outlives_reader and not self.run.state.is_over

    @property
    def can_give_back(self) -> bool:
        """Whether this process still drives the run, and another one could."""
        return self.continues_elsewhere and not self.ownership.is_left

    @property
    def is_logged_to_its_end(self) -> bool:
        """Whether the run has ended, and its log has everything: nobody reads the rest of a run without a reader."""
        return self.done is not None and self.outbox.is_idle

    @property
    def seconds_left(self) -> float | None:
        """The time limit of the run, less what earlier owners have used of it."""
        if (seconds := self.config.limits.seconds) is None:
            return None
        owned = self.ownership.owned
        return max(0.0, seconds - (owned.seconds if owned else 0.0))

    # -- its cost --------------------------------------------------------------------------------------------------

    def limit_cost(self) -> None:
        """Estimate the price of each request: the cost of this run is limited, or of one around it."""
        self.run.state.price_of = self._price_of

    def _price_of(self, request: AskModel) -> float | None:
        if self.pricing is None:
            return None
        config = self.hooks.config_for(request, self.run.state.step, self.step_tools.config)
        return self.pricing.estimate(request.messages, config)

    # -- its tools -------------------------------------------------------------------------------------------------

    @property
    def needs_listing(self) -> bool:
        """Whether tools must be listed before the run continues: some of its calls are those of a source."""
        return bool(self.config.sources) and self.run.state.phase in ("answer", "tools")

    def use(self, config: AgentConfig) -> None:
        """Use this configuration from here on, for a request and the calls of its response."""
        if config.model is not self.config.model:
            self.conversation = config.model.for_conversation()
        has_other_tools, self.config = config.tools is not self.config.tools, config
        if has_other_tools:
            self.run.tools_listed(config.policies)
