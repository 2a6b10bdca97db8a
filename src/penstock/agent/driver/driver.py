"""The driver of a run: it begins the run, passes on what the reader wants of it, and ends it, all on one event loop.

Its dispatcher carries out the commands of the machine. Tasks refer to the driver and its parts, but not to the public
run (`agent_run`), so that a run which nobody can read any more is freed and stopped.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from penstock.agent.calls.running_tool import PAUSE
from penstock.agent.driver.dispatcher import Dispatcher
from penstock.agent.driver.driven_run import DrivenRun
from penstock.agent.driver.log_listener import LogListener, provided
from penstock.agent.reader_view import OneReader, reader_view
from penstock.errors import UsageError
from penstock.log.store import LostRunError, StoreError
from penstock.messages import Message
from penstock.output.partial import PartialView
from penstock.run.commands import Command
from penstock.run.events import Done, RequestKind, StepEnd, StreamEvent, ToolEnd, innermost
from penstock.run.input_checks import expect_undecided, expect_waiting
from penstock.run.machine import Run

MAX_WAIT = 1.0
"""How many seconds a run that ends waits for what it cancelled: a connection or a tool may not react."""

T = TypeVar("T")

_kept: set[asyncio.Task[None]] = set()  # the tasks of runs without a reader, which would be freed otherwise


class Wakeup:
    """Wakes the reader of a run: the one task that waits on its loop, or a thread that waits for `arrivals`.

    A reader waits for almost every event, and an `asyncio.Event`, which any number of tasks can wait for, costs several
    times as much.
    """

    __slots__ = ("_arrivals", "waiter")

    def __init__(self, arrivals: SimpleQueue[None] | None = None) -> None:
        self._arrivals = arrivals
        self.waiter: asyncio.Future[None] | None = None  # what the task waits for

    def set(self) -> None:
        """Wake the reader, if it waits."""
        if self._arrivals is not None:
            self._arrivals.put(None)
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Driver:
    """Drives a run on the event loop on which it begins. `listener` connects the run to its log, if it has one."""

    def __init__(self, driven: DrivenRun, arrivals: SimpleQueue[None] | None = None) -> None:
        self._driven = driven
        self._arrived = Wakeup(arrivals)
        self._dispatcher = Dispatcher(driven, self._arrived.set)
        self.view = reader_view(driven.config)
        self.listener = LogListener(driven, self._dispatcher)
        self._reader = OneReader()
        self._has_begun = False
        self._is_closed = False
        self._is_detached = False  # the run continues when its reader leaves
        self._is_alone = False  # its reader has left

    @property
    def run(self) -> Run:
        """The machine of the run."""
        return self._driven.run

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._driven.records.run_id

    @property
    def done(self) -> Done | None:
        """The last event, once the run has ended here."""
        return self._driven.done

    @property
    def errors(self) -> tuple[Exception | None, tuple[Exception, ...]]:
        """The exception of a request that failed, and those of tools that are not `ToolError`s."""
        return self._driven.error, tuple(self._driven.tool_failures)

    @property
    def partial(self) -> PartialView | None:
        """The structured output so far."""
        return None if self.view is None else self.view.partial

    @property
    def has_log(self) -> bool:
        """Whether the run is kept in a log."""
        return self._driven.ownership.has_log

    def call(self, look: Callable[[], T]) -> T:
        """Look at the run while nothing happens to it."""
        return look()

    def dump(self) -> bytes:
        """The run as JSON, with the times at which its calls expire."""
        self.fold()
        now = time.time()
        left = self._dispatcher.seconds_left
        return self.run.dump({call_id: now + seconds for call_id, seconds in left.items()})

    def fold(self) -> None:
        """Bring the history up to what the reader has read."""
        self.run.fold_unread(self._driven.outbox.unread_events)

    # -- the beginning ---------------------------------------------------------------------------------------------

    async def enter(self) -> None:
        """Begin, after the tools of a run that continues were listed."""
        if not self._has_begun:
            await self._dispatcher.prepare()
            self.begin()

    def begin(self) -> None:
        """Begin, on the running loop."""
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

    # -- what its reader wants -------------------------------------------------------------------------------------

    def detach(self) -> None:
        """Let the run continue when its reader leaves; if this process cannot, the run is given back to its store."""
        self._driven.ownership.detach()
        self._is_detached = True

    def cancel(self, why: str) -> None:
        """Cancel the run. From another thread, this waits for the loop, at most `MAX_WAIT` seconds."""
        dispatcher = self._dispatcher
        self._driven.is_cancelled = True  # from here on nothing starts, even if the loop is busy
        dispatcher.prevent()
        dispatcher.loop.call_and_wait(partial(dispatcher.cancel, why), MAX_WAIT)

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> None:
        self.begin()
        run = self._dispatcher.tools.holder(call_id).run
        check = partial(expect_undecided, run, call_id, approved, arguments)
        decide = partial(run.decide, call_id, approved, arguments, reason)
        self._resolve(call_id, "approval", check, decide)

    def provide(self, call_id: str, value: Any, is_error: bool) -> None:
        self.begin()
        run = self._dispatcher.tools.holder(call_id).run
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
        dispatcher, holder = self._dispatcher, self._dispatcher.tools.holder(call_id)

        def resolve() -> None:
            commands = answer()
            self._driven.outbox.withdraw(call_id, kind)
            holder.carry_out(commands)
            holder.expiries.settle()

        if dispatcher.loop.is_here:
            resolve()
        else:
            check()
            dispatcher.loop.call(lambda: resolve() if holder.run.state.waits_for(call_id, kind) else None)

    def _check_open(self) -> None:
        """Raise a `UsageError` if the run is paused."""
        if self.done is not None and self.done.reason == "paused":
            raise UsageError("the run is paused: continue it with Agent.resume(run.dump()), and answer there")

    # -- reading ---------------------------------------------------------------------------------------------------

    def aread_events(self, reader: object) -> AsyncIterator[StreamEvent]:
        """The events of the run; the iterator keeps `reader` alive."""
        self._reader.claim()
        return self._events(reader)

    async def _events(self, reader: object) -> AsyncIterator[StreamEvent]:
        await self.enter()
        driven, dispatcher, run, outbox = self._driven, self._dispatcher, self.run, self._driven.outbox
        callbacks, arrived, loop = driven.config.callbacks, self._arrived, asyncio.get_running_loop()
        view, has_callbacks = self.view, callbacks.are_set
        may_be_late = has_callbacks or view is not None  # they hold events that `cancel` cannot drop
        try:
            while True:
                while not outbox.items:
                    if run.state.phase != "tools" or not dispatcher.pause_if_waiting():
                        arrived.waiter = waiter = loop.create_future()
                        await waiter
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
            await self.aclose()

    async def drain(self) -> None:
        """Drive a run with a log to its end or pause, without a reader."""
        self._reader.claim()
        await self.enter()
        try:
            await self._open_gates()
        finally:
            await self.aclose()

    async def _open_gates(self) -> None:
        """Call each gate when the log has everything before it; events are dropped."""
        driven, dispatcher, outbox = self._driven, self._dispatcher, self._driven.logged_outbox
        arrived, loop = self._arrived, asyncio.get_running_loop()
        outbox.is_drained = True
        while True:
            while outbox.items:
                if callable(item := outbox.take()):
                    item()
            if not outbox.is_full:
                dispatcher.has_room.set()
            if driven.is_logged_to_its_end:
                return
            if self.run.state.phase != "tools" or not dispatcher.pause_if_waiting():
                arrived.waiter = waiter = loop.create_future()
                await waiter

    # -- the end ---------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
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
        left = {task for task in [*dispatcher.close(), *driven.code.close()] if not task.done()}
        left.discard(asyncio.current_task())
        if left:
            await asyncio.wait(left, timeout=MAX_WAIT)

    @property
    def _goes_on_alone(self) -> bool:
        """Whether the run continues here although its reader has just left."""
        is_possible = self._is_detached and self._has_begun and self.done is None
        return is_possible and not self._is_alone and not self._driven.ownership.is_left

    def _go_on_alone(self) -> None:
        """Drain the run in a task of the loop: its reader has left. If the loop ends before, the run is given back."""

        async def read() -> None:
            try:
                with suppress(LostRunError, StoreError):  # another worker continues it
                    await self._open_gates()
            finally:
                await self.end()

        self._is_alone = True
        task = asyncio.create_task(read(), context=self._driven.scope.variables.copy())
        keep(task)

    def abandon(self) -> None:
        """The run can no longer be read: cancel it on its loop, because an object may be freed at any moment."""
        if self._has_begun and not self._is_closed:
            self._driven.is_cancelled |= not self._goes_on_alone
            self._dispatcher.loop.call_soon(self._drop)

    def _drop(self) -> None:
        if self._goes_on_alone:
            self._go_on_alone()
            return
        self._dispatcher.cancel("the reader dropped the run")
        self._dispatcher.timers.close()


def keep(task: asyncio.Task[None]) -> None:
    """Keep a task of a run without a reader until it has ended."""
    _kept.add(task)
    task.add_done_callback(_kept.discard)


def is_due_after_cancel(event: StreamEvent) -> bool:
    """Whether a reader who has cancelled the run still gets this event."""
    return isinstance(innermost(event), ToolEnd | StepEnd | Done)
