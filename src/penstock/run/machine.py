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
handed over when it would start, and waits for its result. A damaged call does not run, unless the caller opted in to
repaired arguments for its fault, and then only after the turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import UsageError
from penstock.events import (
    Error,
    Retry,
    StreamChunk,
    ToolCall,
    ToolCallClosed,
    ToolCallInvalid,
    Usage,
)
from penstock.jsontext.values import deep_copy
from penstock.messages import Message
from penstock.results import Outcome
from penstock.run.after_cancel import as_read, is_due
from penstock.run.commands import (
    AnswerTool,
    AskModel,
    CancelTool,
    Command,
    Emit,
    Output,
    PrepareStep,
    StartTool,
    as_commands,
    sort_outputs,
)
from penstock.run.events import (
    Decision,
    Done,
    EndReason,
    Nested,
    Said,
    StepEnd,
    StepStart,
    StreamEvent,
    ToolEnd,
    ToolProgress,
    ToolStart,
    Waiting,
    is_chunk,
)
from penstock.run.inner_inputs import InnerInputs
from penstock.run.record import CONSEQUENTIAL
from penstock.run.requests import waits_for_client
from penstock.run.state import calls_of
from penstock.run.step_changes import StepDecision
from penstock.tools.policy import ToolPolicy

ENDS: dict[str, tuple[EndReason, str]] = {
    "content_filter": ("refused", "the model refused, or a filter ended its response"),
    "cut": ("cut", "the response was cut off before its end"),
    "error": ("error", "the provider reported an error"),
}
"""Finish reasons of a response after which no tool may start, and why."""


