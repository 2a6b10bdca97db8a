"""The agent loop as a state machine without I/O.

The methods of `Run` are named for what happened: chunks came, the response ended, a tool is done, a person decided,
somebody cancelled. Each returns commands, which a driver carries out; the driver decides nothing. Between any two
inputs a run can be stored as JSON, loaded elsewhere and continued.

| phase | what happens | then |
|---|---|---|
| `new` | nothing yet | `begin` → `answer` |
| `answer` | the model streams; tools may start early | `ended` → `tools` or `over` |
| `tools` | tools run, or calls wait for somebody | the last one is done → `answer` |
| `over` | nothing more | |

A tool starts by its policy. `closed`: as soon as the JSON of its arguments closes, before the protocol has confirmed
the call; if the call then changes, the execution is discarded and it runs again. `call`: when the call is confirmed.
`turn`: when the response has ended with a reason that lets tools run, so that a refusal, a filter or a broken
connection cannot cause a side effect. A call that needs approval waits for a person after that; a deferred call is
handed over when it would start, and waits for its result. A damaged call does not run, unless the caller opted in to
repaired arguments for its fault, and then only after the turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.errors import UsageError
from penstock.events import (
    Error,
    Fault,
    FinishReason,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallInvalid,
    Usage,
)
from penstock.messages import Message, ToolResult, result, tool_results
from penstock.run.commands import (
    AskModel,
    CancelTool,
    Command,
    Emit,
    Output,
    StartTool,
    StopAsking,
    as_commands,
    sort_outputs,
)
from penstock.run.events import (
    ApprovalRequest,
    Done,
    EndReason,
    RequestKind,
    StepEnd,
    StepStart,
    StreamEvent,
    ToolEnd,
    ToolProgress,
    ToolStart,
    is_chunk,
)
from penstock.run.execution import Execution
from penstock.run.executions import Executions
from penstock.run.limits import Limits, Tally
from penstock.run.numbering import RunNumbering
from penstock.run.start_rules import RunRules, Starts
from penstock.run.stored import VERSION, Phase, StoredRun, decode
from penstock.tools.outcome import Outcome
from penstock.tools.policy import ToolPolicy
from penstock.turn import Turn, TurnBuilder

ENDS: dict[str, tuple[EndReason, str]] = {
    "content_filter": ("refused", "the model refused, or a filter ended its response"),
    "cut": ("cut", "the response was cut off before its end"),
    "error": ("error", "the provider reported an error"),
}
"""Finish reasons of a response after which no tool may start, and why."""

_CONSEQUENTIAL = frozenset({ToolCallClosed, ToolCall, ToolCallInvalid, Retry, Usage, Error})
"""The chunks that a run does not only pass on."""


class Run:
    """A run of an agent: requests and tool calls until the model makes no more calls.

    Calls with one of the faults in `run_repaired` run with repaired arguments. The class has one small method for each
    input and each question, which is why it has many.
    """

    def __init__(
        self,
        messages: Iterable[Message],
        policies: Mapping[str, ToolPolicy],
        limits: Limits | None = None,
        run_repaired: Collection[Fault] = (),
    ) -> None:
        self.messages = list(messages)  # without the step under way: see `history`
        self.phase: Phase = "new"
        self.output = ""  # the text of the last response
        self.error: Error | None = None  # the last one that the model or the driver reported
        self._rules = RunRules(policies, limits or Limits(), frozenset(run_repaired))
        self._tally = Tally()
        self._numbering = RunNumbering(self.messages)
        self._builder = TurnBuilder()
        self.unfolded: deque[StreamChunk] = deque()  # the last chunks of the response: see `fold`
        self._starts = Starts()
        self._executions = Executions(0, self._rules, self._tally, self._starts)
        self._ending: tuple[EndReason, str] = ("answered", "")  # when it is over: how, and why

    # -- what happened ---------------------------------------------------------------------------------------------

    def begin(self) -> list[Command]:
        """The run begins, or continues with what was stored."""
        match self.phase:
            case "new":
                why = self._rules.limits.no_run
                return as_commands(self._end("limit", why) if why else self._ask())
            case "answer":
                return as_commands(self._ask_again())
            case "tools":
                outputs = [*self._executions.interrupt(), *self.waiting]
                return as_commands(outputs + self._after(self._executions.release()))
            case "over":
                return [Emit([self._done(*self._ending)])]

    def chunks(self, chunks: list[StreamChunk]) -> list[Command]:
        """The model sent these chunks: all that one read of the network has brought."""
        if self.phase != "answer":
            return []
        events: list[StreamEvent] = []
        commands: list[Command] = []
        numbered = self._numbering.feed(chunks)
        self.unfolded.extend(numbered)
        for chunk in numbered:
            events.append(chunk)
            if type(chunk) in _CONSEQUENTIAL:
                sort_outputs(self._consequences(chunk), events, commands)
        return [Emit(events), *commands]

    def fold(self, unread: int) -> None:
        """The reader has read all chunks but this many of the last ones: add those to the response so far."""
        unfolded, add = self.unfolded, self._builder.add
        while len(unfolded) > unread:
            add(unfolded.popleft())

    def reached(self, command: AskModel | StartTool) -> bool:
        """The reader has read everything before this command; returns whether to carry it out now."""
        return self.phase == "answer" if isinstance(command, AskModel) else self._executions.reached(command)

    def ended(self) -> list[Command]:
        """The model's response is over, and the reader has read all of it."""
        if self.phase != "answer":
            return []
        self.fold(0)
        turn, executions = self._take_turn(), self._executions
        outputs: list[Output] = []
        for call in turn.invalid_calls:
            if (execution := executions.table.at(call.block)) is None or not execution.is_confirmed:
                outputs += executions.invalid(call)
        outputs.append(StepEnd(self.step, turn.finish_reason, turn.usage))
        end = "content_filter" if turn.refusal else turn.finish_reason
        if end in ENDS:
            reason, why = ENDS[end]
            return as_commands(outputs + self._end(reason, turn.error.message if turn.error else why))
        if not turn.tool_calls and not turn.invalid_calls:
            return as_commands(outputs + self._end("length" if turn.finish_reason == "length" else "answered", ""))
        repeats = max((self._tally.seen.get(fingerprint, 0) for fingerprint in executions.table.repeats), default=0)
        waiting = executions.table.count("held", "checking", "ready")
        if over := self._tally.over(self._rules.limits, waiting, repeats):
            return as_commands(outputs + self._end("limit", over))
        self.phase = "tools"
        return as_commands(outputs + self._after(executions.release()))

    def failed(self, error: Error) -> list[Command]:
        """The request to the model failed, or the driver did."""
        if self.phase == "over":
            return []
        self.error = error
        self.fold(0)
        return as_commands([error, *self._stop("error", error.message, "error")])

    def approval_checked(self, key: str, answer: bool | Outcome) -> list[Command]:
        """It is known whether a call needs approval, or why its arguments do not fit."""
        return as_commands(self._after(self._executions.checked(key, answer))) if self.phase != "over" else []

    def tool_progress(self, key: str, data: Any) -> list[Command]:
        """A tool reports its progress."""
        execution = self._executions.table.running(key)
        return [Emit([ToolProgress(key, execution.call_id, execution.name, data)])] if execution else []

    def tool_done(self, key: str, outcome: Outcome) -> list[Command]:
        """An execution ended."""
        return as_commands(self._after(self._executions.done(key, outcome))) if self.phase != "over" else []

    def tool_late(self, key: str) -> list[Command]:
        """The timeout of an execution expired."""
        return as_commands(self._after(self._executions.late(key))) if self.phase != "over" else []

    def decide(
        self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = ""
    ) -> list[Command]:
        """A person approved or declined a call."""
        self.expect_decision(call_id, approved, arguments)
        return as_commands(self._after(self._executions.decide(call_id, approved, arguments, reason)))

    def provide(self, call_id: str, outcome: Outcome) -> list[Command]:
        """The result of a deferred call has come."""
        self.expect(call_id, "deferred")
        return as_commands(self._after(self._executions.provide(call_id, outcome)))

    def cancel(self, why: str = "the run was cancelled", unread: Sequence[StreamEvent] = ()) -> list[Command]:
        """The reader cancelled the run, or went away, and will not read these events.

        Of them and of the events that follow, the reader gets the ends of tools that had started, the end of the step
        and that of the run. What was not read of a response is not in the history.
        """
        self.fold(sum(is_chunk(event) for event in unread))
        self.unfolded.clear()
        if self.phase == "answer" and any(isinstance(event, StepStart) for event in unread):
            self.phase, self._tally.step = "tools", self.step - 1  # the step has not begun: no request was sent
        if self.phase != "over":
            outputs = self._stop("cancelled", why)
        elif any(isinstance(event, Done) for event in unread):
            self._ending = "cancelled", why
            outputs = [self._done(*self._ending)]
        else:
            return []
        hidden = {event.key for event in unread if isinstance(event, ToolStart)}
        due = [output for output in [*unread, *outputs] if self._is_due(output, hidden)]
        return as_commands([self._as_read(output) if isinstance(output, ToolEnd) else output for output in due])

    def expire(self, why: str) -> list[Command]:
        """The time limit of the run is over."""
        self.fold(0)
        return as_commands(self._stop("limit", why))

    def pause(self) -> list[Command]:
        """The run ends here for now; stored, it can continue later. Only a run that waits for others can be paused.

        The messages of its `Done` say of each open call that it waits; in what `dump` returns it is still open.
        """
        if not self.is_waiting:
            raise UsageError("only a run that waits for approvals or for results from elsewhere can be paused")
        kinds = {request.kind for request in self.waiting}
        why = "a call waits for approval" if "approval" in kinds else "a call waits for its result from elsewhere"
        return [Emit([self._done("paused", why)])]

    # -- what can be asked -----------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.phase == "over"

    @property
    def step(self) -> int:
        """How many requests were sent to the model."""
        return self._tally.step

    @property
    def usage(self) -> Usage:
        """The tokens of all responses together."""
        return self._tally.usage

    @property
    def history(self) -> list[Message]:
        """The history as it would be if the run ended now; every provider accepts it. The run itself does not change.

        What was read of the response so far (see `fold`) is in it as one that was cut. A call without a result has one
        that says why: it is running, it waits for approval, it runs elsewhere.
        """
        if self.phase not in ("answer", "tools"):
            return list(self.messages)
        parts = self._builder.build().parts if self.phase == "answer" else ()
        messages = [*self.messages, *([Message("assistant", parts)] if parts else [])]
        return messages + self._results(messages)

    @property
    def waiting(self) -> list[ApprovalRequest]:
        """The calls that wait for a decision or for their result from elsewhere."""
        return [execution.request for execution in list(self._executions.table.waiting.values())]

    @property
    def is_waiting(self) -> bool:
        """Whether nothing can happen before a person decides or a result comes from elsewhere."""
        table = self._executions.table
        return (
            self.phase == "tools"
            and bool(table.waiting)
            and not table.count("checking", "ready", "starting", "running")
        )

    def waits_for(self, call_id: str, kind: RequestKind) -> bool:
        """Whether the call with this id waits for a decision, or for its result from elsewhere."""
        execution = self._executions.table.waiting.get(call_id)
        return execution is not None and execution.state == kind

    def expect(self, call_id: str, kind: RequestKind) -> None:
        """Raise a `UsageError` unless the call with this id waits for that."""
        if not self.waits_for(call_id, kind):
            missing = "a decision" if kind == "approval" else "a result from elsewhere"
            waiting = ", ".join(f"{request.call_id} ({request.kind})" for request in self.waiting) or "none"
            raise UsageError(f"no call with the id {call_id!r} waits for {missing}; waiting: {waiting}")

    def expect_decision(self, call_id: str, approved: bool, arguments: dict[str, Any] | None) -> None:
        """Raise unless the call waits for a decision; an `ArgumentsError` if it cannot run with these arguments."""
        self.expect(call_id, "approval")
        if approved and arguments is not None:
            self._executions.check(call_id, arguments)

    def dump(self) -> bytes:
        """The run as JSON, to be loaded and continued elsewhere."""
        executions = [_to_store(execution) for execution in self._executions.table]
        stored = StoredRun(
            VERSION, self.messages, self.phase, self._builder.build(), executions, self._tally,
            self.output, self._ending, self._numbering.next_block,
        )  # fmt: skip
        return msgspec.json.encode(stored)

    @classmethod
    def load(
        cls,
        data: bytes | str,
        policies: Mapping[str, ToolPolicy],
        limits: Limits | None = None,
        run_repaired: Collection[Fault] = (),
    ) -> Run:
        """The run that was stored. A tool that was running then is not started again: it may have had an effect."""
        stored = decode(data)
        run = cls(stored.messages, policies, limits, run_repaired)
        run.phase, run._tally, run.output, run._ending = stored.phase, stored.tally, stored.output, stored.end
        for part in stored.answer.parts:
            run._builder.add(part)
        run._numbering = RunNumbering(stored.messages, stored.next_block)
        run._executions = Executions(run.step, run._rules, run._tally, run._starts)
        run._executions.load(stored.executions)
        return run

    # -- how it continues ------------------------------------------------------------------------------------------

    def _consequences(self, chunk: StreamChunk) -> list[Output]:
        """What follows from a chunk besides passing it on."""
        match chunk:
            case ToolCallClosed(choice=0):
                return self._executions.closed(chunk)
            case ToolCall(choice=0):
                return self._executions.confirmed(chunk)
            case ToolCallInvalid(choice=0):
                return self._executions.invalid(chunk)
            case Retry():
                self._tally.paid()
                return self._executions.void_all("the answer was withdrawn")
            case Usage():
                self._tally.so_far = chunk
            case Error():
                self.error = chunk
            case _:
                pass
        return []

    def _ask(self) -> list[Output]:
        self._tally.step += 1
        self.phase = "answer"
        self._numbering.next_response()
        self._builder = TurnBuilder()
        self.unfolded.clear()
        self._executions = Executions(self.step, self._rules, self._tally, self._starts)
        return [StepStart(self.step), AskModel(tuple(self.messages))]

    def _ask_again(self) -> list[Output]:
        """Storing the run interrupted a response: ask for it again, and keep it if it had side effects."""
        if not self._executions.had_effect:
            self._tally.step -= 1
            return [*self._executions.void_all("the answer is asked for again"), *self._ask()]
        self._take_turn()
        return [*self._settle("the run was interrupted"), *self._ask()]

    def _take_turn(self) -> Turn:
        """Add the response to the history."""
        turn = self._builder.build()
        if turn.parts:
            self.messages.append(Message("assistant", turn.parts))
        self._tally.answered(self._executions.table.repeats)
        self.output = turn.text
        return turn

    def _after(self, outputs: list[Output]) -> list[Output]:
        """Continue after something happened to a tool: with the next step, if all of this one have ended."""
        if self.phase != "tools" or not self._executions.table.is_finished:
            return outputs
        self._tally.tried(self._executions.table, self._rules.policies)
        outputs += self._settle("")
        over = self._tally.failing(self._rules.policies)
        return outputs + (self._end("limit", over) if over else self._ask())

    def _settle(self, why: str) -> list[Output]:
        """Give every call of the last response a result, and add them to the history, all in one message."""
        calls = _calls(self.messages)
        self._executions.complete(calls)
        outputs = self._executions.abandon(why, {call.block for call in calls})
        self.messages += self._results(self.messages)
        return outputs

    def _results(self, messages: list[Message]) -> list[Message]:
        """The results of the last response's calls in one message; calls that have not ended say so in theirs."""
        known = self._executions.results
        results = [_truthful(call, known.get(call.block)) for call in _calls(messages)]
        return [tool_results(*results)] if results else []

    def _end(self, reason: EndReason, why: str) -> list[Output]:
        outputs = self._settle(why)
        self.phase, self._ending = "over", (reason, why)
        self._executions = Executions(self.step, self._rules, self._tally, self._starts)
        return [*outputs, self._done(reason, why)]

    def _stop(self, reason: EndReason, why: str, finish: FinishReason = "cut") -> list[Output]:
        """End at once, whatever is going on."""
        if self.phase == "over":
            return []
        outputs: list[Output] = []
        if self.phase == "answer":
            outputs = [StopAsking(), StepEnd(self.step, finish, self._take_turn().usage)]
        return outputs + self._end(reason, why)

    def _is_due(self, output: Output, hidden: Collection[str]) -> bool:
        """Whether it still comes after the run was cancelled; `hidden` are the tools with a start that was not read."""
        match output:
            case ToolEnd():
                starts = self._starts
                return output.key in starts.began or (output.key in starts.announced and output.key not in hidden)
            case Done():
                return output.reason == "cancelled"
            case StepEnd() | StopAsking() | CancelTool():
                return True
            case _:
                return False

    def _as_read(self, end: ToolEnd) -> ToolEnd:
        """The end of a tool after the run was cancelled: `discarded` if the history does not have its result."""
        if end.ending == "discarded":
            return end
        for message in reversed(self.messages):
            for known in message.results:
                if known.call_id == end.call_id:
                    return end if known == end.result else ToolEnd(end.key, known, "discarded")
        return ToolEnd(end.key, _discarded(end.result), "discarded")

    def _done(self, reason: EndReason, why: str) -> Done:
        return Done(reason, self.output, tuple(self.history), self.usage, why)


def _to_store(execution: Execution) -> Execution:
    """A copy for `dump`: without the program's data, and as not started if its start was not read."""
    state = "ready" if execution.state in ("checking", "starting") else execution.state
    return msgspec.structs.replace(execution, data=None, state=state)


def _calls(messages: list[Message]) -> list[ToolCall | ToolCallInvalid]:
    """The calls of the last message."""
    parts = messages[-1].parts if messages and messages[-1].role == "assistant" else ()
    return [part for part in parts if isinstance(part, ToolCall | ToolCallInvalid)]


def _truthful(call: ToolCall | ToolCallInvalid, known: ToolResult | None) -> ToolResult:
    """The result of a call in the history: a call that had not ended, or was read only in part, did not succeed."""
    if known is None:
        return result(call, "Not run: the call had not come to its end yet.", is_error=True)
    if isinstance(call, ToolCallInvalid) and call.why == "cut" and not known.is_error:
        return _discarded(known)
    return known


def _discarded(known: ToolResult) -> ToolResult:
    """The result of a call that was not read to its end."""
    text = "Discarded: the tool ran, but the run was stopped before the rest of its call was read."
    return ToolResult(known.call_id, known.name, (Text(0, text),), is_error=True)
