"""The agent loop as a state machine without I/O.

The methods of `Run` are named for what happened: chunks came, the response ended, a tool is done, a person decided,
the run was cancelled. Each returns commands, which a driver carries out; the driver decides nothing. Between any two
inputs a run can be stored as JSON, loaded elsewhere and continued.

| phase | what happens | then |
|---|---|---|
| `new` | nothing yet, or hooks decide on the first step | `begin` or `step_prepared` → `answer` |
| `answer` | the model streams; tools may start early | `ended` → `tools`, `hook`, `answer` or `over` |
| `tools` | tools run, or calls wait for a decision or a result | the last one is done → `hook` or `answer` |
| `hook` | hooks decide on the next step | `step_prepared` → `answer` or `over` |
| `over` | nothing more | |

A tool starts by its policy. `closed`: as soon as the JSON of its arguments closes, before the protocol has confirmed
the call; if the call then changes, the execution is discarded and it runs again. `call`: when the call is confirmed.
`turn`: when the response has ended with a reason that lets tools run, so that a refusal, a filter or a broken
connection cannot cause a side effect. A call that needs approval waits for a person after that; a deferred call is
handed over when it would start, and waits for its result. Calls of one response wait for each other: see
`calls/call_order.py`. A damaged call does not run, unless the caller opted in to repaired arguments for its fault, and
then only after the turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.errors import UsageError
from penstock.events import Error, Fault, Retry, StreamChunk, Usage
from penstock.jsontext.values import deep_copy
from penstock.messages import Message
from penstock.output.output_type import OutputType
from penstock.results import Outcome, error_outcome
from penstock.run.calls.execution import ToolTime
from penstock.run.cancel import cancel_inner, cancel_logged, cancel_unlogged, stop_unread
from penstock.run.commands import (
    AnswerTool,
    AskModel,
    CallReview,
    CancelTool,
    Command,
    Emit,
    Output,
    PrepareStep,
    ReviseResult,
    StartTool,
    as_commands,
    emit,
    sort_outputs,
)
from penstock.run.events import (
    ApprovalRequest,
    Decision,
    Done,
    RunStart,
    Said,
    StreamEvent,
    ToolProgress,
    Waiting,
    is_chunk,
)
from penstock.run.inner_runs import MAX_LEVELS, InnerRuns, outcome_of
from penstock.run.input_checks import expect_open, expect_undecided, expect_waiting
from penstock.run.limits import Limits
from penstock.run.record import CONSEQUENTIAL
from penstock.run.rules import RunRules
from penstock.run.state import RunState
from penstock.run.step_changes import StepDecision
from penstock.run.steps import Steps, pause_reason
from penstock.run.stored import dump
from penstock.sentences import nested_too_deeply
from penstock.tools.policy import ToolPolicy


class Run:
    """A run of an agent: requests and tool calls until the model makes no more calls.

    Calls with one of the faults in `run_repaired` run with repaired arguments. `state` is all that is known of the run,
    `steps` decides how requests begin and how the run ends, `inner` are the runs of agents that are its tools.

    It has as many methods as things can happen to a run: the inputs of a machine are one flat list, and each is a few
    lines.
    """

    def __init__(
        self, messages: Iterable[Message], policies: Mapping[str, ToolPolicy], limits: Limits | None = None,
        run_repaired: Collection[Fault] = (), output: OutputType[Any] | None = None,
    ) -> None:  # fmt: skip
        rules = RunRules(dict(policies), limits or Limits(), frozenset(run_repaired), output)
        self.state = RunState(messages, rules)
        self.inner = InnerRuns(self.state, _without_tools)
        self.steps = Steps(self.state, self.inner)

    # -- requests and responses ------------------------------------------------------------------------------------

    def begin(self) -> list[Command]:
        """The run begins, or continues with what was stored."""
        state, steps = self.state, self.steps
        match state.phase:
            case "new":
                why = state.rules.limits.no_run
                return self._commands(steps.end("limit", why) if why else steps.ask())
            case "answer":
                return self._commands(steps.ask_again())
            case "tools":
                for inner in self.inner:
                    inner.run.state.seconds_left = state.seconds_left
                interrupted = state.executions.interrupt()
                expiries = state.executions.wait_on(state.seconds_left)
                requests = [] if state.is_logged else state.waiting
                outputs = [*interrupted, *requests, *expiries]
                return self._commands(outputs + steps.after(state.executions.release()))
            case "hook":
                return self._commands(steps.ask())
            case "over":
                return [Emit([steps.done(*state.ending)], [])]

    def step_prepared(self, decision: StepDecision) -> list[Command]:
        """The hooks have decided on the next step."""
        return self._commands(self.steps.start(decision)) if self.state.phase in ("new", "hook") else []

    def spent(self, usage: Usage | None) -> None:
        """Hooks have used these tokens, and failed before the step began."""
        self.state.tally.spent(usage)

    def tools_listed(self, policies: Mapping[str, ToolPolicy]) -> None:
        """The tools for the next request are known; no tool of an earlier step is running."""
        self.state.rules.policies.clear()
        self.state.rules.policies.update(policies)

    def chunks(self, chunks: list[StreamChunk]) -> list[Command]:
        """The model sent these chunks: all that one read of the network has brought."""
        state = self.state
        if state.phase != "answer":
            return []
        events: list[StreamEvent] = []
        commands: list[Command] = []
        numbered = state.numbering.feed(chunks)
        state.response.unfolded.extend(numbered)
        for chunk in numbered:
            events.append(chunk)
            if type(chunk) in CONSEQUENTIAL:
                state.record.add(chunk)
                outputs = self.inner.end_stopped(self._consequences(chunk))
                self._keep(outputs)
                sort_outputs(outputs, events, commands)
        following = [emit(events) if commands else Emit(events), *commands]
        return following if state.executions.failure is None else following + self.failed(state.executions.failure)

    def fold_unread(self, unread: Sequence[StreamEvent]) -> None:
        """The reader has read all events but these, in this run and in its inner runs."""
        self.state.response.fold(sum(is_chunk(event) for event in unread))
        self.inner.fold(unread)

    def reached(self, command: PrepareStep | AskModel | StartTool | ReviseResult) -> bool:
        """The reader has read everything before this command; returns whether to carry it out now."""
        match command:
            case PrepareStep():
                return self.state.phase in ("new", "hook")
            case AskModel():
                return self.state.phase == "answer"
            case StartTool():
                return self.state.executions.reached(command)
            case ReviseResult():
                return self.state.executions.is_revising(command.key)

    def ended(self) -> list[Command]:
        """The model's response is over, and the reader has read all of it."""
        if self.state.phase != "answer":
            return []
        self.state.response.fold(0)
        return self._commands(self.steps.end_response(self.state.response.build()))

    def request_failed(self, error: Error) -> list[Command]:
        """The request to the model failed: another model is asked, if the step has one."""
        return self._commands(self.steps.fall_back(error.message)) or self.failed(error)

    def failed(self, error: Error) -> list[Command]:
        """The driver failed, a hook failed, or a request failed for good."""
        if self.state.is_over:
            return []
        return self._commands([self.state.fail(error), *self.steps.stop("error", error.message, "error")])

    # -- tools and calls -------------------------------------------------------------------------------------------

    def call_reviewed(self, key: str, review: CallReview | Outcome) -> list[Command]:
        """Hooks and the approval predicate have decided about a call, or its arguments failed validation."""
        return [] if self.state.is_over else self._after(self.state.executions.reviewed(key, review))

    def call_forbidden(self, why: str) -> list[Command]:
        """The guard stops the run because of the arguments that a hook gave to a call."""
        return self._commands(stop_unread(self.steps, "refused", why, "content_filter"))

    def tool_prepared(self, key: str, preview: str = "", problem: Outcome | None = None) -> list[Command]:
        """The `prepare` function of a tool has ended: what a person should see, or why it failed."""
        return [] if self.state.is_over else self._after(self.state.executions.prepared(key, preview, problem))

    def tool_progress(self, key: str, data: Any) -> list[Command]:
        """A tool reports its progress."""
        execution = self.state.executions.table.running(key)
        return [Emit([ToolProgress(key, execution.call_id, execution.name, data)])] if execution else []

    def tool_asks(self, key: str, question: dict[str, Any]) -> list[Command]:
        """A tool asks a question, and waits for the answer (`provide`)."""
        request = self.state.executions.table.open_question(key, question)
        return [] if request is None else [Emit([request])]

    def question_closed(self, key: str) -> None:
        """A tool no longer waits for an answer."""
        self.state.executions.table.close_question(key)

    def tool_done(
        self, key: str, outcome: Outcome, time: ToolTime | None = None, error: Error | None = None
    ) -> list[Command]:
        """An execution ended; `time` is when its function ran, `error` an exception that may end the run."""
        return [] if self.state.is_over else self._after(self.state.executions.done(key, outcome, time, error))

    def result_revised(self, key: str, outcome: Outcome | None, *, is_withheld: bool = False) -> list[Command]:
        """Hooks have seen the result of a tool; None leaves it as it is. It `is_withheld` if one of them failed."""
        revised = self.state.executions.revised
        return [] if self.state.is_over else self._after(revised(key, outcome, is_withheld=is_withheld))

    def tool_late(self, key: str, time: ToolTime | None = None) -> list[Command]:
        """The timeout of an execution expired."""
        if self.state.is_over:
            return []
        stopped = [CancelTool(key)] if self.inner.find(key) else []
        return self._after([*stopped, *self.state.executions.late(key, time)])

    def decide(
        self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = ""
    ) -> list[Command]:
        """A person approved or declined a call; for one that was skipped since it asked, nothing follows."""
        expect_undecided(self, call_id, approved, arguments)
        if not self.state.waits_for(call_id, "approval"):
            return []
        decision = Decision(call_id, approved, deep_copy(arguments), reason)
        return self._after([decision, *self.state.executions.decide(call_id, approved, arguments, reason)])

    def provide(self, call_id: str, outcome: Outcome) -> list[Command]:
        """The result of a deferred call has come, or the answer to the question of a tool."""
        state = self.state
        if state.waits_for(call_id, "input"):
            key = state.executions.table.waiting[call_id].key
            self.question_closed(key)
            return [AnswerTool(key, outcome)]
        expect_waiting(self, call_id, "deferred")
        return self._after(state.executions.provide(call_id, outcome))

    def call_expired(self, call_id: str) -> list[Command]:
        """The time for the decision on a call, or for its result, is over."""
        return [] if self.state.is_over else self._after(self.state.executions.expired(call_id))

    # -- inner runs ------------------------------------------------------------------------------------------------

    def inner_begins(self, key: str, messages: Sequence[Message], agent: str = "") -> list[Command]:
        """A tool is an agent, which begins to run with these messages: its run is `inner.find(key)` from here on."""
        executions = self.state.executions
        execution = executions.table.running(key)
        if execution is None:
            return []
        if self.inner.level >= MAX_LEVELS:
            return self._after(executions.done(key, error_outcome(nested_too_deeply(MAX_LEVELS))))
        start = RunStart(tuple(messages), agent)
        return self._commands([*self.inner.begin(execution, start).wrap([start])])

    def inner_emitted(self, key: str, emit: Emit, time: ToolTime | None = None) -> list[Command]:
        """An inner run emitted events: they are those of this run, too. Its end is that of its call."""
        state, inner = self.state, self.inner.find(key)
        if inner is None or state.is_over:
            return []
        outputs: list[Output] = [*self.inner.take(inner, emit.logged)]
        over = self.inner.over_limit(emit.events)
        if inner.has_ended:
            outcome, error = outcome_of(inner.run.state), inner.run.state.error
            if not outcome.is_error:
                outcome = replace(outcome, data=inner.run.state.result)
            if not over:
                return self._after([*outputs, *state.executions.done(key, outcome, time, error)])
            state.executions.returned(key, outcome, time)
        return self._commands([*outputs, *(stop_unread(self.steps, "limit", over) if over else [])])

    def outer_stopped(self, why: str) -> list[Command]:
        """The run around this inner run ends it. Emitted events stay."""
        self.state.response.fold(0)
        return self._commands(self.steps.stop("cancelled", why))

    # -- the run itself --------------------------------------------------------------------------------------------

    def say(self, message: Message) -> list[Command]:
        """Add a message: the model gets it with the next step, also if it has just answered."""
        expect_open(self)
        self.state.new_messages.append(message)
        return self._commands([Said(message)])

    def cancel(self, why: str = "the run was cancelled", unread: Sequence[StreamEvent] = ()) -> list[Command]:
        """The reader cancelled the run, or went away, and will not read these events.

        Of them and of the events that follow, the reader gets the ends of tools that had started, the end of the step
        and that of the run. What was not read of a response is not in the history, unless it is in a log.
        """
        own, shown, logged = cancel_inner(self.inner, why, unread)
        if self.state.is_logged:
            return cancel_logged(self.steps, why, own, shown, logged)
        return self._commands([*shown, *cancel_unlogged(self.steps, why, own)])

    def expire(self, why: str) -> list[Command]:
        """The time limit of the run is over. Its reader still gets all unread events, unless it cancels."""
        return self._commands(stop_unread(self.steps, "limit", why))

    def pause(self, seconds: float | None = None) -> list[Command]:
        """The run ends here for now, and can be stored; after this many seconds it has to continue: a call expires.

        The messages of its `Done` say of each open call that it waits; in what `dump` returns it is still open.
        """
        if not self.is_waiting:
            raise UsageError("only a run that waits for approvals or deferred results can be paused")
        return [Emit([self.steps.done("paused", pause_reason(self.waiting))], [Waiting(seconds)])]

    # -- what can be asked of the run and its inner runs -----------------------------------------------------------

    def tree(self) -> Iterator[Run]:
        """The run and its open inner runs, at any depth."""
        yield self
        for inner in self.inner:
            yield from inner.run.tree()

    @property
    def usage(self) -> Usage:
        """The tokens of all responses together, also of inner runs."""
        return self.inner.total_usage

    @property
    def waiting(self) -> list[ApprovalRequest]:
        """The waiting calls of the run and its inner runs: see `RunState.waiting`."""
        return [request for run in self.tree() for request in run.state.waiting]

    @property
    def is_waiting(self) -> bool:
        """Whether nothing can happen before a person decides or a result comes from elsewhere."""
        if self.state.phase != "tools":
            return False
        table = self.state.executions.table
        running = sum(inner.run.is_waiting for inner in self.inner)
        if table.count("checking", "preparing", "starting", "revising") or table.count("running") > running:
            return False
        return running > 0 or bool(table.waiting)  # what is ready waits for one of these: else it would have started

    @property
    def done(self) -> Done | None:
        """The event for the end of the run; None if it is not over."""
        return self.steps.done(*self.state.ending) if self.state.is_over else None

    def dump(self, deadlines: Mapping[str, float] | None = None) -> bytes:
        """The run as JSON, to be loaded and continued elsewhere; `deadlines` are those of calls that expire."""
        return dump(self, deadlines or {})

    # -- what follows ----------------------------------------------------------------------------------------------

    def _after(self, outputs: list[Output]) -> list[Command]:
        """The commands after something happened to a tool, which may end the step."""
        return self._commands(self.steps.after(outputs))

    def _commands(self, outputs: list[Output]) -> list[Command]:
        """The commands of an input to the run."""
        self._keep(outputs)
        return as_commands(outputs)

    def _keep(self, outputs: list[Output]) -> None:
        """Keep the events among the outputs in the record of the run."""
        for output in outputs:
            self.state.record.add(output)

    def _consequences(self, chunk: StreamChunk) -> list[Output]:
        """The consequences of a chunk, besides passing it on."""
        state = self.state
        match chunk:
            case Retry():
                return state.withdraw(chunk)
            case Usage():
                state.tally.so_far = chunk
            case Error():
                state.error = chunk
            case _:
                return state.executions.feed(chunk)
        return []


def _without_tools(messages: list[Message]) -> Run:
    return Run(messages, {})
