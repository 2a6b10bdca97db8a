"""The state of a run: its messages, the response so far, its tool calls, and what it has used.

It decides nothing: `Run` (in `machine`) does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import msgspec
from msgspec import Struct

from penstock.errors import OutputError, UsageError
from penstock.events import Error, Fault, StreamChunk, ToolCall, ToolCallInvalid, Usage
from penstock.messages import Message, Part, ToolResult, join_messages, result, tool_results
from penstock.output.find import find_output
from penstock.output.output_type import OutputType
from penstock.run.commands import Output
from penstock.run.events import (
    ApprovalRequest,
    Done,
    EndReason,
    LogEvent,
    RequestKind,
    RunStart,
    StreamEvent,
    ToolResults,
    ToolStart,
    is_chunk,
)
from penstock.run.execution import Execution, discarded_result
from penstock.run.executions import Executions
from penstock.run.inner_runs import InnerRuns
from penstock.run.limits import Limits, Tally, add_usage
from penstock.run.numbering import RunNumbering
from penstock.run.record import Record
from penstock.run.start_rules import RunRules, Starts
from penstock.run.step_changes import UNCHANGED, Splice, StepChanges, spliced
from penstock.run.stored import Phase, RunSnapshot, encode_events
from penstock.tools.policy import ToolPolicy
from penstock.turn import Turn, TurnBuilder


class _ReadPart(Struct, frozen=True):
    """The response of a run that ended while its reader was behind.

    What was read of it, the chunks after that, the place of its message in the history, and its calls.
    """

    builder: TurnBuilder
    unfolded: deque[StreamChunk]
    place: int
    executions: Executions


class RunState:
    """Everything that is known of a run.

    - `messages`: the history without the step under way (see `history`).
    - `output`: the text of the last response; with structured output, its JSON.
    - `error`: the last error that the model or the driver reported.
    - `ending`: how and why the run ended.
    - `new_messages`: the messages that were added during the run (`say`), for the next step.
    - `is_logged`: the run has a log, which also keeps what its reader has not read.
    - `has_hooks`: hooks decide on each step; `changes` are what they changed for the one under way.
    - `has_answer`: the model has responded.
    - `seconds_left`: how long calls that waited already when the run was stored may still wait, by call id.
    - `record`: its events. Those before them are in `base`, if version 1 has stored the run.
    - `inner`: the runs of agents that are its tools; `level` counts the runs around it.
    """

    def __init__(
        self,
        messages: Iterable[Message],
        policies: Mapping[str, ToolPolicy],
        limits: Limits | None = None,
        run_repaired: Collection[Fault] = (),
        output: OutputType[Any] | None = None,
    ) -> None:
        self.messages = list(messages)
        self.phase: Phase = "new"
        self.output = ""
        self.error: Error | None = None
        self.ending: tuple[EndReason, str] = ("answered", "")
        self.rules = RunRules(dict(policies), limits or Limits(), frozenset(run_repaired), output)
        self.tally = Tally()
        self.numbering = RunNumbering(self.messages)
        self.builder = TurnBuilder()
        self.unfolded: deque[StreamChunk] = deque()  # the last chunks of the response: see `fold`
        self.starts = Starts()
        self.executions = self.new_executions()
        self._read: _ReadPart | None = None
        self.new_messages: list[Message] = []
        self._result: tuple[Any] | None = None  # the output, once it was validated
        self.is_logged = False
        self.has_hooks = False
        self.has_answer = False
        self.changes = UNCHANGED
        self.seconds_left: Mapping[str, float] = {}
        self.record = Record(self.messages)
        self.base: bytes | None = None
        self.inner = InnerRuns(self)
        self.level = 0

    # -- what can be asked -----------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.phase == "over"

    @property
    def is_stuck(self) -> bool:
        """Whether too many workers in a row took the run over without any progress: it ends when it begins again."""
        return bool(self.tally.stuck(self.rules.limits))

    @property
    def step(self) -> int:
        """How many requests were sent to the model."""
        return self.tally.step

    @property
    def usage(self) -> Usage:
        """The tokens of all responses together, also of inner runs."""
        usage = self.tally.usage
        for inner in self.inner:
            usage = add_usage(usage, inner.run.usage)
        return usage

    def tree(self) -> Iterator[RunState]:
        """The run and its inner runs that have not ended, also those inside of them."""
        yield self
        for inner in self.inner:
            yield from inner.run.tree()

    @property
    def history(self) -> list[Message]:
        """The history as it would be if the run ended now; every provider accepts it. The run itself does not change.

        What was read of the response so far (see `fold`) is in it as one that was cut. A call without a result has one
        that says why: it is running, it waits for approval, it runs elsewhere.
        """
        if self.phase not in ("answer", "tools"):
            return list(self.messages)
        parts = self.builder.build().parts if self.phase == "answer" else ()
        messages = [*self.messages, *([Message("assistant", parts)] if parts else [])]
        return messages + self._results(messages)

    @property
    def result(self) -> Any:
        """The output: the text, or a value of the type that was asked for; an `OutputError` if there is none."""
        if self.rules.output is None:
            return self.output
        if self.phase != "over":
            raise OutputError("the run has no output yet: it has not ended", self.output)
        reason, why = self.ending
        if reason != "answered":
            raise OutputError(f"the run has no output ({reason})" + (f": {why}" if why else ""), self.output)
        return self.read_output()

    def read_output(self) -> Any:
        """Validate the last answer as the output, once; an `OutputError` if it is not valid."""
        if self._result is None:
            assert self.rules.output is not None
            self._result = (self.rules.output.read(self.output),)
        return self._result[0]

    @property
    def has_chunks(self) -> bool:
        """Whether anything of the response under way has come."""
        return bool(self.unfolded) or len(self.executions.table) > 0 or not self.builder.is_empty

    @property
    def waiting(self) -> list[ApprovalRequest]:
        """The calls that wait for a decision, for their result from elsewhere or for the answer to a question.

        Also those of inner runs.
        """
        return [request for run in self.tree() for request in run.own_waiting]

    @property
    def own_waiting(self) -> list[ApprovalRequest]:
        """The calls of this run itself that wait."""
        return [execution.request for execution in list(self.executions.table.waiting.values())]

    @property
    def is_waiting(self) -> bool:
        """Whether nothing can happen before a person decides or a result comes from elsewhere."""
        if self.phase != "tools":
            return False
        table = self.executions.table
        running = sum(inner.run.is_waiting for inner in self.inner)
        if table.count("checking", "starting") or table.count("running") > running:
            return False
        is_next_blocked = running > 0 or not table.count("ready")
        return is_next_blocked and (running > 0 or bool(table.waiting))

    def waits_for(self, call_id: str, kind: RequestKind) -> bool:
        """Whether the call with this id waits for that."""
        execution = self.executions.table.waiting.get(call_id)
        return execution is not None and execution.request_kind == kind

    def expect(self, call_id: str, kind: RequestKind) -> None:
        """Raise a `UsageError` unless the call with this id waits for that."""
        if not self.waits_for(call_id, kind):
            missing = "a decision" if kind == "approval" else "a result or an answer"
            waiting = ", ".join(f"{request.call_id} ({request.kind})" for request in self.waiting) or "none"
            raise UsageError(f"no call with the id {call_id!r} waits for {missing}; waiting: {waiting}")

    def expect_open(self) -> None:
        """Raise a `UsageError` if the run is over."""
        if self.phase == "over":
            raise UsageError("the run is over: start another one, with this message as its prompt")

    def expect_decision(self, call_id: str, approved: bool, arguments: dict[str, Any] | None) -> None:
        """Raise unless the call waits for a decision; an `ArgumentsError` if it cannot run with these arguments."""
        self.expect(call_id, "approval")
        if approved and arguments is not None:
            self.executions.check(call_id, arguments)

    # -- how it changes --------------------------------------------------------------------------------------------

    def fold(self, unread: int) -> None:
        """The reader has read all chunks but this many of the last ones: add those to the response so far."""
        unfolded, add = self.unfolded, self.builder.add
        while len(unfolded) > unread:
            add(unfolded.popleft())

    def fold_unread(self, unread: Sequence[StreamEvent]) -> None:
        """The reader has read all events but these, in this run and in its inner runs."""
        self.fold(sum(is_chunk(event) for event in unread))
        self.inner.fold(unread)

    def fold_all(self) -> None:
        """The run ends before the reader has read all chunks: add them, and remember what was read for `keep_read`."""
        if self.phase == "answer" and self.unfolded and not self.is_logged:
            self._read = _ReadPart(deepcopy(self.builder), deque(self.unfolded), len(self.messages), self.executions)
        self.fold(0)

    def keep_read(self, unread: int) -> None:
        """The reader of a run that is over will not read this many of the last chunks: take them out of the history."""
        if (read := self._read) is None:
            return
        self.builder, self.unfolded, self.executions = read.builder, read.unfolded, read.executions
        self.fold(unread)
        self.unfolded.clear()
        turn = self.builder.build()
        self.new_messages = [message for message in self.messages[read.place :] if message.role == "user"]
        self.messages[read.place :] = [Message("assistant", turn.parts)] if turn.parts else []
        self.messages += self._results(self.messages)
        self.output = turn.text
        self.finish(*self.ending)

    def new_executions(self) -> Executions:
        """The calls of a step, of which there are none yet."""
        return Executions(self.tally.step, self.rules, self.tally, self.starts)

    def begin_step(self, changes: StepChanges = UNCHANGED) -> None:
        """The next request is sent to the model."""
        self.inner.forget(self.tally.step)
        self.tally.step += 1
        self.tally.attempt = 0
        self.tally.spent(changes.usage)
        self.phase = "answer"
        self.changes = changes
        self.numbering.next_response()
        self.builder = TurnBuilder()
        self.unfolded.clear()
        self.executions = self.new_executions()

    def close_step(self) -> list[Output]:
        """All calls of a step have ended: its results, and what was said meanwhile, are in the history.

        What is said from here on, while hooks decide on the next step, is for the step after it.
        """
        self.tally.tried(self.executions.table, self.rules.policies)
        outputs = self.settle("")
        self.add_said()
        self.phase = "hook"
        self.executions = self.new_executions()
        return outputs

    def add_said(self) -> None:
        """Add the messages that were said during the run; user messages do not follow each other."""
        for message in self.new_messages:
            if self.messages and self.messages[-1].role == message.role:
                self.messages[-1] = join_messages(self.messages[-1], message)
            else:
                self.messages.append(message)
        self.new_messages.clear()

    def replace_history(self, splices: Sequence[Splice]) -> None:
        """Replace messages of the history."""
        self.messages[:] = spliced(self.messages, splices)

    def take_turn(self, turn: Turn) -> Turn:
        """Add the response to the history."""
        self.record.add_response(self.builder)
        if turn.parts:
            self.messages.append(Message("assistant", turn.parts))
            self.has_answer = True
        self.tally.answered(self.executions.table.repeats)
        self.output = turn.text if self.rules.output is None else find_output(turn.parts)
        return turn

    def settle(self, why: str) -> list[Output]:
        """Give every call of the last response a result, and add them to the history, all in one message."""
        outputs = self.abandon_calls(why)
        results = self._results(self.messages)
        self.messages += results
        return [*outputs, *map(ToolResults, results)]

    def abandon_calls(self, why: str, *, except_started: bool = False) -> list[Output]:
        """End the calls of the last response that have not ended: see `Executions.abandon`."""
        calls = _calls(self.messages)
        self.executions.calls.complete(calls)
        blocks = {call.block for call in calls}
        return self.inner.end_stopped(self.executions.abandon(why, blocks, except_started=except_started))

    def finish(self, reason: EndReason, why: str) -> None:
        """The run is over."""
        self.add_said()
        self.phase, self.ending = "over", (reason, why)
        self.executions = self.new_executions()

    def done(self, reason: EndReason, why: str) -> Done:
        """The event for the end of the run, or for a pause."""
        return Done(reason, self.output, tuple(self.history), self.usage, why)

    # -- as JSON ---------------------------------------------------------------------------------------------------

    def dump(self, deadlines: Mapping[str, float] | None = None) -> bytes:
        """The run as JSON, to be loaded and continued elsewhere; `deadlines` are those of calls that expire."""
        if self.phase == "over":
            end = Done(self.ending[0], self.output, (), self.usage, self.ending[1])
            return encode_events([RunStart(tuple(self.messages)), end], None, {}, self.numbering.next_block)
        return encode_events(self.stored_events(), self.base, deadlines or {}, self.numbering.next_block)

    def stored_events(self) -> list[LogEvent]:
        """The events from which the run can be rebuilt, as far as they were read."""
        events = self.record.events
        if self.phase == "answer":
            events = self.record.to_store(self.builder, self.unfolded)
        read = [event for event in events if not self._is_unread_start(event)]
        return [*read, *self.inner.stored(read)]

    def snapshot(self) -> RunSnapshot:
        """The state of the run as data, to be checked and compared."""
        executions = [_to_store(execution) for execution in self.executions.table]
        return RunSnapshot(
            1, self.messages, self.phase, self.builder.build(), executions, self.tally,
            self.output, self.ending, self.numbering.next_block,
        )  # fmt: skip

    def _is_unread_start(self, event: LogEvent) -> bool:
        """Whether this is the start of a tool that waits for the reader: it has not started, also not before."""
        if not isinstance(event, ToolStart) or event.key in self.starts.began:
            return False
        execution = self.executions.table.find(event.key)
        return execution is not None and execution.state == "starting"

    # -- inside ----------------------------------------------------------------------------------------------------

    def _results(self, messages: list[Message]) -> list[Message]:
        """The results of the last response's calls in one message; calls that have not ended say so in theirs."""
        known = self.executions.results
        results = [_truthful(call, known.get(call.block)) for call in _calls(messages)]
        return [tool_results(*results)] if results else []


def _to_store(execution: Execution) -> Execution:
    """A copy for a snapshot: without the program's data, and as not started if its start was not read."""
    state = "ready" if execution.state in ("checking", "starting") else execution.state
    return msgspec.structs.replace(execution, data=None, question=None, state=state)


def _calls(messages: list[Message]) -> list[ToolCall | ToolCallInvalid]:
    """The calls of the last message."""
    return calls_of(messages[-1].parts) if messages and messages[-1].role == "assistant" else []


def calls_of(parts: Iterable[Part]) -> list[ToolCall | ToolCallInvalid]:
    """The calls among the parts of a message or a turn."""
    return [part for part in parts if isinstance(part, ToolCall | ToolCallInvalid)]


def _truthful(call: ToolCall | ToolCallInvalid, known: ToolResult | None) -> ToolResult:
    """The result of a call in the history: a call that had not ended, or was read only in part, did not succeed."""
    if known is None:
        return result(call, "Not run: the call had not come to its end yet.", is_error=True)
    if isinstance(call, ToolCallInvalid) and call.why == "cut" and not known.is_error:
        return discarded_result(known)
    return known
