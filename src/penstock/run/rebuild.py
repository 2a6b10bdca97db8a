"""Rebuilds a run from the events of its log, without calling any code of the user.

Events are facts: a tool has started because the log says so, whatever its policy says today. What a log cannot say,
because it ends before it happened, did not happen. The run continues from there with `Run.begin`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, assert_never

from penstock.errors import UsageError
from penstock.events import Error, Fault, Retry, StreamChunk, ToolCall, ToolCallClosed, ToolCallInvalid, Usage
from penstock.output.output_type import OutputType
from penstock.run.calls.execution import Execution, ExecutionTable, ToolTime, fingerprint_of
from penstock.run.events import (
    ApprovalRequest,
    CallReviewed,
    Decision,
    Done,
    HistoryReplaced,
    LogEvent,
    Nested,
    OutputInvalid,
    Reset,
    RunStart,
    Said,
    StepEnd,
    StepStart,
    Taken,
    ToolEnd,
    ToolPrepare,
    ToolProgress,
    ToolResults,
    ToolReturned,
    ToolStart,
    Waiting,
)
from penstock.run.forked import Forked
from penstock.run.inner_runs import SPENDING, outcome_of, unwrap
from penstock.run.limits import Limits
from penstock.run.machine import Run
from penstock.run.state import calls_of
from penstock.tools.policy import ToolPolicy


def rebuild(
    events: Iterable[LogEvent],
    policies: Mapping[str, ToolPolicy],
    limits: Limits | None = None,
    run_repaired: Collection[Fault] = (),
    output: OutputType[Any] | None = None,
) -> Run:
    """The run whose log has these events; the first of them is `RunStart`."""
    rest = iter(events)
    start = next(rest, None)
    if not isinstance(start, RunStart):
        raise UsageError("the log of a run begins with run_start, and this one does not")
    run = Run(start.messages, policies, limits, run_repaired, output)
    run.state.is_logged = True
    run.state.record.events[0] = start
    replay = Replay(run)
    for event in rest:
        replay.apply(event)
    for member in run.tree():
        member.state.numbering.next_response()
    return run


class Replay:
    """Applies the events of a log to a run, one by one."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._state = run.state

    def apply(self, event: LogEvent) -> None:
        """Bring the run to where it was after this event."""
        state = self._state
        if state.phase == "over" and not isinstance(event, Taken):
            raise UsageError(f"the log of a run has {event.type} after its end")
        match event:
            case StepStart() | StepEnd() | HistoryReplaced() | OutputInvalid() | Said():
                self._step(event)
            case ToolPrepare() | ToolStart() | ToolEnd() | ToolResults() | ToolProgress() | ToolReturned():
                self._tool(event)
            case CallReviewed() | ApprovalRequest() | Decision():
                self._decision(event)
            case Taken():
                self._take_over()
            case Waiting():
                pass
            case Forked():
                if state.phase in ("new", "hook"):  # no hook has seen the history yet: the next step has what was said
                    state.add_said()
            case Done():
                self._finish(event)
            case RunStart() | Reset():
                raise UsageError(f"the log of a run has a {event.type} among its events")
            case Nested():
                self._apply_nested(event)
            case _:
                self._add_chunk(event)
        state.record.add(event)

    def _step(self, event: StepStart | StepEnd | HistoryReplaced | OutputInvalid | Said) -> None:
        state = self._state
        match event:
            case StepStart():
                self._begin_step(event)
            case StepEnd():
                self._end_step()
            case HistoryReplaced():
                self._close_tools()
                state.replace_history(event.splices)
            case Said():
                if state.executions.table.is_finished:  # while hooks decide on a step: for the step after it
                    self._close_tools()
                state.new_messages.append(event.message)
            case OutputInvalid():
                state.tally.invalid_outputs += 1
                state.new_messages.append(event.message)
                state.add_said()
            case _:
                assert_never(event)

    def _tool(self, event: ToolPrepare | ToolStart | ToolEnd | ToolResults | ToolProgress | ToolReturned) -> None:
        match event:
            case ToolStart():
                self._start(event)
            case ToolEnd():
                self._end(event)
            case ToolResults():
                self._run.steps.close()
            case ToolReturned():
                _return(self._state.executions.table, event)
            case ToolPrepare() | ToolProgress():
                pass  # what was prepared is made again
            case _:
                assert_never(event)

    def _decision(self, event: CallReviewed | ApprovalRequest | Decision) -> None:
        match event:
            case CallReviewed():
                if (execution := self._state.executions.table.find(event.key)) is not None:
                    execution.take_review(event)
            case ApprovalRequest():
                self._wait(event)
            case Decision():
                self._decide(event)
            case _:
                assert_never(event)

    def _finish(self, done: Done) -> None:
        self._run.steps.settle("")
        self._state.finish(done.reason, done.why)
        self._state.output, self._state.tally.usage = done.output, done.usage

    def _take_over(self) -> None:
        for member in self._run.tree():
            member.state.executions.close_questions()

    def _apply_nested(self, nested: Nested) -> None:
        """Bring an inner run to where it was after this event; its end is in the `tool_end` that follows, too."""
        run, state, call_id, event = self._run, self._state, nested.path[0], unwrap(nested)
        inner = run.inner.at(call_id)
        if isinstance(event, RunStart):
            execution = next((member for member in state.executions.table if member.call_id == call_id), None)
            if execution is None or execution.state != "running":
                raise UsageError(f"the log of a run has an agent in the call {call_id!r}, which is not running")
            run.inner.begin(execution, event)
        elif inner is not None and not inner.has_ended:
            Replay(inner.run).apply(event)
            if isinstance(nested.event, SPENDING):
                run.inner.count()
            if isinstance(event, Done):
                run.inner.take(inner, ())
                if (execution := state.executions.table.running(inner.key)) is not None:
                    state.executions.table.finish(execution, outcome_of(inner.run.state))
        elif isinstance(event, Done):  # a stored run keeps only the end of a finished agent
            run.inner.end(None, event.usage)
            state.record.events.append(nested)
        else:
            raise UsageError(f"the log of a run has {event.type} of an agent in the call {call_id!r}, which has ended")

    def _begin_step(self, start: StepStart) -> None:
        state = self._state
        if state.phase == "answer" or start.step != state.step + 1:
            raise UsageError(f"the log of a run has step {start.step} after step {state.step}")
        self._close_tools()
        self._run.steps.begin(start.changes)

    def _close_tools(self) -> None:
        """All tools of the step have ended: a log has no `ToolResults` for that."""
        if self._state.phase == "tools":
            self._run.steps.close()

    def _end_step(self) -> None:
        state = self._state
        turn = state.take_turn(state.response.build())
        state.phase = "tools"
        if not calls_of(turn.parts):
            self._run.steps.close()

    def _add_chunk(self, chunk: StreamChunk) -> None:
        state, calls = self._state, self._state.executions.calls
        state.numbering.restore(chunk)
        state.response.builder.add(chunk)
        match chunk:
            case ToolCallClosed(choice=0):
                calls.closed(chunk)
            case ToolCall(choice=0):
                calls.confirmed(chunk)
            case ToolCallInvalid(choice=0):
                calls.invalid(chunk)
            case Retry():
                state.tally.withdrawn(chunk)
                for execution in state.executions.table:
                    calls.void(execution.block, "")
            case Usage():
                state.tally.so_far = chunk
            case Error():
                state.error = chunk
            case _:
                pass

    def _start(self, start: ToolStart) -> None:
        state, table = self._state, self._state.executions.table
        execution = table.find(start.key)
        if not start.key.startswith(f"{state.step}."):
            raise UsageError(f"the log of a run has a tool with the key {start.key!r} in step {state.step}")
        if execution is None:  # its policy was another one then
            fingerprint = fingerprint_of(start.name, start.arguments)
            execution = Execution(start.key, _block(start.key), start.call_id, start.name, start.arguments, fingerprint)
            table.add(execution)
        table.set_state(execution, "running")
        execution.needs_approval = False  # it would not have started otherwise
        state.starts.announced.add(start.key)
        state.starts.began.add(start.key)
        state.tally.calls += 1

    def _end(self, end: ToolEnd) -> None:
        state, table = self._state, self._state.executions.table
        execution = table.find(end.key)
        if state.phase == "answer" and end.ending == "discarded":
            if execution is not None:
                state.executions.calls.run_again(execution, "")
            return
        if execution is None:
            other = table.at(_block(end.key))
            if other is not None and other.is_confirmed:
                return  # the end of an execution whose call has changed since
            state.executions.calls.void(_block(end.key), "")
            execution = Execution(end.key, _block(end.key), end.call_id, end.name, {})
            table.add(execution)
        table.set_state(execution, "finished")
        execution.result, execution.ending, execution.is_confirmed = end.result, end.ending, True
        execution.is_withheld = end.is_withheld
        _take_time(execution, end)

    def _wait(self, request: ApprovalRequest) -> None:
        state = self._state
        for execution in state.executions.table:
            if execution.call_id != request.call_id:
                continue
            if request.kind == "input" and execution.state == "running":
                state.executions.table.ask(execution, request.arguments)
            elif request.kind != "input" and execution.state == "held":
                execution.expires, execution.has_waited = request.expires, True
                state.executions.table.set_state(execution, request.kind)
                execution.needs_approval, execution.preview = request.kind == "approval", request.preview
                execution.shown = request.arguments if execution.needs_approval else None
                if request.kind == "deferred":
                    state.starts.began.add(execution.key)
                    state.tally.calls += 1

    def _decide(self, decision: Decision) -> None:
        table = self._state.executions.table
        execution = table.waiting.get(decision.call_id)
        if execution is not None and decision.approved:
            execution.approve(decision.arguments)
            table.set_state(execution, "held")


def _return(table: ExecutionTable, returned: ToolReturned) -> None:
    """A tool has returned, and hooks have not passed on its result."""
    if (execution := table.find(returned.key)) is not None:
        table.set_state(execution, "revising")
        execution.result, execution.data, execution.is_confirmed = returned.result, returned.data, True
        _take_time(execution, returned)


def _take_time(execution: Execution, event: ToolEnd | ToolReturned) -> None:
    if event.started is not None and event.seconds is not None:
        execution.time = ToolTime(event.started, event.seconds)


def _block(key: str) -> int:
    """The block of an execution, which is part of its key: `step.block`, or `step.block.number`."""
    return int(key.split(".")[1])
