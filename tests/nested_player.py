"""Plays a tree of runs without I/O, as drivers would: an agent whose tools are agents, and theirs."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from penstock import ApprovalRequest, Finish, Limits, Message, StreamChunk, Text, ToolCall, ToolResults, Usage, check
from penstock.messages import user
from penstock.results import Outcome
from penstock.run.commands import AskModel, CancelTool, Command, Emit, PrepareStep, StartTool, StopAsking
from penstock.run.events import LogEvent, RunStart, Taken, decode_logged, encode, innermost
from penstock.run.machine import Run
from penstock.run.rebuild import rebuild
from penstock.run.step_changes import StepDecision
from penstock.tools.policy import ToolPolicy
from tests.fuzz.run_player import interrupted_state

Script = Callable[[Run], list[list[StreamChunk]]]
"""What the model sends in the step that a run is in: chunks that come together, one list after another."""

PAY, LOOK, ASK = ToolPolicy(), ToolPolicy(start="closed", is_read_only=True), ToolPolicy(needs_approval=True)


def agent(tools: dict[str, ToolPolicy], limits: Limits | None = None, **options: Any) -> ToolPolicy:
    """The policy of a tool that is an agent with these tools."""
    return ToolPolicy(new_run=lambda messages: Run(messages, tools, limits), **options)


DEEP = agent({"pay": PAY})
HELPER = agent({"pay": PAY, "look": LOOK, "ask": ASK, "deep": DEEP})
TOOLS = {"helper": HELPER, "pay": PAY}


def call(name: str, block: int = 0, id: str = "", **arguments: Any) -> ToolCall:
    return ToolCall(id or f"{name}_{block}", name, arguments, block=block, sealed_by="call_end")


def answer(text: str) -> list[list[StreamChunk]]:
    return [[Text(0, text)], [Usage(10, 1), Finish("stop")]]


def calls(*made: ToolCall) -> list[list[StreamChunk]]:
    pieces: list[list[StreamChunk]] = [[one] for one in made]
    return [[Text(0, "Let me see.")], *pieces, [Usage(100, 10), Finish("tool_calls")]]


def script(run: Run) -> list[list[StreamChunk]]:
    """Two helpers at once; each looks, pays, asks a person and has a helper of its own, which pays too."""
    match run.inner.level, run.state.step:
        case 0, 1:
            return calls(call("helper", 1, prompt="one"), call("helper", 2, prompt="two"))
        case 1, 1:
            return calls(call("look", 1), call("pay", 2))
        case 1, 2:
            return calls(call("ask", 1), call("deep", 2, prompt="deeper"))
        case 2, 1:
            return calls(call("pay", 1))
        case _:
            return answer(f"done at level {run.inner.level}")


class Tree:
    """Plays a run and its inner runs, one input after another. `effects` counts tools that ran, by path and key.

    With `has_hooks`, each of them has a hook before each step.
    """

    def __init__(
        self, script: Script = script, tools: dict[str, ToolPolicy] = TOOLS, limits: Limits | None = None,
        order: Random | None = None, *, has_hooks: bool = False,
    ) -> None:  # fmt: skip
        self.has_hooks = has_hooks
        self.script, self.tools, self.limits, self.order = script, tools, limits, order
        self.log: list[LogEvent] = [RunStart((user("Go."),), "top"), Taken(1)]
        self.effects: Counter[str] = Counter()
        self.inputs = 0
        self.due: deque[Callable[[], None]] = deque()
        self.run = rebuild(self.log, tools, limits)

    def play(self, on_input: Callable[[Tree], None] = lambda tree: None) -> None:
        """Play until nothing is left to do; `on_input` is called after each input."""
        self.begin()
        while self.due and not self.run.state.is_over:
            self.due.rotate(self.order.randrange(len(self.due)) if self.order else 0)
            self.due.popleft()()
            self.inputs += 1
            on_input(self)

    def begin(self) -> None:
        waiting = [request.call_id for request in self.run.waiting]  # which no event announces again
        self.run.state.has_hooks = self.has_hooks
        self.carry_out((), self.run, self.run.begin())
        if self.run.state.is_logged:
            self.due.extend(partial(self.approve, call_id) for call_id in waiting)

    def heir(self) -> Tree:
        """The run as another process rebuilds it from the log."""
        order = self.order and Random(self.inputs)
        other = Tree(self.script, self.tools, self.limits, order, has_hooks=self.has_hooks)
        stored = [event for event in self.log if not isinstance(innermost(event), ToolResults)]  # as in a store
        other.log = [decode_logged(encode(event)) for event in stored]
        other.log.append(Taken(1 + sum(isinstance(event, Taken) for event in self.log)))
        other.effects = Counter(self.effects)
        other.run = rebuild(other.log, self.tools, self.limits)
        return other

    def carry_out(self, keys: tuple[str, ...], run: Run, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Emit():
                    self.emit(keys, command)
                case PrepareStep():
                    if run.reached(command):
                        self.due.append(partial(self.prepare, keys, run))
                case AskModel():
                    if run.reached(command):
                        self.due.append(partial(self.answer, keys, run, deque(self.script(run))))
                case StartTool():
                    if run.reached(command) or not command.awaits_reader:
                        self.due.append(partial(self.start, keys, run, command))
                case _:
                    assert isinstance(command, CancelTool | StopAsking)

    def emit(self, keys: tuple[str, ...], emit: Emit) -> None:
        if keys:
            outer = self.at(keys[:-1])
            if outer is not None:
                self.carry_out(keys[:-1], outer, outer.inner_emitted(keys[-1], emit))
            return
        self.log += emit.logged
        for event in emit.events:
            if isinstance(request := innermost(event), ApprovalRequest):
                self.due.append(partial(self.approve, request.call_id))

    def at(self, keys: tuple[str, ...]) -> Run | None:
        run: Run = self.run
        for key in keys:
            inner = run.inner.find(key)
            if inner is None:
                return None
            run = inner.run
        return run

    def prepare(self, keys: tuple[str, ...], run: Run) -> None:
        self.carry_out(keys, run, run.step_prepared(StepDecision()))

    def answer(self, keys: tuple[str, ...], run: Run, pieces: deque[list[StreamChunk]]) -> None:
        if pieces:
            commands = run.chunks(pieces.popleft())
            self.due.append(partial(self.answer, keys, run, pieces))
        else:
            commands = run.ended()
        self.carry_out(keys, run, commands)

    def start(self, keys: tuple[str, ...], run: Run, start: StartTool) -> None:
        path = "/".join([*keys, start.key])
        if run.state.rules.policies[start.name].new_run is None:
            self.effects[f"{path} {start.name}"] += 1
            self.due.append(partial(self.end, keys, run, start))
            return
        if run.inner.find(start.key) is None:
            self.carry_out(keys, run, run.inner_begins(start.key, [user(str(start.arguments))], start.name))
        if (inner := run.inner.find(start.key)) is not None:
            inner.run.state.has_hooks = self.has_hooks
            self.carry_out((*keys, start.key), inner.run, inner.run.begin())

    def end(self, keys: tuple[str, ...], run: Run, start: StartTool) -> None:
        self.carry_out(keys, run, run.tool_done(start.key, Outcome((Text(0, f"{start.name} is done"),))))

    def approve(self, call_id: str) -> None:
        run: Run = self.run
        keys: tuple[str, ...] = ()
        while not run.state.waits_for(call_id, "approval"):
            inner = run.inner.holder(call_id)
            assert inner is not None, call_id
            run, keys = inner.run, (*keys, inner.key)
        self.carry_out(keys, run, run.decide(call_id, True))

    def check_end(self) -> None:
        """The run is over, and its history is valid."""
        assert self.run.state.is_over, self.run.state.phase
        assert check(self.run.state.messages) == []


def state_of(run: Run) -> list[Any]:
    """All that a run and its inner runs are, as far as a log knows it."""
    return [(run.inner.level, interrupted_state(run)), *(state_of(inner.run) for inner in run.inner)]


def texts(messages: list[Message]) -> list[str]:
    return [result.text for message in messages for result in message.results]
