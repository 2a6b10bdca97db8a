"""Plays a script against the machine of a run, without I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.errors import UsageError
from penstock.events import Error, StreamChunk, Text
from penstock.messages import user
from penstock.run.commands import AskModel, CancelTool, Command, Emit, StartTool, StopAsking
from penstock.run.events import ApprovalRequest, Done
from penstock.run.machine import Run
from penstock.tools.outcome import Outcome
from tests.fuzz.run_scripts import LAST, MAX_STEPS, Move, Script
from tests.fuzz.run_watch import Broken, Watch


class Player:
    """Plays a script against a run, as a driver would, and watches what the run says and does."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.run = Run([user("Go.")], script.policies, script.limits, script.run_repaired)
        self.watch = Watch(script)
        self.inputs: list[str] = []
        self.answered = 0  # requests
        self.chunks: list[StreamChunk] | None = None  # what is left of the answer that is streaming
        self.running: dict[str, StartTool] = {}
        self.stale: list[str] = []  # keys of tools that have ended or were cancelled

    def play(self) -> None:
        self.take("begin", self.run.begin())
        for move in self.script.moves:
            if self.run.is_over:
                break
            self.step(move)
        for _ in range(2_000):
            if self.run.is_over:
                break
            self.settle()
        else:
            raise Broken("a run ends", self.run.phase)
        self.watch.over(self.run)
        self.after_the_end()

    def step(self, move: Move) -> None:
        """One input: a legal one, which the move picks."""
        options = self.options(move.detail)
        weights = [weight for weight, _ in options]
        at = move.choice * sum(weights)
        for weight, act in options:
            at -= weight
            if at < 0:
                act()
                return

    def options(self, detail: int) -> list[tuple[float, Callable[[], None]]]:
        options: list[tuple[float, Callable[[], None]]] = [
            (0.3, self.cancel), (0.2, self.expire), (1.5, self.die), (1.0, self.look), (0.5, self.unknown_decision),
        ]  # fmt: skip
        if self.chunks is not None:
            options += [(12, lambda: self.feed(1 + detail % 5)), (0.3, self.hang_up), (0.2, self.fail)]
        for key in self.running:
            options += [(4, lambda key=key: self.end_tool(key, detail)), (1, lambda key=key: self.progress(key))]  # type: ignore[misc]
            options.append((0.5, lambda key=key: self.time_out(key)))  # type: ignore[misc]
        if self.stale:
            options.append((1, lambda: self.end_stale(detail)))
        for request in self.run.waiting:
            options.append((4, lambda request=request: self.answer_request(request, detail)))  # type: ignore[misc]
        if self.run.is_waiting:
            options.append((1, self.pause))
        return options

    def settle(self) -> None:
        """Brings the run to its end without any surprise."""
        if self.chunks is not None:
            self.feed(100)
        elif self.running:
            self.end_tool(next(iter(self.running)), 0)
        elif self.run.waiting:
            self.answer_request(self.run.waiting[0], 0)
        else:
            raise Broken("a run ends", f"nothing to do in the phase {self.run.phase}")

    # The inputs.

    def feed(self, count: int) -> None:
        assert self.chunks is not None
        batch, self.chunks = self.chunks[:count], self.chunks[count:]
        if batch:
            self.take(f"chunks {batch}", self.run.chunks(batch))
        else:
            self.hang_up()

    def hang_up(self) -> None:
        self.chunks = None
        self.take("ended", self.run.ended())

    def fail(self) -> None:
        self.chunks = None
        self.take("failed", self.run.failed(Error("no connection")))

    def end_tool(self, key: str, detail: int) -> None:
        del self.running[key]
        self.stale.append(key)
        is_error = detail % 4 == 3
        outcome = Outcome((Text(0, "it failed" if is_error else "it is done"),), is_error=is_error)
        self.take(f"tool_done {key} {'failed' if is_error else ''}", self.run.tool_done(key, outcome))

    def end_stale(self, detail: int) -> None:
        key = self.stale[detail % len(self.stale)]
        self.take(f"tool_done {key} once more", self.run.tool_done(key, Outcome((Text(0, "late"),))))

    def progress(self, key: str) -> None:
        self.take(f"tool_progress {key}", self.run.tool_progress(key, {"at": 1}))

    def time_out(self, key: str) -> None:
        if self.running[key].timeout is not None:
            del self.running[key]
            self.stale.append(key)
            self.take(f"tool_late {key}", self.run.tool_late(key))

    def answer_request(self, request: ApprovalRequest, detail: int) -> None:
        id = request.call_id
        if request.kind == "deferred":
            self.watch.provided.add(id)
            self.take(f"provide {id}", self.run.provide(id, Outcome((Text(0, "it is done"),))))
        elif detail % 3 == 0:
            self.watch.declined.add(id)
            self.take(f"decline {id}", self.run.decide(id, False))
        else:
            arguments = {"text": "changed"} if detail % 3 == 1 else None
            self.watch.approved(request, arguments)
            self.take(f"approve {id} {arguments or ''}", self.run.decide(id, True, arguments))

    def unknown_decision(self) -> None:
        for act in (
            lambda: self.run.decide("no such call", True),
            lambda: self.run.provide("no such call", Outcome(())),
        ):
            try:
                act()
            except UsageError:
                continue
            raise Broken("a decision about no call is refused", "it was not")

    def cancel(self) -> None:
        self.take("cancel", self.run.cancel())

    def expire(self) -> None:
        self.take("expire", self.run.expire("the time is over"))

    def pause(self) -> None:
        commands = self.run.pause()
        events = [event for command in commands if isinstance(command, Emit) for event in command.events]
        if not (len(events) == 1 and isinstance(events[0], Done) and events[0].reason == "paused"):
            raise Broken("one done", f"{events} of a pause")
        self.watch.valid(list(events[0].messages))
        self.die()

    def die(self) -> None:
        """The process dies; another one continues with what was stored."""
        self.chunks, self.running = None, {}
        stored = self.run.dump()
        self.run = Run.load(stored, self.script.policies, self.script.limits, self.script.run_repaired)
        if _state(self.run.dump()) != _state(stored):
            raise Broken("a stored run is the same when it is loaded", stored)
        self.take("stored, loaded, begin", self.run.begin())

    def look(self) -> None:
        self.watch.valid(self.run.history)

    def after_the_end(self) -> None:
        inputs = [
            self.run.chunks([Text(0, "more")]), self.run.ended(), self.run.cancel(), self.run.expire("late"),
            self.run.failed(Error("late")), *(self.run.tool_done(key, Outcome(())) for key in self.stale),
            *(self.run.tool_late(key) for key in self.running),
        ]  # fmt: skip
        if any(inputs):
            raise Broken("nothing after the end", [commands for commands in inputs if commands])

    # The commands.

    def take(self, what: str, commands: list[Command]) -> None:
        self.inputs.append(what)
        if any(isinstance(command, Emit) for command in commands[1:]):
            raise Broken("events come before other commands", commands)
        self.run.fold(0)  # its reader reads everything at once
        for command in commands:
            match command:
                case Emit():
                    self.watch.read(command.events)
                case AskModel() if not self.run.reached(command):
                    raise Broken("a request that waited is sent", command)
                case StartTool(awaits_reader=True) if not self.run.reached(command):
                    pass  # it was voided by the same input
                case AskModel():
                    self.watch.valid(list(command.messages))
                    self.chunks = self.next_answer()
                case StopAsking():
                    self.chunks = None
                case StartTool():
                    is_undone = CancelTool(command.key) in commands  # the same input showed that the call changed
                    self.watch.start(command, is_undone)
                    self.running[command.key] = command
                case CancelTool():
                    if command.key not in self.watch.started:
                        raise Broken("only what started is cancelled", command)
                    self.running.pop(command.key, None)
                    self.stale.append(command.key)
        if self.run.is_over and (self.running or self.chunks is not None):
            raise Broken("at the end nothing is left running", [*self.running, self.chunks])

    def next_answer(self) -> list[StreamChunk]:
        answers = self.script.answers
        at = self.answered
        self.answered += 1
        return list(answers[at % len(answers)] if at < MAX_STEPS else LAST)


def _state(stored: bytes) -> dict[str, Any]:
    """The state from which a run continues: without its interrupted answer, and with ready calls on hold."""
    state = {key: value for key, value in msgspec.json.decode(stored).items() if key != "answer"}
    for execution in state["executions"]:
        execution["state"] = execution["state"].replace("ready", "held")
    return state
