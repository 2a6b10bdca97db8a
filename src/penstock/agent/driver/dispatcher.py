"""The dispatcher of a run: it reports events to the machine, and carries out its commands, on the loop of the run.

The machine decides, the dispatcher hands each command to the part that carries it out: events to the outbox, requests
to the response reader, tools to the running tools. What the reader must have read before (the next request, the start
of a tool with side effects, the end of a response) waits in the outbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

from msgspec import Struct

from penstock.agent.calls.call_reviews import CallReviews
from penstock.agent.calls.hook_calls import HookCalls
from penstock.agent.calls.running_tools import RunningTools
from penstock.agent.driver.caller_loop import CallerLoop
from penstock.agent.driver.driven_run import DrivenRun
from penstock.agent.driver.responses import ResponseReader
from penstock.agent.driver.timers import Expiries, Timers, pause_after
from penstock.agent.records import LOGGED
from penstock.run.commands import (
    AnswerTool,
    AskModel,
    CancelTool,
    Command,
    Emit,
    ExpireLater,
    GrowTool,
    PrepareStep,
    PrepareTool,
    ReviewCall,
    ReviseResult,
    StartTool,
    StopAsking,
)
from penstock.run.events import Done
from penstock.run.machine import Run
from penstock.run.outbox import Gate


class OuterCall(Struct, frozen=True):
    """The call around an inner run: the dispatcher of the run that made it, and the key of its execution."""

    dispatcher: Dispatcher
    key: str

    def emit(self, emit: Emit, *, is_over: bool) -> None:
        """Pass on what an inner run emitted, to the run around it; if it is over, forget it."""
        time = self.dispatcher.tools.time(self.key) if is_over else None
        self.dispatcher.report(partial(self.dispatcher.run.inner_emitted, self.key, emit, time))
        if is_over:
            self.dispatcher.tools.stop(self.key)


class Dispatcher:
    """Carries out the commands of a run on its loop.

    `wake` is called when the reader may have something to read, `has_room` is set when it has caught up. The dispatcher
    of an agent that runs as a tool has an `outer` call. `first` is how the run begins, once its tools are listed.
    """

    def __init__(self, driven: DrivenRun, wake: Callable[[], None], outer: OuterCall | None = None) -> None:
        self.wake = wake
        self.loop: CallerLoop = CallerLoop() if outer is None else outer.dispatcher.loop
        self.has_room: asyncio.Event = asyncio.Event() if outer is None else outer.dispatcher.has_room
        self.timers = Timers()
        self.expiries = Expiries(driven.run, self.timers)
        self.first: Callable[[], list[Command]] | None = None
        self.tools = RunningTools(driven, self)
        self._growing = self.tools.preparations.growing
        self._driven = driven
        self._outer = outer
        self._responses = ResponseReader(driven, self)
        self._hooks = HookCalls(driven, self)
        self._reviews = CallReviews(driven, self)

    @property
    def run(self) -> Run:
        """The machine of the run."""
        return self._driven.run

    def report(self, step: Callable[[], list[Command]]) -> None:
        """Report to the machine what happened, and carry out its commands."""
        self.carry_out(self._driven.guarded(step))

    def carry_out(self, commands: list[Command]) -> None:
        """Carry out commands."""
        driven = self._driven
        for command in () if driven.ownership.is_left else commands:
            match command:
                case Emit():
                    self._pass_on(command)
                case PrepareStep() | AskModel() | StartTool(awaits_reader=True) | ReviseResult(awaits_reader=True):
                    self.hold(partial(self._reached, command))
                case StartTool():
                    if not driven.is_cancelled:  # a busy loop may not have cancelled it yet
                        self.tools.start(command)
                case AnswerTool():
                    self.tools.answer(command)
                case GrowTool():
                    if not driven.is_cancelled:
                        self.tools.preparations.grow(command)
                case PrepareTool():
                    if not driven.is_cancelled:
                        self.tools.preparations.start(command)
                case ReviewCall():
                    self._reviews.review(command)
                case ReviseResult():
                    self._reviews.revise(command)
                case ExpireLater():
                    expired = partial(driven.run.call_expired, command.call_id)
                    self.expiries.start(command, partial(self.report, expired))
                case CancelTool():
                    self.tools.stop(command.key)
                    self._reviews.stop(command.key)
                case StopAsking():
                    self._responses.stop()
                    self._hooks.stop()
                case _:
                    assert_never(command)

    def _pass_on(self, emit: Emit) -> None:
        """Log, trace and pass on events of the run."""
        driven, events, growing = self._driven, emit.events, self._growing
        is_notable = not LOGGED.isdisjoint(map(type, events))
        if is_notable:
            driven.records.add(events)
            driven.take_ends(events)
        if growing.names or growing.config is not driven.config:
            growing.add(events)
        if driven.scope.observer is not None:
            driven.scope.observer.add(events)
        if self._outer is not None:
            self._outer.emit(emit, is_over=driven.run.state.is_over)
        elif driven.outbox.put(events, emit.log):
            self.wake()
        if is_notable and isinstance(last := events[-1], Done):
            driven.remember(last)

    def hold(self, gate: Gate) -> None:
        """Call this when the reader asks for the event after everything emitted so far."""
        if self._outer is not None:
            self._outer.dispatcher.hold(gate)
        elif self._driven.outbox.hold(gate):
            self.wake()

    def _reached(self, command: PrepareStep | AskModel | StartTool | ReviseResult) -> None:
        """The reader has come to a command that waited."""
        self._driven.ownership.check(command)
        if self._driven.is_cancelled or not self._driven.run.reached(command):
            return
        match command:
            case PrepareStep():
                self._hooks.start(command)
            case AskModel():
                self._responses.start(command)
            case StartTool():
                self.tools.start(command)
            case ReviseResult():
                self._reviews.revise(command)

    async def room(self) -> None:
        """Wait until the reader has caught up."""
        while self._driven.outbox.is_full:
            self.has_room.clear()
            await self.has_room.wait()

    def on_committed(self) -> Callable[[], None]:
        """What the thread of the flusher calls after a commit."""
        driven, outbox = self._driven, self._driven.logged_outbox
        add, wake, state = outbox.committed, self.wake, driven.run.state
        delivered = 0  # units

        def deliver() -> None:
            nonlocal delivered
            was_full, units = outbox.is_full, outbox.writer.units - delivered
            delivered += units
            # Also if there is nothing to read, the run may have to pause. One without a reader does not in a response.
            if add(units) or was_full or not outbox.is_drained or state.phase != "answer" or driven.done is not None:
                wake()

        return partial(self.loop.mailbox.post, deliver)  # an object per commit would occupy the garbage collector

    def pause_if_waiting(self) -> bool:
        """Pause the run if its reader has read everything and would wait for a decision or a result."""
        if not self._driven.should_pause:
            return False
        self.carry_out(self._driven.run.pause(pause_after(self.seconds_left)))
        return True

    # -- the beginning, and inner runs -----------------------------------------------------------------------------

    def new_inner(self, driven: DrivenRun, key: str) -> Dispatcher:
        """A dispatcher for an agent that runs in this execution."""
        return Dispatcher(driven, self.wake, OuterCall(self, key))

    async def prepare(self) -> None:
        """List the tools of a run that continues, and those of its inner runs."""
        self.first = await self._responses.first_step()
        for inner in self.tools.prepare_inner():
            await inner.prepare()

    @property
    def needs_listing(self) -> bool:
        """Whether tools must be listed before the run continues: its own, or those of an inner run."""
        driven = self._driven
        is_own = self.first is None and driven.needs_listing and not driven.step_tools.are_listed
        return is_own or any(inner.needs_listing for inner in self.tools.prepare_inner())

    def start_time_limit(self) -> None:
        """Start the timer for the time limit of the run, if it has one."""
        if (seconds := self._driven.seconds_left) is not None:
            self.timers.start("", seconds, partial(self.report, self._driven.expired))

    @property
    def seconds_left(self) -> dict[str, float]:
        """How many seconds each call that waits may still wait, also in inner runs."""
        left = self.expiries.seconds_left
        for inner in self.tools.inner():
            left |= inner.seconds_left
        return left

    # -- the end -----------------------------------------------------------------------------------------------------

    def can_go_on(self) -> bool:
        """Whether commands can still be carried out in this process."""
        return not self.loop.is_closed

    def cancel(self, why: str) -> None:
        """Cancel the run, on its loop."""
        self.carry_out(self._driven.run.cancel(why, self._driven.outbox.drop()))

    def prevent(self) -> None:
        """Prevent tools from starting, and signal those that run to end; from any thread."""
        self.tools.prevent()

    def stop_all(self) -> None:
        """Break off the request to the model, and cancel the tools."""
        self._responses.stop()
        self._hooks.stop()
        self.tools.stop_all()

    def leave(self) -> None:
        """Stop everything: this process does not continue the run."""
        self._driven.is_cancelled = self._driven.ownership.is_left = True
        self.stop_all()

    def give_back(self) -> None:
        """Stop everything here, so that another worker can continue the run."""
        if self._outer is not None:
            self._outer.dispatcher.give_back()
            return
        self.leave()
        self._driven.outbox.drop()
        self._driven.logged_outbox.release()

    def lose(self, error: Exception) -> None:
        """Stop everything, because another worker has the run; the reader gets the error."""
        ownership, outbox = self._driven.ownership, self._driven.outbox
        ownership.lose(error)
        self.leave()
        outbox.drop()
        outbox.items.append(ownership.raise_lost)
        self.wake()

    def close(self) -> list[asyncio.Future[Any]]:
        """Forget all tasks; returns them, to be waited for."""
        return [*self._reviews.cancel(), *self.tools.close(), *self._responses.close(), *self._hooks.close()]
