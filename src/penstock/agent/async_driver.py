"""The driver of a run in async code."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from penstock.agent.async_dispatcher import AsyncDispatcher
from penstock.agent.config import AgentConfig
from penstock.agent.dispatcher import PAUSE
from penstock.agent.driven_run import DrivenRun
from penstock.agent.driver import MAX_WAIT, Driver, is_due_after_cancel
from penstock.agent.expiries import pause_after
from penstock.agent.log_listener import provided
from penstock.errors import UsageError
from penstock.log.store import LostRunError, OwnedRun, StoreError
from penstock.messages import Message
from penstock.run.commands import Command
from penstock.run.events import Done, RequestKind, StreamEvent
from penstock.run.input_checks import expect_undecided, expect_waiting
from penstock.run.machine import Run

_alone: set[asyncio.Task[None]] = set()  # the tasks of runs without a reader, which would be freed otherwise


class AsyncDriver(Driver[AsyncDispatcher]):
    """Drives a run that is read in async code. All of it happens on one event loop."""

    def __init__(self, config: AgentConfig, run: Run, deps: Any, owned: OwnedRun | None = None) -> None:
        driven = DrivenRun(config, run, deps, owned)
        super().__init__(driven, AsyncDispatcher(driven))

    async def enter(self) -> None:
        """Begin, in async code."""
        if not self._has_begun:
            await self._dispatcher.prepare()
            self.begin()

    def begin(self) -> None:
        if self._has_begun:
            return
        driven, dispatcher = self._driven, self._dispatcher
        if dispatcher.needs_listing:
            raise UsageError("the tools of the run are not known before it is entered: use `async with`")
        try:
            dispatcher.loop.attach()
        except RuntimeError:
            raise UsageError("the run has not begun: enter it first, with `async with`") from None
        self._has_begun = True
        driven.enter()
        self.listener.open()
        dispatcher.carry_out((dispatcher.first or self.run.begin)())
        self.listener.take_inputs()
        dispatcher.start_time_limit()

    def cancel(self, why: str) -> None:
        """Cancel the run. From another thread, this waits for the loop, at most `MAX_WAIT` seconds."""
        dispatcher = self._dispatcher
        self._driven.is_cancelled = True  # from here on nothing starts, even if the loop is busy
        dispatcher.prevent()
        dispatcher.loop.call_and_wait(partial(dispatcher.cancel, why), MAX_WAIT)

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> None:
        self.begin()
        run = self._dispatcher.inner.holder(call_id).run
        check = partial(expect_undecided, run, call_id, approved, arguments)
        decide = partial(run.decide, call_id, approved, arguments, reason)
        self._resolve(call_id, "approval", check, decide)

    def provide(self, call_id: str, value: Any, is_error: bool) -> None:
        self.begin()
        run = self._dispatcher.inner.holder(call_id).run
        kind: RequestKind = "input" if run.state.waits_for(call_id, "input") else "deferred"
        check = partial(expect_waiting, run, call_id, kind)
        self._resolve(call_id, kind, check, lambda: run.provide(call_id, provided(value, is_error)))

    def say(self, message: Message) -> None:
        """Add a message. From another thread, this waits for the loop, at most `MAX_WAIT` seconds."""
        self.begin()
        self._check_open()
        refusals: list[UsageError] = []

        def say() -> None:
            try:
                self._dispatcher.carry_out(self.run.say(message))
            except UsageError as error:  # the run ended before the loop came to it
                refusals.append(error)

        self._dispatcher.loop.call_and_wait(say, MAX_WAIT)
        if refusals:
            raise refusals[0]

    def _resolve(
        self, call_id: str, kind: RequestKind, check: Callable[[], None], answer: Callable[[], list[Command]]
    ) -> None:
        """Carry out the answer to a request of the run; of two answers the first counts. A wrong one raises here."""
        self._check_open()
        dispatcher, holder = self._dispatcher, self._dispatcher.inner.holder(call_id)

        def resolve() -> None:
            commands = answer()
            self._driven.outbox.withdraw(call_id, kind)
            holder.carry_out(commands)
            holder.expiries.settle()

        if dispatcher.loop.is_here:
            resolve()
        else:
            check()
            dispatcher.call(lambda: resolve() if holder.run.state.waits_for(call_id, kind) else None)

    def read_events(self, reader: object) -> AsyncIterator[StreamEvent]:
        """The events of the run; the iterator keeps `reader` alive."""
        self._reader.claim()
        return self._events(reader)

    async def _events(self, reader: object) -> AsyncIterator[StreamEvent]:
        await self.enter()
        driven, dispatcher, run, outbox = self._driven, self._dispatcher, self.run, self._driven.outbox
        callbacks, arrived = driven.config.callbacks, dispatcher.arrived
        is_alone, view = self._is_alone, None if self._is_alone else self.view
        has_callbacks = callbacks.are_set and not is_alone
        may_be_late = has_callbacks or view is not None  # they hold events that `cancel` cannot drop
        try:
            while True:
                while not outbox.items:
                    if self._is_alone and driven.is_logged_to_its_end:
                        return
                    if run.state.phase == "tools" and driven.should_pause:
                        dispatcher.carry_out(run.pause(pause_after(dispatcher.seconds_left)))
                    else:
                        await arrived.wait()
                was_full, item = outbox.is_full, outbox.take()
                if was_full and not outbox.is_full:
                    dispatcher.has_room.set()
                if callable(item):
                    item()
                    continue
                events = item or ()
                for event in events if view is None else view.through(events):
                    if has_callbacks and inspect.isawaitable(result := callbacks.call(event)):
                        await result
                    if may_be_late and driven.is_cancelled and not is_due_after_cancel(event):
                        continue
                    yield event
                    if type(event) is Done:
                        return
        finally:
            await (self.end() if is_alone else self.close())

    async def close(self) -> None:
        """Cancel the run if it has not ended, and wait until its tasks have ended, at most `MAX_WAIT` seconds.

        A run that is detached continues in a task.
        """
        self._is_closed = True
        if self._goes_on_alone:
            self._go_on_alone()
        elif not self._is_alone:
            await self.end()

    async def end(self) -> None:
        """Give the run back or cancel it, if it has not ended, and wait for its tools and its request."""
        driven, dispatcher = self._driven, self._dispatcher
        if driven.ownership.is_left:
            dispatcher.leave()
        elif driven.continues_elsewhere and driven.done is None:
            dispatcher.give_back()
        elif driven.done is None:
            self.cancel("the reader closed the run")
        dispatcher.timers.close()
        driven.scope.close()
        end = time.monotonic() + MAX_WAIT
        while not driven.outbox.is_written and time.monotonic() < end:  # noqa: ASYNC110  # another thread writes
            await asyncio.sleep(PAUSE)
        left = {task for task in dispatcher.close() if not task.done()}
        left.discard(asyncio.current_task())
        if left:
            await asyncio.wait(left, timeout=MAX_WAIT)

    def _go_on_alone(self) -> None:
        """Read the run in a task of the loop: its reader has left. If the loop ends before, the run is given back."""

        async def read() -> None:
            with suppress(LostRunError, StoreError):  # another worker continues it
                async for _ in self._events(None):
                    pass

        self._is_alone = True
        task = asyncio.create_task(read(), context=self._driven.scope.variables.copy())
        _alone.add(task)
        task.add_done_callback(_alone.discard)

    def abandon(self) -> None:
        """The run can no longer be read: cancel it on its loop, because an object may be freed at any moment."""
        if self._has_begun and not self._is_closed:
            self._driven.is_cancelled = True
            self._dispatcher.loop.call_soon(self._drop)

    def _drop(self) -> None:
        if self._goes_on_alone:
            self._go_on_alone()
            return
        self._dispatcher.cancel("the reader dropped the run")
        self._dispatcher.timers.close()
