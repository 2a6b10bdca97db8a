"""The agent loop as a machine without I/O: told what happened, it says what to do.

`Run`'s methods are named for what happened: the model said something, its answer ended, a tool gave a result, a person
decided, someone cancelled. Each returns commands, which a driver carries out without a say in them. Between any two
inputs a run can be stored as JSON, loaded elsewhere and continued.

When a tool may start depends on its policy. `closed`: as soon as the JSON of its arguments closes, before the protocol
has confirmed the call; if the call then changes, what was started is thrown away and it runs again. `call`: when the
call is confirmed. `turn`: when the whole answer ended in a way that lets tools run, so that a refusal, a filter or a
broken connection cannot have fired a side effect. A call that needs approval waits for a person after that. A call of a
tool that runs elsewhere is handed on when it would start, and waits for its result. A damaged call does not run, unless
the caller wants its kind of damage mended, and then only after the turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from penstock.errors import UsageError
from penstock.events import (
    Error,
    Fault,
    FinishReason,
    Retry,
    StreamChunk,
    ToolCall,
    ToolCallClosed,
    ToolCallInvalid,
    Usage,
)
from penstock.messages import Message, result, tool_results
from penstock.run.call_ids import CallIds
from penstock.run.commands import AskModel, CancelTool, Command, Emit, Move, StartTool, StopAsking
from penstock.run.events import (
    ApprovalRequest,
    Done,
    EndReason,
    RequestKind,
    StepEnd,
    StepStart,
    ToolEnd,
    ToolProgress,
    ToolStart,
)
from penstock.run.execution import Execution
from penstock.run.executions import Executions
from penstock.run.limits import Limits, Tally
from penstock.tools.outcome import Outcome
from penstock.tools.policy import ToolPolicy
from penstock.turn import Turn, TurnBuilder

VERSION = 1
Phase = Literal["new", "answer", "tools", "over"]

ENDS: dict[str, tuple[EndReason, str]] = {
    "content_filter": ("refused", "the model refused, or a filter ended its answer"),
    "cut": ("cut", "the answer was cut off before the model had ended it"),
    "error": ("error", "the provider reported an error"),
}
"""Ends of an answer after which no tool may start, and why."""


class Version(Struct, frozen=True):
    """What any version can read of a stored run."""

    penstock_run: Annotated[int, Meta(ge=1)]


class Stored(Version, frozen=True):
    """A run as it is stored."""

    messages: list[Message]
    phase: Phase
    answer: Turn
    executions: list[Execution]
    tally: Tally
    output: str = ""
    end: tuple[EndReason, str] = ("answered", "")


class Run:
    """A run of an agent: a history that goes on until the model has nothing more to call.

    Calls with one of the faults in `run_repaired` are run with the arguments that were probably meant.
    """

    def __init__(
        self,
        messages: Iterable[Message],
        policies: Mapping[str, ToolPolicy],
        limits: Limits | None = None,
        run_repaired: Collection[Fault] = (),
    ) -> None:
        self.messages = list(messages)  # without what is still going on: see `history`
        self.phase: Phase = "new"
        self._policies = policies
        self._limits = limits or Limits()
        self._run_repaired = run_repaired
        self._ids = CallIds(self.messages)
        self._builder = TurnBuilder()
        self._executions = Executions(0, policies)
        self.output = ""  # the text of the last answer
        self._tally = Tally()
        self._ending: tuple[EndReason, str] = ("answered", "")  # when it is over: how, and why

    # -- what happened ---------------------------------------------------------------------------------------------

    def begin(self) -> list[Command]:
        """The run begins, or goes on with what was stored."""
        match self.phase:
            case "new":
                return self._end("limit", self._limits.bars) if self._limits.bars else self._ask()
            case "answer":
                return self._begin_anew()
            case "tools":
                told = [*self._commands(self._executions.interrupt()), *map(Emit, self.waiting)]
                return told + self._after(self._executions.release())
            case "over":
                return [Emit(self._done(*self._ending))]

    def chunk(self, chunk: StreamChunk) -> list[Command]:
        """The model said something."""
        if self.phase != "answer":
            return []
        chunk = self._ids.told(chunk)
        self._builder.add(chunk)
        told = Emit(chunk)
        match chunk:
            case ToolCallClosed(choice=0):
                return [told, *self._commands(self._executions.closed(chunk, self._may_start))]
            case ToolCall(choice=0):
                return [told, *self._commands(self._executions.confirmed(chunk, self._may_start))]
            case ToolCallInvalid(choice=0):
                return [told, *self._commands(self._invalid(chunk))]
            case Retry():
                self._tally.paid()
                return [told, *self._commands(self._executions.void_all("the answer was withdrawn"))]
            case Usage():
                self._tally.so_far = chunk
                return [told]
            case _:
                return [told]

    def ended(self) -> list[Command]:
        """The model's answer is over."""
        if self.phase != "answer":
            return []
        turn = self._answered()
        unended = [call for call in turn.invalid_calls if not self._executions.has_result(call.block)]
        commands = self._commands([move for call in unended for move in self._invalid(call)])
        commands.append(Emit(StepEnd(self.step, turn.finish_reason, turn.usage)))
        end = "content_filter" if turn.refusal else turn.finish_reason
        if end in ENDS:
            reason, why = ENDS[end]
            return commands + self._end(reason, turn.error.message if turn.error else why)
        if not turn.tool_calls and not turn.invalid_calls:
            return commands + self._end("length" if turn.finish_reason == "length" else "answered", "")
        most = max((self._tally.seen.get(fingerprint, 0) for fingerprint in self._executions.times), default=0)
        if over := self._tally.over(self._limits, self._executions.count("held", "ready"), most):
            return commands + self._end("limit", over)
        self.phase = "tools"
        return commands + self._after(self._executions.release())

    def failed(self, error: Error) -> list[Command]:
        """The model could not be asked, or something broke that nobody had thought of."""
        return [Emit(error), *self._stop("error", error.message, "error")] if self.phase != "over" else []

    def tool_progress(self, key: str, data: Any) -> list[Command]:
        """A tool reports how far it is."""
        found = self._executions.running(key)
        return [Emit(ToolProgress(key, found.call_id, found.name, data))] if found else []

    def tool_done(self, key: str, outcome: Outcome) -> list[Command]:
        """An execution ended."""
        return self._after(self._executions.done(key, outcome)) if self.phase != "over" else []

    def tool_late(self, key: str) -> list[Command]:
        """An execution took longer than it may."""
        return self._after(self._executions.late(key)) if self.phase != "over" else []

    def decide(
        self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = ""
    ) -> list[Command]:
        """A person said yes or no to a call."""
        self.expect_decision(call_id, approved, arguments)
        return self._after(self._executions.decide(call_id, approved, arguments, reason))

    def provide(self, call_id: str, outcome: Outcome) -> list[Command]:
        """A call that was handed on has its result."""
        self.expect(call_id, "deferred")
        return self._after(self._executions.provide(call_id, outcome))

    def cancel(self, why: str = "the run was cancelled") -> list[Command]:
        """Nobody wants the run to go on."""
        return self._stop("cancelled", why)

    def expire(self, why: str) -> list[Command]:
        """The time is up."""
        return self._stop("limit", why)

    def pause(self) -> list[Command]:
        """The run ends here for now; stored, it can go on later. Only what waits for others can wait so long.

        The messages of its `Done` say of each open call that it waits; what `dump` stores is still open.
        """
        if not self.is_waiting:
            raise UsageError("only a run that waits for approvals or for results from elsewhere can be paused")
        kinds = {one.kind for one in self.waiting}
        why = "a call waits for approval" if "approval" in kinds else "a call waits for its result from elsewhere"
        return [Emit(self._done("paused", why))]

    # -- what can be asked -----------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.phase == "over"

    @property
    def step(self) -> int:
        """How often the model was asked."""
        return self._tally.step

    @property
    def usage(self) -> Usage:
        """What all answers together have cost."""
        return self._tally.usage

    @property
    def history(self) -> list[Message]:
        """The history as it would be if the run ended now, good for every provider; the run is not changed by it.

        What the model has said so far is in it, as an answer that was cut. A call without a result has one that says
        so, and why: it is running, it waits for approval, it runs elsewhere.
        """
        if self.phase not in ("answer", "tools"):
            return list(self.messages)
        parts = self._builder.build().parts if self.phase == "answer" else ()
        messages = [*self.messages, *([Message("assistant", parts)] if parts else [])]
        return messages + self._results(messages)

    @property
    def waiting(self) -> list[ApprovalRequest]:
        """The calls that wait for a person, or for their result from elsewhere."""
        return [one.request for one in list(self._executions.waiting.values())]

    @property
    def is_waiting(self) -> bool:
        """Whether nothing happens any more before a person decides, or a result comes from elsewhere."""
        executions = self._executions
        return self.phase == "tools" and bool(executions.waiting) and not executions.count("ready", "running")

    def waits_for(self, call_id: str, kind: RequestKind) -> bool:
        """Whether a call of this id waits for a decision, or for its result from elsewhere."""
        found = self._executions.waiting.get(call_id)
        return found is not None and found.state == kind

    def expect(self, call_id: str, kind: RequestKind) -> None:
        """Raise a `UsageError` unless a call of this id waits for that."""
        if not self.waits_for(call_id, kind):
            wanted = "a decision" if kind == "approval" else "a result from elsewhere"
            waiting = ", ".join(f"{one.call_id} ({one.kind})" for one in self.waiting) or "none"
            raise UsageError(f"no call with the id {call_id!r} waits for {wanted}; waiting: {waiting}")

    def expect_decision(self, call_id: str, approved: bool, arguments: dict[str, Any] | None) -> None:
        """Raise unless a call of this id waits for a decision; an `ArgumentsError` if it cannot run with these."""
        self.expect(call_id, "approval")
        if approved and arguments is not None:
            self._executions.check(call_id, arguments)

    def dump(self) -> bytes:
        """The run as JSON, to be loaded and continued elsewhere."""
        executions = [msgspec.structs.replace(one, data=None) for one in self._executions]
        stored = Stored(
            VERSION, self.messages, self.phase, self._builder.build(), executions, self._tally,
            self.output, self._ending,
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
        """The run that was stored. What was running then is not started again: it may have had an effect."""
        try:
            version = msgspec.json.decode(data, type=Version).penstock_run
            if version > VERSION:
                raise UsageError(f"the run was stored by a later version ({version}; this one reads {VERSION})")
            stored = msgspec.json.decode(data, type=Stored)
        except (TypeError, msgspec.MsgspecError) as error:
            raise UsageError(f"this is no stored run: {error}") from None
        run = cls(stored.messages, policies, limits, run_repaired)
        run.phase, run._tally, run.output, run._ending = stored.phase, stored.tally, stored.output, stored.end
        for part in stored.answer.parts:
            run._builder.add(part)
        run._executions = Executions(run.step, policies)
        run._executions.load(stored.executions)
        return run

    # -- how it goes on --------------------------------------------------------------------------------------------

    def _ask(self) -> list[Command]:
        self._tally.step += 1
        self.phase = "answer"
        self._ids.next_answer()
        self._builder = TurnBuilder()
        self._executions = Executions(self.step, self._policies)
        return [Emit(StepStart(self.step)), AskModel(tuple(self.messages))]

    def _begin_anew(self) -> list[Command]:
        """An answer was broken off by storing the run: it is asked for again; what had an effect already is told."""
        if not self._executions.had_effect:
            self._tally.step -= 1
            return [*self._commands(self._executions.void_all("the answer is asked for again")), *self._ask()]
        self._answered()
        return [*self._commands(self._settle("the run was interrupted")), *self._ask()]

    def _answered(self) -> Turn:
        """Take the answer into the history."""
        turn = self._builder.build()
        if turn.parts:
            self.messages.append(Message("assistant", turn.parts))
        self._tally.answered(self._executions.times)
        self.output = turn.text
        return turn

    def _after(self, moves: list[Move]) -> list[Command]:
        """Carry on after something happened to a tool: with the next step, if all of this one have ended."""
        commands = self._commands(moves)
        if self.phase != "tools" or not self._executions.is_finished:
            return commands
        self._tally.tried(self._executions, self._policies)
        commands += self._commands(self._settle(""))
        over = self._tally.worn_out(self._policies)
        return commands + (self._end("limit", over) if over else self._ask())

    def _settle(self, why: str) -> list[Move]:
        """Give every call of the last answer a result, and take them into the history, all in one message."""
        self._executions.complete(_calls(self.messages))
        moves = self._executions.abandon(why)
        self.messages += self._results(self.messages)
        return moves

    def _results(self, messages: list[Message]) -> list[Message]:
        """The results of the last answer's calls, all in one message, as far as they are known."""
        known, not_yet = self._executions.results, "Not run: the call had not come to its end yet."
        found = [known.get(call.block) or result(call, not_yet, is_error=True) for call in _calls(messages)]
        return [tool_results(*found)] if found else []

    def _end(self, reason: EndReason, why: str) -> list[Command]:
        commands = self._commands(self._settle(why))
        self.phase, self._ending = "over", (reason, why)
        self._executions = Executions(self.step, self._policies)
        return [*commands, Emit(self._done(reason, why))]

    def _stop(self, reason: EndReason, why: str, finish: FinishReason = "cut") -> list[Command]:
        """End at once, whatever is going on."""
        if self.phase == "over":
            return []
        commands: list[Command] = []
        if self.phase == "answer":
            commands = [StopAsking(), Emit(StepEnd(self.step, finish, self._answered().usage))]
        return commands + self._end(reason, why)

    def _done(self, reason: EndReason, why: str) -> Done:
        return Done(reason, self.output, tuple(self.history), self.usage, why)

    def _may_start(self, execution: Execution) -> bool:
        """Whether the limits let a call start early: not if they will end the run with this answer."""
        times = self._tally.seen.get(execution.fingerprint, 0) + self._executions.times[execution.fingerprint]
        return not self._tally.over(self._limits, self._executions.count("ready") + 1, times)

    def _invalid(self, call: ToolCallInvalid) -> list[Move]:
        return self._executions.invalid(call, is_mended=call.why != "cut" and call.why in self._run_repaired)

    def _commands(self, moves: list[Move]) -> list[Command]:
        commands: list[Command] = []
        for move in moves:
            match move:
                case StartTool() | CancelTool():
                    commands.append(move)
                case ToolStart() | ApprovalRequest(kind="deferred"):
                    self._tally.calls += 1
                    commands.append(Emit(move))
                case ToolEnd() | ApprovalRequest():
                    commands.append(Emit(move))
        return commands


def _calls(messages: list[Message]) -> list[ToolCall | ToolCallInvalid]:
    """The calls of the last message."""
    parts = messages[-1].parts if messages and messages[-1].role == "assistant" else ()
    return [part for part in parts if isinstance(part, ToolCall | ToolCallInvalid)]
