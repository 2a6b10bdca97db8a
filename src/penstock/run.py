"""The agent loop as a machine without I/O: told what happened, it says what to do.

`Run`'s methods are named for what happened: the model said something, its answer ended, a tool gave a result, a person
decided, someone cancelled. Each returns commands, which a driver carries out without a say in them. Between any two
inputs a run can be stored as JSON, loaded elsewhere and continued.

When a tool may start depends on its policy. `closed`: as soon as the JSON of its arguments closes, before the protocol
has confirmed the call; if the call then changes, what was started is thrown away and it runs again. `call`: when the
call is confirmed. `turn`: when the whole answer ended in a way that lets tools run, so that a refusal, a filter or a
broken connection cannot have fired a side effect. A call that needs approval waits for a person after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from penstock.errors import UsageError
from penstock.events import Retry, StreamChunk, ToolCall, ToolCallClosed, ToolCallInvalid, Usage
from penstock.executions import Cancel, Execution, Executions, Move, Outcome, Start, ToolPolicy
from penstock.happenings import (
    ApprovalRequest,
    Done,
    EndReason,
    StepEnd,
    StepStart,
    StreamEvent,
    ToolEnd,
    ToolProgress,
    ToolStart,
)
from penstock.messages import Message, result, tool_results
from penstock.turn import Turn, TurnBuilder

VERSION = 1
Phase = Literal["new", "answer", "tools", "over"]

ENDS: dict[str, tuple[EndReason, str]] = {
    "content_filter": ("refused", "the model refused, or a filter ended its answer"),
    "cut": ("cut", "the answer was cut off before the model had ended it"),
    "error": ("error", "the provider reported an error"),
}
"""Ends of an answer after which no tool may start, and why."""


class Limits(Struct, frozen=True, kw_only=True):
    """When a run ends by itself; None means never.

    `steps` are requests to the model, `calls` executions of tools, `tokens` all that were used, `seconds` the time that
    the run may take, `repeats` how often the same call with the same arguments may come.
    """

    steps: int | None = 50
    calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    repeats: int | None = 10


class Ask(Struct, frozen=True):
    """Ask the model; feed what it says to `Run.chunk`, and say when it is over with `Run.ended`."""

    messages: tuple[Message, ...]


class Tell(Struct, frozen=True):
    """Give this event to whoever reads the run."""

    event: StreamEvent


class Hush(Struct, frozen=True):
    """Stop reading the model's answer, if one is being read."""


Command = Ask | Start | Cancel | Tell | Hush


class Stored(Struct, frozen=True):
    """A run as it is stored."""

    penstock_run: int
    messages: list[Message]
    phase: Phase
    step: int
    answer: Turn
    executions: list[Execution]
    usage: Usage
    calls: int
    seen: dict[str, int]
    failures: dict[str, int]
    output: str = ""
    end: tuple[EndReason, str] = ("answered", "")