class Run(InnerInputs):
    """A run of an agent: requests and tool calls until the model makes no more calls.

    Calls with one of the faults in `run_repaired` run with repaired arguments. It has as many methods as things can
    happen to a run: the inputs of a machine are one flat list, and each is a few lines.
    """

    # -- what happened ---------------------------------------------------------------------------------------------

    def begin(self) -> list[Command]:
        """The run begins, or continues with what was stored."""
        match self.phase:
            case "new" if why := self.tally.stuck(self.rules.limits):
                return self._commands(self.end("error", why))
            case "new":
                why = self.rules.limits.no_run
                return self._commands(self.end("limit", why) if why else self.ask())
            case "answer" | "tools" | "hook" if why := self.tally.stuck(self.rules.limits):
                return self._commands(self.stop("error", why, "error"))
            case "answer":
                return self._ask_again()
            case "tools":
                for inner in self.inner:
                    inner.run.seconds_left = self.seconds_left
                expiries = self.executions.wait_on(self.seconds_left)
                requests = [] if self.is_logged else self.own_waiting
                outputs = [*self.executions.interrupt(), *requests, *expiries]
                return self._commands(outputs + self._after(self.executions.release()))
            case "hook":
                return self._commands(self.ask())
            case "over":
                return [Emit([self.done(*self.ending)], [])]

    def step_prepared(self, decision: StepDecision) -> list[Command]:
        """The hooks have decided on the next step."""
        return self._commands(self.start_step(decision)) if self.phase in ("new", "hook") else []

    def tools_listed(self, policies: Mapping[str, ToolPolicy]) -> None:
        """The tools for the next request are known; no tool of an earlier step is running."""
        self.rules.policies.clear()
        self.rules.policies.update(policies)

    def chunks(self, chunks: list[StreamChunk]) -> list[Command]:
        """The model sent these chunks: all that one read of the network has brought."""
        if self.phase != "answer":
            return []
        events: list[StreamEvent] = []
        commands: list[Command] = []
        numbered = self.numbering.feed(chunks)
        self.unfolded.extend(numbered)
        for chunk in numbered:
            events.append(chunk)
            if type(chunk) in CONSEQUENTIAL:
                self.record.add(chunk)
                outputs = self.inner.end_stopped(self._consequences(chunk))
                self._keep(outputs)
                sort_outputs(outputs, events, commands)
        return [Emit(events), *commands]

    def reached(self, command: PrepareStep | AskModel | StartTool) -> bool:
        """The reader has read everything before this command; returns whether to carry it out now."""
        match command:
            case PrepareStep():
                return self.phase in ("new", "hook")
            case AskModel():
                return self.phase == "answer"
            case StartTool():
                return self.executions.reached(command)

    def ended(self) -> list[Command]:
        """The model's response is over, and the reader has read all of it."""
        if self.phase != "answer":
            return []
        self.fold(0)
        turn, executions = self.builder.build(), self.executions
        end = "content_filter" if turn.refusal else turn.finish_reason
        if end in ("error", "cut") and (again := self._fall_back(turn.error.message if turn.error else ENDS[end][1])):
            return again
        outputs: list[Output] = []
        for call in turn.invalid_calls:
            if (execution := executions.table.at(call.block)) is None or not execution.is_confirmed:
                outputs += executions.invalid(call)
        self.take_turn(turn)
        outputs.append(StepEnd(self.step, turn.finish_reason or "cut", turn.usage))
        if end in ENDS:
            message = turn.error.message if turn.error else turn.finish_message
            return self._commands(outputs + self.end(ENDS[end][0], message or ENDS[end][1]))
        if not calls_of(turn.parts) and not self.new_messages:
            return self._commands(outputs + self.end_without_calls(turn))
        repeats = max((self.tally.seen.get(fingerprint, 0) for fingerprint in executions.table.repeats), default=0)
        waiting = executions.table.count("held", "checking", "ready")
        if over := self.tally.over(self.rules.limits, waiting, repeats):
            return self._commands(outputs + self.end("limit", over))
        self.phase = "tools"
        return self._commands(outputs + self._after(executions.release()))

    def request_failed(self, error: Error) -> list[Command]:
        """The request to the model failed: another model is asked, if the step has one."""
        return self._fall_back(error.message) or self.failed(error)

    def failed(self, error: Error) -> list[Command]:
        """The driver failed, a hook did, or a request that is not sent again."""
        if self.phase == "over":
            return []
        self.error = error
        self.fold(0)
        self.builder.add(error)
        return self._commands([error, *self.stop("error", error.message, "error")])

    def approval_checked(self, key: str, answer: bool | Outcome) -> list[Command]:
        """It is known whether a call needs approval, or why its arguments do not fit."""
        return self._commands(self._after(self.executions.checked(key, answer))) if self.phase != "over" else []

    def tool_progress(self, key: str, data: Any) -> list[Command]:
        """A tool reports its progress."""
        execution = self.executions.table.running(key)
        return [Emit([ToolProgress(key, execution.call_id, execution.name, data)])] if execution else []

    def tool_asks(self, key: str, question: dict[str, Any]) -> list[Command]:
        """A tool asks a question, and waits for the answer (`provide`)."""
        execution = self.executions.table.running(key)
        if execution is None or execution.question is not None:
            return []
        self.executions.table.ask(execution, question)
        return [Emit([execution.request])]

    def question_closed(self, key: str) -> None:
        """A tool no longer waits for an answer."""
        execution = self.executions.table.running(key)
        if execution is not None and execution.question is not None:
            self.executions.table.ask(execution, None)

    def tool_done(self, key: str, outcome: Outcome) -> list[Command]:
        """An execution ended."""
        return self._commands(self._after(self.executions.done(key, outcome))) if self.phase != "over" else []

    def tool_late(self, key: str) -> list[Command]:
        """The timeout of an execution expired."""
        if self.phase == "over":
            return []
        stopped = [CancelTool(key)] if self.inner.find(key) else []
        return self._commands(self._after([*stopped, *self.executions.late(key)]))

    def decide(
        self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = ""
    ) -> list[Command]:
        """A person approved or declined a call."""
        self.expect_decision(call_id, approved, arguments)
        decision = Decision(call_id, approved, deep_copy(arguments), reason)
        return self._commands(self._after([decision, *self.executions.decide(call_id, approved, arguments, reason)]))

    def provide(self, call_id: str, outcome: Outcome) -> list[Command]:
        """The result of a deferred call has come, or the answer to the question of a tool."""
        if self.waits_for(call_id, "input"):
            key = self.executions.table.waiting[call_id].key
            self.question_closed(key)
            return [AnswerTool(key, outcome)]
        self.expect(call_id, "deferred")
        return self._commands(self._after(self.executions.provide(call_id, outcome)))

    def call_expired(self, call_id: str) -> list[Command]:
        """A call has waited for a decision or for its result as long as it may."""
        return self._commands(self._after(self.executions.expired(call_id))) if self.phase != "over" else []

    def say(self, message: Message) -> list[Command]:
        """Add a message: the model gets it with the next step, also if it has just answered."""
        self.expect_open()
        self.new_messages.append(message)
        return self._commands([Said(message)])

    def cancel(self, why: str = "the run was cancelled", unread: Sequence[StreamEvent] = ()) -> list[Command]:
        """The reader cancelled the run, or went away, and will not read these events.

        Of them and of the events that follow, the reader gets the ends of tools that had started, the end of the step
        and that of the run. What was not read of a response is not in the history, unless it is in a log.
        """
        own, shown, logged = self.inner.cancel(why, unread)
        if self.is_logged:
            return self._cancel_logged(why, own, shown, logged)
        unread_chunks = sum(is_chunk(event) for event in own)
        self.fold(unread_chunks)
        self.unfolded.clear()
        if self.phase == "answer" and any(isinstance(event, StepStart) for event in own):
            self.phase, self.tally.step = "tools", self.step - 1  # the step has not begun: no request was sent
        if self.phase != "over":
            outputs = self.stop("cancelled", why)
        elif any(isinstance(event, Done) for event in own):
            self.keep_read(unread_chunks)
            self.ending = "cancelled", why
            outputs = [self.done(*self.ending)]
        else:
            return []
        hidden = {event.key for event in own if isinstance(event, ToolStart)}
        due = [output for output in [*own, *outputs] if is_due(output, self.starts, hidden)]
        ends = [as_read(output, self.messages) if isinstance(output, ToolEnd) else output for output in due]
        return self._commands([*shown, *ends])

    def expire(self, why: str) -> list[Command]:
        """The time limit of the run is over. What the reader has not read yet still comes, unless it cancels."""
        self.fold_all()
        return self._commands(self.stop("limit", why))

    def pause(self, seconds: float | None = None) -> list[Command]:
        """The run ends here for now; stored, it can continue later. Only a run that waits for others can be paused.

        After this many seconds it has to continue, because a call expires. The messages of its `Done` say of each open
        call that it waits; in what `dump` returns it is still open.
        """
        if not self.is_waiting:
            raise UsageError("only a run that waits for approvals or deferred results can be paused")
        kinds = {request.kind for request in self.waiting}
        why = "a call waits for approval" if "approval" in kinds else "a call waits for its result from elsewhere"
        return [Emit([self.done("paused", why)], [Waiting(seconds)])]

    # -- how it continues ------------------------------------------------------------------------------------------

    def _commands(self, outputs: list[Output]) -> list[Command]:
        """The commands of an input to the run."""
        self._keep(outputs)
        return as_commands(outputs)

    def _keep(self, outputs: list[Output]) -> None:
        """Keep the events among the outputs in the record of the run."""
        for output in outputs:
            self.record.add(output)

    def _consequences(self, chunk: StreamChunk) -> list[Output]:
        """What follows from a chunk besides passing it on."""
        match chunk:
            case ToolCallClosed(choice=0):
                return self.executions.closed(chunk)
            case ToolCall(choice=0):
                return self.executions.confirmed(chunk)
            case ToolCallInvalid(choice=0):
                return self.executions.invalid(chunk)
            case Retry():
                self.tally.withdrawn(chunk)
                return self.executions.void_all("the answer was withdrawn")
            case Usage():
                self.tally.so_far = chunk
            case Error():
                self.error = chunk
            case _:
                pass
        return []

    def _withdraw(self, why: str, model: str = "") -> list[Command] | None:
        """Take back what has come of the response; None if a call in it had side effects."""
        if self.executions.had_effect({call.block for call in calls_of(self.builder.build().parts)}):
            return None
        return self.chunks([Retry(why, model)]) if self.has_chunks or model else []

    def _fall_back(self, why: str) -> list[Command]:
        """Ask the next of the step's models; nothing if there is none, or a call had side effects."""
        left = (self.changes.fallbacks or ())[self.tally.attempt :]
        if self.phase != "answer" or not left:
            return []
        self.fold(0)
        withdrawn = self._withdraw(why, left[0])
        return [] if withdrawn is None else [*withdrawn, self.request()]

    def _ask_again(self) -> list[Command]:
        """A response was interrupted with its process: ask for it again, or keep it if calls in it had side effects."""
        withdrawn = self._withdraw("the run was interrupted")
        if withdrawn is not None:
            return [*withdrawn, self.request()]
        turn = self.take_turn(self.builder.build())
        self.phase = "tools"
        restarted = [*self.executions.interrupt(), *self.executions.wait_on(self.seconds_left)]
        ends = self.abandon_calls("the run was interrupted", except_started=True)
        return self._commands(self._after([StepEnd(self.step, "cut", turn.usage), *restarted, *ends]))

    def _cancel_logged(
        self, why: str, unread: Sequence[StreamEvent], shown_inner: list[Nested], logged_inner: list[Nested]
    ) -> list[Command]:
        """Cancel a run with a log: what the reader has not read is in the log, and stays."""
        self.fold(0)
        hidden = {event.key for event in unread if isinstance(event, ToolStart)}
        outputs = self.stop("cancelled", why)
        due: list[Output] = [output for output in [*unread, *outputs] if is_due(output, self.starts, hidden)]
        events: list[StreamEvent] = []
        commands: list[Command] = []
        sort_outputs(outputs, events, commands)
        if not outputs and any(isinstance(event, Done) for event in unread):  # it is over already
            due.append(self.done(*self.ending))
        ends = [event for event in due if isinstance(event, ToolEnd | StepEnd | Done)]
        shown: list[StreamEvent] = [*shown_inner, *ends]
        log = [*logged_inner, *events]
        return [*([Emit(shown, log)] if shown or log else []), *commands]

    def _after(self, outputs: list[Output]) -> list[Output]:
        """Continue after something happened to a tool: with the next step, if all of this one have ended."""
        outputs = self.inner.end_stopped(outputs)
        if self.phase != "tools" or not self.executions.table.is_finished:
            return outputs
        work = "" if self.new_messages else self.builder.build().other_work
        outputs += self.close_step()
        over = self.tally.failing(self.rules.policies) or self.tally.over(self.rules.limits, 0, 0)
        if over:
            return outputs + self.end("limit", over)
        return outputs + (self.end("paused", waits_for_client(work)) if work else self.ask())
