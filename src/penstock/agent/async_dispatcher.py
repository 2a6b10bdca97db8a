"""The dispatcher of a run in async code: the model and every tool have a task on the caller's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

from penstock.agent.approval_checks import AsyncChecks
from penstock.agent.async_response import AsyncResponseReader
from penstock.agent.async_tool_runner import AsyncToolRunner
from penstock.agent.caller_loop import CallerLoop
from penstock.agent.dispatcher import Dispatcher, OuterCall, pass_on
from penstock.agent.driven_run import DrivenRun
from penstock.agent.hook_calls import AsyncHookCalls
from penstock.agent.inner_agents import InnerAgents
from penstock.agent.timers import Timers
from penstock.agent.wakeup import Wakeup
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


class AsyncDispatcher(Dispatcher):
    """Carries out the commands of a run on its loop.

    `arrived` is set when the reader may have something to read, `has_room` when it has caught up.
    """

    def __init__(self, driven: DrivenRun, outer: AsyncDispatcher | None = None, key: str = "") -> None:
        super().__init__(driven, Timers(), None if outer is None else OuterCall(outer, key))
        self.loop: CallerLoop = CallerLoop() if outer is None else outer.loop
        self.arrived: Wakeup = Wakeup() if outer is None else outer.arrived
        self.has_room: asyncio.Event = asyncio.Event() if outer is None else outer.has_room
        self.inner = InnerAgents[AsyncDispatcher](driven, self)
        self.responses = AsyncResponseReader(driven, self, self.room)
        self.hooks = AsyncHookCalls(driven, self)
        self.tools = AsyncToolRunner(driven, self, self.loop, self.room)
        self.checks = AsyncChecks(driven, self.approval_checked)

    def report(self, step: Callable[[], list[Command]]) -> None:
        self.carry_out(self._driven.guarded(step))

    def carry_out(self, commands: list[Command]) -> None:
        driven = self._driven
        for command in () if driven.ownership.is_left else commands:
            match command:
                case Emit():
                    if pass_on(command, driven, self._outer):
                        self.arrived.set()
                case PrepareStep() | AskModel() | StartTool(awaits_reader=True):
                    self.hold(partial(self._reached, command))
                case StartTool():
                    if not driven.is_cancelled:  # a busy loop may not have cancelled it yet
                        self.tools.start(command)
                case AnswerTool():
                    self.tools.questions.answer(command)
                case CheckApproval():
                    self.checks.start(command)
                case ExpireLater():
                    self._expire_later(command)
                case CancelTool():
                    self.tools.stop(command.key)
                case StopAsking():
                    self.responses.stop()
                    self.hooks.stop()
                case _:
                    assert_never(command)

    def new_inner(self, driven: DrivenRun, key: str) -> AsyncDispatcher:
        return AsyncDispatcher(driven, self, key)

    async def prepare(self) -> None:
        """List the tools of a run that continues, and those of its inner runs."""
        self.first = await self.responses.first_step()
        for inner in self.inner.make_all():
            await inner.prepare()

    def hold(self, gate: Gate) -> None:
        if self._outer is not None:
            self._outer.dispatcher.hold(gate)
        elif self._driven.outbox.hold(gate):
            self.arrived.set()

    def call(self, callback: Callable[[], None]) -> None:
        self.loop.call(callback)

    def wake(self) -> None:
        self.arrived.set()

    def on_committed(self) -> Callable[[int], None]:
        post, add, wake = self.loop.mailbox.post, self._driven.logged_outbox.committed, self.arrived.set

        def deliver(units: int = 1) -> None:
            add(units)
            wake()  # also if there is nothing to read: the run may have to pause

        def committed(units: int) -> None:
            # Most commits have one unit of a run. An object per commit would occupy the garbage collector.
            post(deliver if units == 1 else partial(deliver, units))

        return committed

    def can_go_on(self) -> bool:
        return not self.loop.is_closed

    def cancel(self, why: str) -> None:
        """Cancel the run, on its loop."""
        self.carry_out(self._driven.run.cancel(why, self._driven.outbox.drop()))

    async def room(self) -> None:
        """Wait until the reader has caught up."""
        while self._driven.outbox.is_full:
            self.has_room.clear()
            await self.has_room.wait()

    def prevent(self) -> None:
        """Prevent tools from starting, and signal those that run to end; from any thread."""
        self.tools.prevent()
        for inner in self.inner.all():
            inner.prevent()

    def stop_all(self) -> None:
        self.responses.stop()
        self.hooks.stop()
        self.tools.stop_all()

    def close(self) -> list[asyncio.Task[Any]]:
        """Forget all tasks; returns them, to be waited for."""
        inner = [task for dispatcher in self.inner.close() for task in dispatcher.close()]
        return [*self.checks.cancel(), *self.tools.close(), *self.responses.close(), *self.hooks.close(), *inner]

    def _reached(self, command: PrepareStep | AskModel | StartTool) -> None:
        """The reader has come to a command that waited."""
        self._driven.ownership.check(command)
        if self._driven.is_cancelled or not self._driven.run.reached(command):
            return
        match command:
            case PrepareStep():
                self.hooks.start(command)
            case AskModel():
                self.responses.start(command)
            case StartTool():
                self.tools.start(command)
