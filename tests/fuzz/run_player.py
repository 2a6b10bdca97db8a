"""Plays a script against the machine of a run, without I/O: a driver, a model, tools, people and a reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import msgspec

from penstock import ApprovalRequest, Done, Error, Message, StreamChunk, StreamEvent, Text, UsageError
from penstock.messages import user
from penstock.results import Outcome
from penstock.run.commands import (
    AskModel,
    CallReview,
    CancelTool,
    Command,
    Emit,
    PrepareStep,
    ReviewCall,
    StartTool,
    StopAsking,
)
from penstock.run.events import LogEvent, RunStart, Taken, decode_logged, encode, is_chunk
from penstock.run.load import load
from penstock.run.machine import Run
from penstock.run.outbox import Outbox
from penstock.run.rebuild import rebuild
from penstock.run.step_changes import StepChanges, StepDecision, splices_between
from penstock.run.stored import snapshot
from tests.fuzz.run_scripts import LAST, MAX_STEPS, Move, Script
from tests.fuzz.run_watch import Broken, Watch

Act = Callable[[], None]


class Player:
    """Plays a script against a run, as a driver would, and watches what the run says and does."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.run = Run([user("Go.")], script.policies, script.limits, script.run_repaired)
        self.run.state.is_logged, self.run.state.has_hooks = script.is_logged, script.has_hooks
        self.preparing: PrepareStep | None = None  # the hooks decide
        self.log: list[LogEvent] = [RunStart((user("Go."),), "agent"), Taken(1, "first")]
        self.boundaries = 0  # at which the run was rebuilt
        self.crashes = 0  # at which it died, and was continued to its end
        self.watch = Watch(script)
        self.inputs: list[str] = []
        self.outbox = Outbox()
        self.unit: Iterator[StreamEvent] = iter(())  # what the reader is reading
        self.answered = 0  # requests
        self.chunks: list[StreamChunk] | None = None  # what is left of the answer that is streaming
        self.running: dict[str, StartTool] = {}
        self.stale: list[str] = []  # keys of tools that have ended or were cancelled

    def play(self) -> None:
        self.take("begin", self.run.begin())
        for move in self.script.moves:
            if self.watch.is_over:
                break
            self.step(move)
        self.end()
        self.after_the_end()

    def end(self) -> None:
        """Brings the run to its end, and checks it."""
        for _ in range(2_000):
            if self.watch.is_over:
                break
            self.settle()
        else:
            raise Broken("a run ends", self.run.state.phase)
        self.watch.over(self.run)

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

    def options(self, detail: int) -> list[tuple[float, Act]]:
        options: list[tuple[float, Act]] = [(0.3, self.cancel), (0.5, self.unknown_decision)]
        if not self.script.is_prompt:
            options.append((8, partial(self.read, 1 + detail % 7)))
        if self.run.state.is_over:
            return options
        options += [(0.2, self.expire), (1.5, self.die), (1.0, self.look), (0.5, self.say)]
        if self.preparing is not None:
            options += [(6, partial(self.decide_step, detail)), (0.2, self.fail_hook)]
        if self.chunks is not None:
            options += [(12, partial(self.feed, 1 + detail % 5)), (0.3, self.hang_up), (0.2, self.fail)]
        for key in self.running:
            options += [(4, partial(self.end_tool, key, detail)), (1, partial(self.progress, key))]
            options.append((0.5, partial(self.time_out, key)))
        if self.stale:
            options.append((1, partial(self.end_stale, detail)))
        options += [(4, partial(self.answer_request, request, detail)) for request in self.run.waiting]
        if self.run.is_waiting and not self.outbox.unread_events and not self.outbox.items:
            options.append((1, self.pause))
        return options

    def settle(self) -> None:
        """Brings the run to its end without any surprise."""
        if self.outbox.items or self.outbox.unread_events:
            self.read(100)
        elif self.preparing is not None:
            self.decide_step(0)
        elif self.chunks is not None:
            self.feed(self.script.read_size)
        elif self.running:
            self.end_tool(next(iter(self.running)), 0)
        elif self.run.waiting:
            self.answer_request(self.run.waiting[0], 0)
        else:
            raise Broken("a run ends", f"nothing to do in the phase {self.run.state.phase}")

    # The reader.

    def read(self, count: int) -> None:
        """The reader reads this many events; before each it may come to a gate."""
        while count and not self.watch.is_over:
            event = next(self.unit, None)
            if event is not None:
                count -= 1
                self.watch.read(event)
                continue
            item = self.outbox.take()
            if item is None:
                return
            if callable(item):
                item()
            else:
                self.unit = item

    def hold(self, what: str, act: Act) -> None:
        """Does something when the reader has read all that was emitted so far and asks for more."""
        emitted = self.watch.emitted

        def gate() -> None:
            if self.watch.unseen(emitted):
                raise Broken(
                    "what waits for the reader waits", f"{what} before {self.watch.unseen(emitted)} events were read"
                )
            act()

        self.outbox.hold(gate)

    def fold(self) -> None:
        self.run.state.response.fold(sum(is_chunk(event) for event in self.outbox.unread_events))

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
        self.hold("the end of a response", lambda: self.take("ended", self.run.ended()))
        self.catch_up()

    def fail(self) -> None:
        self.chunks = None
        failed = Error("no connection")
        self.hold("a failure", lambda: self.take("failed", self.run.request_failed(failed)))
        self.catch_up()

    def decide_step(self, detail: int) -> None:
        """The hooks decide on the next step: they change it, change the history, or stop the run."""
        command, self.preparing = self.preparing, None
        assert command is not None
        decision = random_decision(command.messages, Random(detail))
        self.take(f"step_prepared {decision}", self.run.step_prepared(decision))

    def fail_hook(self) -> None:
        self.preparing = None
        self.take("a hook failed", self.run.failed(Error("before_step raised")))

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
        if detail % 7 == 6:
            (self.watch.provided if request.kind == "deferred" else self.watch.declined).add(id)
            what, commands = f"expired {id}", self.run.call_expired(id)
        elif request.kind == "deferred":
            self.watch.provided.add(id)
            what, commands = f"provide {id}", self.run.provide(id, Outcome((Text(0, "it is done"),)))
        elif detail % 3 == 0:
            self.watch.declined.add(id)
            what, commands = f"decline {id}", self.run.decide(id, False)
        else:
            arguments = {"text": "changed"} if detail % 3 == 1 else None
            self.watch.approved(request, arguments)
            what, commands = f"approve {id} {arguments or ''}", self.run.decide(id, True, arguments)
        self.outbox.withdraw(id, request.kind)
        self.take(what, commands)

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
        self.watch.cancel()
        unread = self.outbox.drop()
        self.unit = iter(())
        self.take(f"cancel, {len(unread)} unread", self.run.cancel("no more", unread))

    def say(self) -> None:
        self.take("say", self.run.say(user("And then?")))

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
        if self.script.is_logged:
            self.take_over()
            return
        self.fold()
        stored = self.run.dump()
        is_read = not self.run.state.response.unfolded and not self.run.state.executions.table.count("starting")
        state = stored_state(self.run, is_read)
        self.forget()
        self.run = load(stored, self.script.policies, self.script.limits, self.script.run_repaired)[0]
        self.run.state.has_hooks = self.script.has_hooks
        loaded = stored_state(self.run, is_read)
        if differences := {key: (state[key], loaded[key]) for key in state if state[key] != loaded[key]}:
            raise Broken("a stored run is the same when it is loaded", differences)
        self.take("stored, loaded, begin", self.run.begin())

    def take_over(self) -> None:
        """The process dies; another one continues with the log."""
        self.forget()
        self.log.append(Taken(self.watch.deaths + 1, "another"))
        self.run = self.rebuilt()
        self.take("taken over", self.run.begin())

    def forget(self) -> None:
        """What dies with the process."""
        self.watch.die()
        self.outbox = Outbox()
        self.chunks, self.preparing, self.running, self.unit = None, None, {}, iter(())

    def rebuilt(self) -> Run:
        """The run as another process rebuilds it from the log."""
        events = [decode_logged(encode(event)) for event in self.log]
        run = rebuild(events, self.script.policies, self.script.limits, self.script.run_repaired)
        run.state.has_hooks = self.script.has_hooks
        return run

    def check_log(self) -> None:
        """The log is the run: rebuilt from it, the run is the one that wrote it, or its interrupted form."""
        self.boundaries += 1
        self.run.state.response.fold(0)
        live, other = interrupted_state(self.run), interrupted_state(self.rebuilt())
        if live != other:
            differences = {key: (live[key], other[key]) for key in live if live[key] != other[key]}
            raise Broken("the log is the run", differences)

    def look(self) -> None:
        self.fold()
        self.watch.valid(self.run.state.history)

    def after_the_end(self) -> None:
        inputs = [
            self.run.chunks([Text(0, "more")]), self.run.ended(), self.run.cancel(), self.run.expire("late"),
            self.run.failed(Error("late")), self.run.call_expired("c1"), self.run.step_prepared(StepDecision()),
            self.run.request_failed(Error("late")),
            *(self.run.tool_done(key, Outcome(())) for key in self.stale),
            *(self.run.tool_late(key) for key in self.running),
        ]  # fmt: skip
        if any(inputs):
            raise Broken("nothing after the end", [commands for commands in inputs if commands])

    # The commands.

    def take(self, what: str, commands: list[Command]) -> None:
        """Carries out the commands, as a driver does."""
        self.inputs.append(what)
        if any(isinstance(command, Emit) for command in commands[1:]):
            raise Broken("events come before other commands", commands)
        for command in commands:
            match command:
                case Emit():
                    self.log += command.logged
                    self.watch.emit(command.events)
                    self.outbox.put(command.events)
                case ReviewCall():
                    pass  # see below
                case PrepareStep():
                    self.hold("a hook", partial(self.prepare, command))
                case AskModel():
                    self.hold("a request", partial(self.ask, command))
                case StartTool(awaits_reader=True):
                    self.hold("a tool with side effects", partial(self.start, command))
                case StartTool():
                    self.watch.start(command, is_undone=CancelTool(command.key) in commands)
                    self.running[command.key] = command
                case StopAsking():
                    self.chunks = self.preparing = None
                case CancelTool():
                    self.running.pop(command.key, None)
                    self.stale.append(command.key)
        if self.run.state.is_over and (self.running or self.chunks is not None or self.preparing is not None):
            raise Broken("at the end nothing is left running", [*self.running, self.chunks, self.preparing])
        if self.script.is_logged:
            self.check_log()
        self.catch_up()
        for command in commands:
            if isinstance(command, ReviewCall):
                self.check(command)

    def check(self, command: ReviewCall) -> None:
        answer = self.script.policies[command.name].requires_approval(command.arguments, is_in_text=command.is_in_text)
        assert isinstance(answer, bool | Outcome)
        review = answer if isinstance(answer, Outcome) else CallReview("ask" if answer else "go")
        self.take(f"checked {command.key} {answer}", self.run.call_reviewed(command.key, review))

    def catch_up(self) -> None:
        if self.script.is_prompt:
            self.read(100_000)

    def prepare(self, command: PrepareStep) -> None:
        if self.run.reached(command):
            if self.watch.is_cancelled:
                raise Broken("stop means stop", "a hook after a cancel")
            self.watch.valid(list(command.messages))
            self.preparing = command

    def ask(self, command: AskModel) -> None:
        if not self.run.reached(command):
            return
        if self.watch.is_cancelled:
            raise Broken("stop means stop", "a request after a cancel")
        self.inputs.append("(request)")
        self.watch.valid(list(command.messages))
        self.chunks = self.next_answer()

    def start(self, command: StartTool) -> None:
        if self.run.reached(command):
            self.inputs.append(f"(start {command.key})")
            self.watch.start(command)
            self.running[command.key] = command

    def next_answer(self) -> list[StreamChunk]:
        answers = self.script.answers
        at = self.answered
        self.answered += 1
        return list(answers[at % len(answers)] if at < MAX_STEPS else LAST)


