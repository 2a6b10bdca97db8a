"""The dispatcher of a run in sync code: the model and every tool have a thread, and one lock guards the machine."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import assert_never

from penstock.agent.approval_checks import SyncChecks
from penstock.agent.dispatcher import Dispatcher, OuterCall, pass_on
from penstock.agent.driven_run import DrivenRun
from penstock.agent.expiries import pause_after
from penstock.agent.hook_calls import SyncHookCalls
from penstock.agent.inner_agents import InnerAgents
from penstock.agent.sync_response import SyncResponseReader
from penstock.agent.sync_tool_runner import SyncToolRunner
from penstock.agent.timers import ThreadTimers
from penstock.run.commands import (
    AnswerTool,
    AskModel,
    CancelTool,
    CheckApproval,
    Command,
    Emit,
    ExpireLater,
    PrepareStep,
    StartTool,
    StopAsking,
)
from penstock.run.outbox import Gate
from penstock.transport.loop_thread import Joinable, RunLoop


class SyncDispatcher(Dispatcher):
    """Carries out the commands of a run under its lock. `arrivals` has at least one entry per item in the outbox."""

    def __init__(self, driven: DrivenRun, outer: SyncDispatcher | None = None, key: str = "") -> None:
        super().__init__(driven, ThreadTimers(), None if outer is None else OuterCall(outer, key))
        self.lock: threading.RLock = threading.RLock() if outer is None else outer.lock
        self.arrivals: SimpleQueue[None] = SimpleQueue() if outer is None else outer.arrivals
        self.inner = InnerAgents[SyncDispatcher](driven, self)
        loop: RunLoop | None = None if outer is None else outer.tools.loop
        self.tools: SyncToolRunner = SyncToolRunner(driven, self, self.lock, loop)
        self._hooks = SyncHookCalls(driven, self, self.lock, self.tools.loop)
        self.responses = SyncResponseReader(driven, self, self.lock, self.tools.loop)
        self._checks = SyncChecks(driven, self.lock, self.timers, self.tools.loop, self.approval_checked)

    def report(self, step: Callable[[], list[Command]]) -> None:
        with self.lock:
            self.carry_out(self._driven.guarded(step))

    def carry_out(self, commands: list[Command]) -> None:
        """Carry out commands, under the lock."""
        driven = self._driven
        due = deque(() if driven.ownership.is_left else commands)
        while due:
            match command := due.popleft():
                case Emit():
                    if pass_on(command, driven, self._outer):
                        self.wake()
                case PrepareStep() | AskModel() | StartTool(awaits_reader=True):
                    self.hold(partial(self._reached, command))
                case StartTool():
                    due += self.tools.start(command)
                case AnswerTool():
                    self.tools.questions.answer(command)
                case CheckApproval():
                    due += self._check_approval(command)
                case ExpireLater():
                    self._expire_later(command)
                case CancelTool():
                    self.tools.stop(command.key)
                case StopAsking():
                    self.responses.stop()
                    self._hooks.stop()
                case _:
                    assert_never(command)

    def new_inner(self, driven: DrivenRun, key: str) -> SyncDispatcher:
        return SyncDispatcher(driven, self, key)

    def prepare(self) -> None:
        """List the tools of a run that continues, and those of its inner runs."""
        self.first = self.responses.first_step()
        for inner in self.inner.make_all():
            inner.prepare()

    def hold(self, gate: Gate) -> None:
        """Call this, under the lock, when the reader asks for the event after everything emitted so far."""
        with self.lock:
            if self._outer is not None:
                self._outer.dispatcher.hold(gate)
            elif self._driven.outbox.hold(gate):
                self.wake()

    def call(self, callback: Callable[[], None]) -> None:
        with self.lock:
            callback()

    def wake(self) -> None:
        self.arrivals.put(None)

    def on_committed(self) -> Callable[[int], None]:
        return self._committed

    def _committed(self, units: int) -> None:
        with self.lock:
            count = self._driven.logged_outbox.committed(units)
            for _ in range(max(1, count)):  # also for nothing, as the run may have to pause
                self.wake()

    def cancel(self, why: str) -> None:
        """Cancel the run."""
        with self.lock:
            self._driven.is_cancelled = True
            self.carry_out(self._driven.run.cancel(why, self._driven.outbox.drop()))

    def pause_if_waiting(self) -> None:
        """Pause the run if its reader has read everything and would wait for a decision or a result."""
        with self.lock:
            if self._driven.should_pause:
                self.carry_out(self._driven.run.pause(pause_after(self.seconds_left)))

    def stop_all(self) -> None:
        self.responses.stop()
        self._hooks.stop()
        self.tools.stop_all()

    def close(self) -> list[Joinable]:
        """Forget all threads and tasks; returns those that end soon, to be joined."""
        inner = [work for dispatcher in self.inner.close() for work in dispatcher.close()]
        tools = self.tools.close()
        return [*self.responses.close(), *inner, *tools]

    def _reached(self, command: PrepareStep | AskModel | StartTool) -> None:
        """The reader has come to a command that waited."""
        self._driven.ownership.check(command)
        if not self._driven.run.reached(command):
            return
        match command:
            case PrepareStep():
                self.carry_out(self._hooks.start(command))
            case AskModel():
                self.carry_out(self.responses.start(command))
            case StartTool():
                self.carry_out(self.tools.start(command))

    def _check_approval(self, check: CheckApproval) -> list[Command]:
        """Call a predicate in a thread; returns the outputs that follow if no thread can be started."""
        try:
            self._checks.start(check)
        except RuntimeError as error:
            return self._driven.failed(error)
        return []