class Run:
    """A run of an agent: a history that goes on until the model has nothing more to call."""

    def __init__(
        self, messages: Iterable[Message], policies: Mapping[str, ToolPolicy], limits: Limits | None = None
    ) -> None:
        self.messages = list(messages)
        self.step = 0
        self.usage = Usage()
        self.phase: Phase = "new"
        self._policies = policies
        self._limits = limits or Limits()
        self._builder = TurnBuilder()
        self._executions = Executions(0, policies)
        self.output = ""  # the text of the last answer
        self._calls = 0
        self._seen: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()  # in a row, by tool
        self._ending: tuple[EndReason, str] = ("answered", "")  # when it is over: how, and why

    # -- what happened ---------------------------------------------------------------------------------------------

    def begin(self) -> list[Command]:
        """The run begins, or goes on with what was stored."""
        match self.phase:
            case "new":
                return self._ask()
            case "answer":
                return self._begin_anew()
            case "tools":
                return [*map(Tell, self.waiting), *self._after(self._executions.release())]
            case "over":
                return [Tell(self._done(*self._ending))]

    def chunk(self, chunk: StreamChunk) -> list[Command]:
        """The model said something."""
        if self.phase != "answer":
            return []
        self._builder.add(chunk)
        told = Tell(chunk)
        match chunk:
            case ToolCallClosed(choice=0) if self._has_room:
                return [told, *self._commands(self._executions.closed(chunk))]
            case ToolCall(choice=0):
                return [told, *self._commands(self._executions.confirmed(chunk, may_start=self._has_room))]
            case ToolCallInvalid(choice=0):
                return [told, *self._commands(self._executions.invalid(chunk))]
            case Retry():
                return [told, *self._commands(self._executions.void_all())]
            case _:
                return [told]

    def ended(self) -> list[Command]:
        """The model's answer is over."""
        if self.phase != "answer":
            return []
        turn = self._answered()
        commands: list[Command] = [Tell(StepEnd(self.step, turn.finish_reason, turn.usage))]
        end = "content_filter" if turn.refusal else turn.finish_reason
        if end in ENDS:
            reason, why = ENDS[end]
            return commands + self._end(reason, turn.error.message if turn.error else why)
        if not list(self._executions):
            return commands + self._end("length" if turn.finish_reason == "length" else "answered", "")
        if over := self._over_limit():
            return commands + self._end("limit", over)
        self.phase = "tools"
        return commands + self._after(self._executions.release())

    def failed(self, why: str) -> list[Command]:
        """The model could not be asked."""
        if self.phase != "answer":
            return []
        self._answered()
        return self._end("error", why)

    def tool_progress(self, key: str, data: Any) -> list[Command]:
        """A tool reports how far it is."""
        found = next((one for one in self._executions if one.key == key and one.state == "running"), None)
        return [Tell(ToolProgress(key, found.call_id, found.name, data))] if found else []

    def tool_done(self, key: str, outcome: Outcome) -> list[Command]:
        """An execution ended."""
        return self._after(self._executions.done(key, outcome)) if self.phase != "over" else []

    def decide(
        self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = ""
    ) -> list[Command]:
        """A person said yes or no to a call."""
        moves = self._executions.decide(call_id, approved, arguments, reason)
        if moves is None:
            waiting = ", ".join(one.call_id for one in self._executions.waiting) or "none"
            raise UsageError(f"no call with the id {call_id!r} waits for a decision; waiting: {waiting}")
        return self._after(moves)

    def cancel(self, why: str = "the run was cancelled") -> list[Command]:
        """Nobody wants the run to go on."""
        return self._stop("cancelled", why)

    def expire(self, why: str) -> list[Command]:
        """The time is up."""
        return self._stop("limit", why)

    def pause(self) -> list[Command]:
        """The run ends here for now; stored, it can go on later. Only what waits for a person can wait so long."""
        if not self._executions.waiting or any(one.state == "running" for one in self._executions):
            raise UsageError("only a run that waits for approvals, and for nothing else, can be paused")
        return [Tell(self._done("paused", "a call waits for approval"))]

    # -- what can be asked -----------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.phase == "over"

    @property
    def waiting(self) -> list[ApprovalRequest]:
        """The calls that wait for a person."""
        return [ApprovalRequest(one.call_id, one.name, one.arguments) for one in self._executions.waiting]

    @property
    def is_waiting(self) -> bool:
        """Whether nothing happens any more before a person decides."""
        states = {one.state for one in self._executions}
        return self.phase == "tools" and "approval" in states and not states & {"ready", "running"}

    def dump(self) -> bytes:
        """The run as JSON, to be loaded and continued elsewhere."""
        executions = [msgspec.structs.replace(one, data=None) for one in self._executions]
        stored = Stored(
            VERSION, self.messages, self.phase, self.step, self._builder.build(), executions, self.usage,
            self._calls, dict(self._seen), dict(self._failures), self.output, self._ending,
        )  # fmt: skip
        return msgspec.json.encode(stored)

    @classmethod
    def load(cls, data: bytes | str, policies: Mapping[str, ToolPolicy], limits: Limits | None = None) -> Run:
        """The run that was stored. What was running then is not started again: it may have had an effect."""
        try:
            stored = msgspec.json.decode(data, type=Stored)
        except msgspec.MsgspecError as error:
            raise UsageError(f"this is no stored run: {error}") from None
        if stored.penstock_run > VERSION:
            raise UsageError(f"the run was stored by a later version ({stored.penstock_run}; this one reads {VERSION})")
        run = cls(stored.messages, policies, limits)
        run.phase, run.step, run.usage, run._calls = stored.phase, stored.step, stored.usage, stored.calls
        run._seen, run._failures = Counter(stored.seen), Counter(stored.failures)
        run.output, run._ending = stored.output, stored.end
        for part in stored.answer.parts:
            run._builder.add(part)
        run._executions = Executions(stored.step, policies)
        run._executions.load(stored.executions)
        return run

    # -- how it goes on --------------------------------------------------------------------------------------------

    def _ask(self) -> list[Command]:
        self.step += 1
        self.phase = "answer"
        self._builder = TurnBuilder()
        self._executions = Executions(self.step, self._policies)
        return [Tell(StepStart(self.step)), Ask(tuple(self.messages))]

    def _begin_anew(self) -> list[Command]:
        """An answer was broken off by storing the run: it is asked for again; what had an effect already is told."""
        if not self._executions.had_effect:
            self.step -= 1
            return self._ask()
        self._answered()
        return [*self._commands(self._settle("the run was interrupted")), *self._ask()]

    def _answered(self) -> Turn:
        """Take the answer into the history."""
        turn = self._builder.build()
        if turn.parts:
            self.messages.append(Message("assistant", turn.parts))
        if turn.usage is not None:
            self.usage = _sum(self.usage, turn.usage)
        self.output = turn.text
        for call in turn.tool_calls:
            self._seen[f"{call.name} {call.arguments_raw}"] += 1
        return turn

    def _after(self, moves: list[Move]) -> list[Command]:
        """Carry on after something happened to a tool: with the next step, if all of this one have ended."""
        commands = self._commands(moves)
        if self.phase != "tools" or not self._executions.is_finished:
            return commands
        self._count_failures()
        commands += self._commands(self._settle(""))
        over = self._worn_out()
        return commands + (self._end("limit", over) if over else self._ask())

    def _settle(self, why: str) -> list[Move]:
        """Give every call of the last answer a result, and take them into the history, all in one message."""
        moves = self._executions.abandon(why)
        results = {one.block: one.result for one in self._executions if one.result is not None}
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == "assistant":
            calls = [part for part in last.parts if isinstance(part, ToolCall | ToolCallInvalid)]
            not_run = f"Not run: {why}."
            found = [results.get(call.block) or result(call, not_run, is_error=True) for call in calls]
            self.messages += [tool_results(*found)] if found else []
        self._executions = Executions(self.step, self._policies)
        return moves

    def _end(self, reason: EndReason, why: str) -> list[Command]:
        commands = self._commands(self._settle(why))
        self.phase, self._ending = "over", (reason, why)
        return [*commands, Tell(self._done(reason, why))]

    def _stop(self, reason: EndReason, why: str) -> list[Command]:
        """End at once, whatever is going on."""
        if self.phase == "over":
            return []
        is_speaking = self.phase == "answer"
        if is_speaking:
            self._answered()
        return [*([Hush()] if is_speaking else []), *self._end(reason, why)]

    def _done(self, reason: EndReason, why: str) -> Done:
        return Done(reason, self.output, tuple(self.messages), self.usage, why)

    def _over_limit(self) -> str:
        """Which limit the calls of this answer would break; empty if none."""
        limits = self._limits
        calls = self._calls + sum(one.state == "held" for one in self._executions)
        tokens = self.usage.input_tokens + self.usage.output_tokens
        if limits.steps is not None and self.step >= limits.steps:
            return f"the run reached its limit of {limits.steps} steps"
        if limits.calls is not None and calls > limits.calls:
            return f"with this answer there would be {calls} calls, and there may be {limits.calls}"
        if limits.tokens is not None and tokens > limits.tokens:
            return f"the run used {tokens} tokens, and may use {limits.tokens}"
        if limits.repeats is not None and (most := max(self._seen.values(), default=0)) > limits.repeats:
            return f"the same call came {most} times, and may come {limits.repeats} times"
        return ""

    @property
    def _has_room(self) -> bool:
        """Whether a call may start early: not if the limits will end the run with this answer."""
        steps, calls = self._limits.steps, self._limits.calls
        return (steps is None or self.step < steps) and (calls is None or self._calls < calls)

    def _count_failures(self) -> None:
        """Calls that come in one answer are one try: a tool failed if none of its calls went well."""
        endings: dict[str, set[str]] = {}
        for one in self._executions:
            endings.setdefault(one.name, set()).add(one.ending)
        for name, ways in endings.items():
            self._failures[name] = self._failures[name] + 1 if "failed" in ways and "done" not in ways else 0

    def _worn_out(self) -> str:
        """Which tool failed more often in a row than it may; empty if none."""
        for name, count in self._failures.items():
            policy = self._policies.get(name)
            if policy is not None and policy.retries is not None and count > policy.retries:
                return f"the tool {name} failed {count} times in a row, and may be tried again {policy.retries} times"
        return ""

    def _commands(self, moves: list[Move]) -> list[Command]:
        commands: list[Command] = []
        for move in moves:
            match move:
                case Start() | Cancel():
                    commands.append(move)
                case ToolStart():
                    self._calls += 1
                    commands.append(Tell(move))
                case ToolEnd() | ApprovalRequest():
                    commands.append(Tell(move))
        return commands


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_tokens + other.cached_tokens,
        one.reasoning_tokens + other.reasoning_tokens,
    )
