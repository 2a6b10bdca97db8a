"""What both drivers share: the state of a run, its outbox, and the way from the machine to its reader.

A driver carries out the commands of the machine. Its threads and tasks refer to the driver, but not to the public run
(`agent_run`), so that a run which nobody can read any more is freed, and stopped. What the reader must have read before
(the next request, the start of a tool with side effects, the end of a response) waits in the outbox.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.agent.async_tools import AsyncTools
from penstock.agent.config import AgentConfig
from penstock.agent.expiries import Expiries
from penstock.agent.observer import RunObserver
from penstock.agent.questions import Questions, unanswered
from penstock.agent.reader_view import reader_view
from penstock.agent.records import RunRecords
from penstock.agent.run_errors import as_exception, error_event, is_interrupt, lease_error, provider_error
from penstock.agent.step_tools import StepTools
from penstock.agent.sync_tools import SyncTools
from penstock.agent.timers import Timers
from penstock.errors import AlreadyReadError, ArgumentsError, UsageError
from penstock.log import points
from penstock.log.flusher import RunCallbacks, RunWriter, flusher_of
from penstock.log.outbox import LoggedOutbox
from penstock.log.store import Input, OwnedRun, ProvidedResult
from penstock.results import Outcome, as_outcome
from penstock.run.commands import AnswerTool, AskModel, CheckApproval, Command, StartTool
from penstock.run.events import Decision, Done, Said, StepEnd, StreamEvent, ToolEnd, is_chunk
from penstock.run.machine import Run
from penstock.run.outbox import Outbox
from penstock.tools.policy import ToolPolicy
from penstock.tools.tool import Context

MAX_WAIT = 1.0
"""How many seconds a run that ends waits for what it cancelled: a connection or a tool may not react."""

PAUSE = 0.01
"""How many seconds a thread sleeps before it checks again whether the reader has caught up."""

UNFORCED_CHOICES = ("", "auto", "none")
"""The tool choices that hold for every step; one that forces a call holds for the first."""

FOLD_SIZE = 50
"""How many chunks that were read are added to the response at once, which is faster than one by one."""

T = TypeVar("T", SyncTools, AsyncTools)


class Driver(Generic[T]):
    """The state of a run that both drivers share: `SyncDriver` for plain code, `AsyncDriver` for async code."""

    _expiries: Expiries
    _timers: Timers
    _tools: T

    def __init__(self, config: AgentConfig, run: Run, deps: Any, owned: OwnedRun | None = None) -> None:
        self.run = run
        self._owned = owned
        self._log: RunWriter | None = None
        self._lost: Exception | None = None
        self._is_left = False  # this process no longer drives the run
        self.done: Done | None = None
        self.error: Exception | None = None
        self.first_message = len(run.messages)  # of this run
        self._config = config
        self.records = RunRecords(config, "" if owned is None else owned.claim.run_id)
        self._policies = config.policies
        self._step_tools = StepTools(config)
        self._questions = Questions()
        self._observer: RunObserver | None = None
        self._deps = deps
        self._outbox = Outbox() if owned is None else LoggedOutbox()
        self._variables = copy_context()  # which tools see: those of the code that began the run
        self._has_begun = False
        self._is_read = False
        self._is_cancelled = False
        self._is_closed = False
        self._is_detached = False  # the run continues when its reader leaves
        self._is_alone = False  # its reader has left
        self.view = reader_view(config)

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.records.run_id

    @property
    def partial(self) -> Any:
        """The structured output so far."""
        return None if self.view is None else self.view.output

    @property
    def has_log(self) -> bool:
        """Whether the run is kept in a log."""
        return self._owned is not None

    def detach(self) -> None:
        """Let the run continue when its reader leaves; if this process cannot, the run is given back to its store."""
        if self._owned is None:
            raise UsageError("only a run with a log can continue without its reader: start it with log=")
        self._owned = replace(self._owned, outlives_reader=True)
        self._is_detached = True

    def dump(self) -> bytes:
        """The run as JSON, with the times at which its calls expire."""
        self.fold()
        now = time.time()
        return self.run.dump({call_id: now + left for call_id, left in self._expiries.seconds_left.items()})

    def fold(self) -> None:
        """Bring the history up to what the reader has read."""
        self.run.fold(sum(is_chunk(event) for event in self._outbox.unread_events))

    def _open_log(self) -> None:
        if self._owned is not None:
            callbacks = RunCallbacks(self._on_committed, self._on_input, self._on_lost, self._can_go_on)
            self._log = flusher_of(self._owned.store).attach(self._owned.claim, callbacks, self._owned.inputs)
            assert isinstance(self._outbox, LoggedOutbox)
            self._outbox.writer = self._log

    def _take_inputs(self) -> None:
        """Take the inputs from other processes that came before this one owned the run."""
        for input in self._owned.inputs if self._owned else ():
            self._take_input(input)

    def _take_input(self, input: Input) -> None:
        raise NotImplementedError

    @property
    def _seconds_left(self) -> float | None:
        """The time limit of the run, less what earlier owners have used of it."""
        if (seconds := self._config.limits.seconds) is None:
            return None
        return max(0.0, seconds - (self._owned.seconds if self._owned else 0.0))

    def _leave(self) -> None:
        """Stop everything: this process does not continue the run."""
        self._is_cancelled = self._is_left = True
        self._stop_asking()
        for key in self._tools.running_keys():
            self._stop_tool(key)

    def _give_back(self) -> None:
        """Stop everything here, so that another worker can continue the run."""
        assert isinstance(self._outbox, LoggedOutbox)
        self._leave()
        self._outbox.drop()
        self._outbox.release()

    def _lose(self, error: Exception) -> None:
        """Stop everything, because another worker has the run; the reader gets the error."""
        self._lost = error
        self._leave()
        self._outbox.drop()
        self._outbox.items.append(self._raise_lost)

    def _stop_asking(self) -> None:
        """Break off the request to the model."""
        raise NotImplementedError

    def _stop_tool(self, key: str) -> None:
        """Forget a tool that has ended, or cancel it."""
        self._timers.cancel(key)
        self._close_question(key, "the call has ended")
        self._tools.cancel(key)

    def _late(self, key: str) -> list[Command]:
        """A tool exceeded its timeout."""
        self._stop_tool(key)
        return self.run.tool_late(key)

    def _on_committed(self, units: int) -> None:
        """This many more units are in the log. Called by the flusher, like the two below."""
        raise NotImplementedError

    def _on_input(self, input: Input) -> None:
        """An input from another process has come."""
        raise NotImplementedError

    def _on_lost(self, error: Exception) -> None:
        """This process must not continue the run."""
        raise NotImplementedError

    def _can_go_on(self) -> bool:
        """Whether commands can still be carried out in this process."""
        return True

    def _raise_lost(self) -> None:
        assert self._lost is not None
        raise self._lost

    def _visit(self, point: points.Point, detail: str = "") -> None:
        """A point at which a test may end the process."""
        if points.hook is not None and self._log is not None:
            points.hook(point, (detail,), self._log)

    def _visit_before(self, command: AskModel | StartTool) -> None:
        """The point right before this command is carried out."""
        if isinstance(command, StartTool):
            self._visit("before_tool_start", command.name)
        else:
            self._visit("before_request")

    def _visit_end(self, key: str) -> None:
        """The point at which a tool has ended."""
        if points.hook is not None:
            execution = self.run.executions.table.find(key)
            self._visit("after_tool_end", "" if execution is None else execution.name)

    def _check_lease(self) -> None:
        """Raise a `LostRunError` if no tool may start and no request be sent: the lease of this process has ended."""
        if self._lost is not None:
            raise self._lost
        if self._log is not None and not self._is_left and not self._log.is_owner:
            self._is_left = True
            raise lease_error(self._log)

    @property
    def _is_given_back(self) -> bool:
        """Whether the run continues elsewhere if its reader leaves."""
        return self._owned is not None and self._owned.outlives_reader and not self.run.is_over

    @property
    def _goes_on_alone(self) -> bool:
        """Whether the run continues here although its reader has just left."""
        is_possible = self._is_detached and self._has_begun and self.done is None
        return is_possible and not self._is_alone and not self._is_left

    @property
    def _is_logged_to_its_end(self) -> bool:
        """Whether the run has ended, and its log has everything: nobody reads the rest of a run without a reader."""
        return self.done is not None and self._outbox.is_idle

    def _input_commands(self, input: Input) -> list[Command]:
        """The commands for an input from another process; none if it came too late, or is not valid."""
        try:
            match input.kind:
                case "decide":
                    decision = msgspec.json.decode(input.body, type=Decision)
                    return self.run.decide(decision.call_id, decision.approved, decision.arguments, decision.reason)
                case "provide":
                    result = msgspec.json.decode(input.body, type=ProvidedResult)
                    return self.run.provide(result.call_id, provided(result.value, result.is_error))
                case "say":
                    return self.run.say(msgspec.json.decode(input.body, type=Said).message)
                case "cancel":
                    return self.run.cancel(input.body.decode("utf-8", "replace"), self._outbox.drop())
        except (UsageError, ArgumentsError, msgspec.MsgspecError):
            self.records.refuse(input.kind, input.key)
            return []

    def _check_open(self) -> None:
        if self.done is not None and self.done.reason == "paused":
            raise UsageError("the run is paused: continue it with Agent.resume(run.dump()), and answer there")

    @property
    def _should_pause(self) -> bool:
        """Whether a reader who has read everything would wait for a decision or a result."""
        is_idle = self._outbox.is_idle and self.done is None
        return is_idle and self._config.approvals == "pause" and self.run.is_waiting

    def _claim(self) -> None:
        """Reserve the run for one reader."""
        if self._is_read:
            raise AlreadyReadError("a run can be read once: start another, or keep the events in a list")
        self._is_read = True

    def _guarded(self, step: Callable[[], list[Command]]) -> list[Command]:
        """The commands of an input to the run; if it raises, the run fails."""
        try:
            return step()
        except BaseException as error:  # the run calls a user's code
            if is_interrupt(error):
                raise
            return self._failed(error)

    def _expired(self) -> list[Command]:
        """The commands after the time limit of the run."""
        return self.run.expire(f"the run took longer than {self._config.limits.seconds:g} seconds")

    def _failed(self, error: BaseException) -> list[Command]:
        """The commands after the request to the model, or anything else, failed; none if the run is over."""
        if self.run.is_over:
            return []
        self.error = as_exception(error)
        return self.run.failed(error_event(error))

    def _remember(self, done: Done) -> None:
        self.done = done
        if done.reason == "error" and self.error is None and self.run.error is not None:
            self.error = provider_error(self.run.error)

    def _request(self) -> dict[str, Any]:
        options = dict(self._config.options)
        if self.run.step > 1 and options.get("tool_choice", "") not in UNFORCED_CHOICES:
            del options["tool_choice"]  # a model that obeys would call the tool until a limit ends the run
        tools, instructions = list(self._config.tools.values()), self._config.instructions
        return {"tools": tools, "system_prompt": instructions, "output": self._config.output, **options}

    def _observe(self) -> None:
        """Let the tracer of the agent see the run from here on."""
        if self._config.tracing is not None:
            meta = None if self._owned is None else self._owned.meta
            self._observer = self._config.tracing.observe(self._config, self.run_id, meta)
            self._variables.run(self._observer.begin)

    def _tool_variables(self, start: StartTool) -> Variables:
        """The context variables for a tool."""
        variables = self._variables.copy()
        if self._observer is not None:
            variables.run(self._observer.begin_tool, start)
        return variables

    @property
    def _needs_listing(self) -> bool:
        """Whether tools must be listed before the run continues: some of its calls are those of a source."""
        return bool(self._config.sources) and self.run.phase in ("answer", "tools")

    def _use(self, config: AgentConfig) -> None:
        """Use the tools of this configuration from here on."""
        if config is not self._config:
            self._config, self._policies = config, config.policies
            self.run.tools_listed(self._policies)

    def _policy_of(self, name: str) -> ToolPolicy:
        return self._policies[name]

    def _approval_checked(self, check: CheckApproval, answer: bool | Outcome | BaseException) -> None:
        """A predicate said whether a call needs approval, or something else ended it."""
        if isinstance(answer, BaseException):
            self._happened(partial(self._failed, answer))
        else:
            self._happened(partial(self.run.approval_checked, check.key, answer))

    def _happened(self, step: Callable[[], list[Command]]) -> None:
        """Tell the machine what happened, and carry out what follows."""
        raise NotImplementedError

    def _may_start(self) -> bool:
        """Whether a tool may still begin: right before its function is called, in any thread.

        Between the start of its task or thread and this moment, the process may have been frozen or busy.
        """
        if self._log is None or self._log.is_owner:
            return True
        self._on_lost(self._lost or lease_error(self._log))
        return False

    def _context(self, start: StartTool, report: Callable[[Any], None]) -> Context[Any]:
        return Context(
            deps=self._deps,
            call_id=start.call_id,
            tool=start.name,
            step=self.run.step,
            report=report,
            key=f"{self._log.claim.run_id}:{start.key}" if self._log else start.key,
            ask=partial(self._ask, start),
        )

    def _ask(self, start: StartTool, question: dict[str, Any], seconds: float) -> Future[Outcome]:
        """Ask the reader what a tool wants to know, from any thread; returns the answer, to wait for."""
        if not self._config.is_read and self._owned is None:
            return unanswered("nobody reads this run, so nobody can answer")
        answer = self._questions.open(start.key)
        self._put_question(start, question, seconds)
        return answer

    def _put_question(self, start: StartTool, question: dict[str, Any], seconds: float) -> None:
        raise NotImplementedError

    def _emit_question(self, start: StartTool, question: dict[str, Any], seconds: float) -> list[Command]:
        """The commands for a question, and its timer."""
        if not (commands := self.run.tool_asks(start.key, question)):
            self._questions.refuse(start.key, "the call has ended, or asks another question")
        else:
            late = partial(self._question_late, start, seconds)
            self._timers.start(f"ask {start.key}", seconds, late)
        return commands

    def _question_late(self, start: StartTool, seconds: float) -> None:
        """The time for an answer is over."""
        self.run.question_closed(start.key)
        self._outbox.withdraw(start.call_id, "input")
        self._close_question(start.key, f"no answer came within {seconds:g} seconds")

    def _close_question(self, key: str, why: str) -> None:
        """The question of a tool is not to be answered any more, if it has one."""
        self._timers.cancel(f"ask {key}")
        self._questions.refuse(key, why)

    def _answer_tool(self, command: AnswerTool) -> None:
        self._timers.cancel(f"ask {command.key}")
        self._questions.answer(command.key, command.outcome)


def is_due_after_cancel(event: StreamEvent) -> bool:
    """Whether a reader who has cancelled the run still gets this event."""
    return isinstance(event, ToolEnd | StepEnd | Done)


def provided(value: Any, is_error: bool) -> Outcome:
    """The outcome of a deferred call: its result from elsewhere, as if a tool had returned it."""
    result = as_outcome(value)
    return replace(result, is_error=True) if is_error else result
