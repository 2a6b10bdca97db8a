"""What holds for every run: which calls may start, and what its history says at the end."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import penstock
from penstock import (
    ApprovalRequest,
    Done,
    HistoryReplaced,
    Message,
    StepEnd,
    StepStart,
    StreamEvent,
    ToolCall,
    ToolCallClosed,
    ToolCallInvalid,
    ToolEnd,
    ToolProgress,
    ToolStart,
)
from penstock.jsontext.values import canonical_json
from penstock.run.commands import StartTool
from penstock.run.events import decode, encode, is_chunk
from penstock.run.machine import Run
from penstock.run.steps import ENDS
from penstock.tools.policy import ToolPolicy
from penstock.turn import TurnBuilder
from tests.fuzz.run_scripts import Script
from tests.scripted_runs import check_ends, check_history


class Broken(Exception):
    """A property that does not hold, and what was seen."""

    def __init__(self, name: str, seen: object) -> None:
        super().__init__(name, seen)
        self.name = name
        self.seen = str(seen)


class Watch:
    """What a run has said, what was read of it, and which calls may run because of it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.events: list[StreamEvent] = []  # that were read
        self.emitted = 0
        self.is_cancelled = False
        self.deaths = 0
        self._unread: list[tuple[int, StreamEvent]] = []  # with their numbers
        self._has_lost_events = False
        self._logged: list[StreamEvent] = []  # that nobody had read when the process died
        self.started: dict[str, StartTool] = {}  # by key
        self.interrupted: set[str] = set()  # keys of those that had started when the process died
        self.effects: dict[str, str] = {}  # keys by the id of the call
        self.declined: set[str] = set()
        self.provided: set[str] = set()
        self.allowed: dict[str, str] = {}  # arguments by the id of a call that was approved
        self.confirmed: dict[str, tuple[str, str]] = {}  # name and arguments by the id of a whole call
        self.closed: set[tuple[int, str, str]] = set()  # block, name and arguments of calls whose arguments have closed
        self.dead: dict[int, ToolCallInvalid] = {}  # by block
        self.steps: dict[int, str] = {}  # how the answer of each step ended

    def fork(self) -> Watch:
        """A copy, which sees something else from now on."""
        other = Watch(self.script)
        vars(other).update({name: copy(value) for name, value in vars(self).items() if name != "script"})
        return other

    @property
    def is_over(self) -> bool:
        """Whether the reader has read the end."""
        return bool(self.events) and isinstance(self.events[-1], Done)

    def emit(self, events: list[StreamEvent]) -> None:
        """The run emitted these events; the reader will read them later."""
        for event in events:
            self._unread.append((self.emitted, event))
            self.emitted += 1
            if decode(encode(event)) != event:
                raise Broken("events survive JSON", event)
            self.note(event)

    def unseen(self, before: int) -> int:
        """How many of the events before this number were not read; answered requests and old reports do not count."""
        events = [event for number, event in self._unread if number < before]
        return sum(not isinstance(event, ApprovalRequest | ToolProgress) for event in events)

    def read(self, event: StreamEvent) -> None:
        """The reader reads an event."""
        if self.is_over:
            raise Broken("nothing after the end", event)
        if self.is_cancelled and not isinstance(event, ToolEnd | StepEnd | Done):
            raise Broken("stop means stop", f"{event} after a cancel")
        self.events.append(event)
        at = next((at for at, (_, other) in enumerate(self._unread) if other is event), None)
        if at is not None:
            del self._unread[at]

    def cancel(self) -> None:
        """The reader cancels the run: what it has not read is void."""
        self.is_cancelled = True
        self._unread.clear()

    def die(self) -> None:
        """The process dies: what was not read of it is lost."""
        self.deaths += 1
        self.interrupted = set(self.started)
        self._has_lost_events |= bool(self._unread)
        self._logged += [event for _, event in self._unread] if self.script.is_logged else []
        self._unread.clear()

    def note(self, event: StreamEvent) -> None:
        match event:
            case ToolCallClosed(choice=0):
                self.closed.add((event.block, event.name, canonical_json(event.arguments)))
            case ToolCall(choice=0):
                self.confirmed[event.id] = event.name, canonical_json(event.arguments)
            case ToolCallInvalid(choice=0):
                self.dead[event.block] = event
            case StepStart():
                self.steps[event.step] = ""
            case StepEnd():
                self.steps[event.step] = event.finish_reason
            case _:
                pass

    def start(self, start: StartTool, is_undone: bool = False) -> None:
        if self.is_cancelled:
            raise Broken("stop means stop", f"{start} after a cancel")
        policy = self.script.policies.get(start.name)
        if policy is None or policy.is_deferred:
            raise Broken("only known tools run", start)
        if start.key in self.started:
            if start.key not in self.interrupted or not policy.may_run_again:
                raise Broken("a call runs once", start)
            self.interrupted.remove(start.key)
            return
        self.started[start.key] = start
        if policy.may_have_effect:
            if start.call_id in self.effects:
                raise Broken("a call with side effects runs once", f"{start} after {self.effects[start.call_id]}")
            self.effects[start.call_id] = start.key
        self.justify(start, policy, is_undone)
        seen = [*self.events, *self._logged]
        if not policy.may_have_effect:
            seen += [event for _, event in self._unread]
        if not any(isinstance(event, ToolStart) and event.key == start.key for event in seen):
            raise Broken("what starts is announced", start)

    def justify(self, start: StartTool, policy: ToolPolicy, is_undone: bool) -> None:
        """The call is whole, or closed and free of side effects, or repaired with the caller's consent."""
        call = start.name, canonical_json(start.arguments)
        step, block = (int(part) for part in start.key.split(".")[:2])
        is_over = bool(self.steps[step])
        if start.call_id in self.declined:
            raise Broken("a declined call does not run", start)
        invalid = self.dead.get(block)
        if policy.start == "closed" and is_undone:
            pass
        elif invalid is not None:
            if invalid.why == "cut" or invalid.why not in self.script.run_repaired:
                raise Broken("an invalid call does not run", f"{start} after {invalid}")
        elif policy.start == "closed" and (block, *call) in self.closed:
            pass
        elif start.call_id in self.allowed:
            if self.allowed[start.call_id] != call[1]:
                raise Broken("a call runs with the approved arguments", f"{start}, approved: {self.allowed}")
        elif self.confirmed.get(start.call_id) != call:
            raise Broken("only whole calls run", f"{start}, whole: {self.confirmed}")
        if policy.start == "turn" and (not is_over or self.steps[step] in ENDS):
            raise Broken("tools with side effects wait for the end", f"{start} in the step {self.steps}")
        if policy.requires_approval(start.arguments) is True and start.call_id not in self.allowed:
            raise Broken("a call that needs approval waits for it", start)

    def approved(self, request: ApprovalRequest, arguments: dict[str, Any] | None) -> None:
        self.allowed[request.call_id] = canonical_json(request.arguments if arguments is None else arguments)

    def valid(self, messages: list[Message]) -> None:
        for problem in penstock.check(messages):
            raise Broken("the history is valid", problem)

    def over(self, run: Run) -> None:
        """What holds at the end."""
        ends = [event for event in self.events if isinstance(event, Done)]
        if len(ends) != 1 or self.events[-1] is not ends[0]:
            raise Broken("one done", [event.type for event in self.events[-3:]])
        messages = list(ends[0].messages)
        self.valid(messages)
        if messages != run.state.messages:
            raise Broken("the last event has the history", messages)
        _hold("every call has a result", lambda: check_history(messages))
        was_over = self.script.is_logged and run.state.ending[0] != "cancelled"  # its end was in the log already
        if self.is_cancelled and ends[0].reason != "cancelled" and not was_over:
            raise Broken("stop means stop", f"done with {ends[0].reason} after a cancel")
        if not self.deaths:
            _hold("what starts ends", lambda: check_ends(self.events))
            if not (self.script.is_logged and self.is_cancelled):  # a log keeps what was not read
                self.complete(messages)
        elif not self._has_lost_events:
            started = {event.key for event in self.events if isinstance(event, ToolStart)}
            if not self.script.is_logged:  # a start that was only announced is announced again, or its answer withdrawn
                started &= self.started.keys()
            if open_keys := started - {event.key for event in self.events if isinstance(event, ToolEnd)}:
                raise Broken("what starts ends", open_keys)
        self.truthful(messages)
        limits = self.script.limits
        if limits.steps is not None and run.state.step > limits.steps:
            raise Broken("limits hold", f"{run.state.step} steps")
        if limits.calls is not None and len(self.started) > limits.calls:
            raise Broken("limits hold", f"{len(self.started)} calls, limit {limits.calls}")

    def complete(self, messages: list[Message]) -> None:
        """The answers in the history are those that were read; hooks may have replaced some."""
        if any(isinstance(event, HistoryReplaced) for event in self.events):
            return
        builders: list[TurnBuilder] = []
        for event in self.events:
            if isinstance(event, StepStart):
                builders.append(TurnBuilder())
            elif is_chunk(event) and builders:  # else it is the error of a hook
                builders[-1].add(event)  # type: ignore[arg-type]
        read = [parts for builder in builders if (parts := builder.build().parts)]
        kept = [message.parts for message in messages if message.role == "assistant"]
        if read != kept:
            raise Broken("the history is what was read", f"{kept} and not {read}")

    def truthful(self, messages: list[Message]) -> None:
        """What the history says of a call is true: whether it ran, and what it gave back."""
        ended = {
            event.call_id: event for event in self.events if isinstance(event, ToolEnd) and event.ending != "discarded"
        }
        ran = {start.call_id for start in self.started.values()} | self.provided
        for result in (result for message in messages for result in message.results):
            if not self._has_lost_events and result.call_id in ended and ended[result.call_id].result != result:
                raise Broken("the result is the one that was reported", f"{result} and {ended[result.call_id]}")
            if result.call_id in self.effects and result.text.startswith("Not run"):
                raise Broken("results are true", f"{result} ran as {self.effects[result.call_id]}")
            if result.call_id not in ran and not result.is_error:
                raise Broken("results are true", f"{result} never ran")


def _hold(name: str, check: Callable[[], None]) -> None:
    try:
        check()
    except AssertionError as error:
        raise Broken(name, error) from None