def random_decision(messages: tuple[Message, ...], chance: Random) -> StepDecision:
    """What hooks might decide: nothing, another request, fallbacks, a shorter history, the end."""
    kind = chance.randrange(8)
    short = [messages[0], *messages[-2:]] if len(messages) > 3 and messages[-2].role == "assistant" else [*messages]
    if kind == 0 and chance.random() < 0.3:
        return StepDecision(stop="enough")
    if kind in (1, 2):
        joined = [user("Go, and be quick."), *short[1:]]
        return StepDecision(history=splices_between(messages, joined))
    splices = splices_between(messages, short) if kind == 3 else ()
    return StepDecision(StepChanges(
        messages=splices or None, tools=("look",) if kind == 4 else None, instructions="Hm." if kind == 5 else None,
        fallbacks=("b", "c") if kind > 3 else None, options={"temperature": 0.5} if kind == 6 else None,
    ))  # fmt: skip


def interrupted_state(run: Run) -> dict[str, Any]:
    """What a log says of a run: calls that were checked or may start are on hold, those that have started run."""
    state: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(snapshot(run.state)))
    if run.state.is_over:
        return {key: state[key] for key in ("messages", "phase", "output", "end")} | {"usage": state["tally"]["usage"]}
    for execution in state["executions"]:
        is_started = execution["state"] == "finished" and not execution["is_confirmed"]
        if is_started or (execution["key"] in run.state.starts.announced and execution["state"] != "finished"):
            execution |= {"state": "running", "result": None, "ending": "done"}
        execution["state"] = execution["state"].replace("ready", "held")
        del execution["needs_approval"]
    changes = msgspec.to_builtins(run.state.changes) if run.state.phase == "answer" else None
    return state | {"said": [message.text for message in run.state.new_messages], "changes": changes}


def stored_state(run: Run, is_read: bool) -> dict[str, Any]:
    """What a stored run has: no tool whose start was not read, and no call of an answer that was not read."""
    state: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(snapshot(run.state)))
    if run.state.is_over or not is_read:
        return {key: state[key] for key in ("messages", "phase", "output", "end")} | {"usage": state["tally"]["usage"]}
    return interrupted_state(run) | {"answer": None}
