"""The driver of a run in sync code: a run on the loop that drives them all, read in the thread of the caller.

The reader takes events from the outbox of the run itself. What waits for the reader is carried out on the loop, when
the reader has come to it and waits for the next event. No code of the user runs on the loop.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from penstock.agent.config import AgentConfig
from penstock.agent.driver.driven_run import DrivenRun
from penstock.agent.driver.driver import MAX_WAIT, Driver, is_due_after_cancel, keep
from penstock.agent.driver.user_code import UserCode
from penstock.errors import UsageError
from penstock.log.start import OwnedRun
from penstock.messages import Message
from penstock.run.events import Done, StreamEvent
from penstock.run.machine import Run
from penstock.run.outbox import Gate
from penstock.transport.threads.forks import after_fork
from penstock.transport.threads.loop_thread import LoopThread, RunLoop, driver_loop

T = TypeVar("T")

_MAX_BLOCKED: float | None = 0.1 if os.name == "nt" else None
"""The seconds that the reader's thread waits at a time: on Windows, Ctrl-C does not interrupt a wait."""

_LOOK_SECONDS = 10.0
"""How many seconds a look at a run waits for its loop, which may be busy with other runs."""


class SyncDriver(Driver):
    """Drives a run that is read in sync code."""

    def __init__(self, config: AgentConfig, run: Run, deps: Any, owned: OwnedRun | None = None) -> None:
        # Nobody sees the events of such a run before its end: it is read on its loop.
        self._is_unseen = not (config.is_read or config.callbacks.are_set or owned is not None)
        self._arrivals: SimpleQueue[None] = SimpleQueue()
        self._user_loop = RunLoop()
        driven = DrivenRun(config, run, deps, owned, UserCode(self._user_loop))
        super().__init__(driven, None if self._is_unseen else self._arrivals)
        self._loop = _UsedLoop()
        self._starting = threading.Lock()  # several threads may want something of a run that has not begun
        self._units = 0  # units that the reader has taken
        self._is_at_gate = False  # the reader gets nothing until the loop has called the gate to which it came
        self._failure: BaseException | None = None  # the error of a gate: the reader gets it

    def start(self) -> None:
        """Begin, on the loop that drives the runs of sync code."""
        if self._has_begun or self._loop.is_inherited:
            return
        with self._starting:
            if not self._loop.was_used:
                self._start()
            elif not self._has_begun:
                raise UsageError("the run was interrupted, or failed, before it began: start another one")

    def _start(self) -> None:
        self._user_loop.attach()
        loop = self._loop.use()
        try:
            entered = loop.begin(self.enter(), copy_context())
        except RuntimeError:  # no thread can be started
            self._loop.leave()
            raise
        try:
            _wait_for(entered)
            entered.result()
        except BaseException:  # the start failed, or Ctrl-C interrupted the wait for it
            entered.stop()
            entered.add_done_callback(self._start_failed)
            raise

    def _start_failed(self, _: Future[Any]) -> None:
        """Nobody reads the run: its start was interrupted or failed, and has ended now."""
        if self._has_begun:
            self.abandon()
        else:
            self._loop.leave()

    # -- what its reader wants -------------------------------------------------------------------------------------

    def call(self, look: Callable[[], T]) -> T:
        """Look at the run, or change it, on its loop: nothing else happens to it meanwhile."""
        if not self._has_begun or self._loop.is_inherited or self._dispatcher.loop.is_here:
            return look()
        result: Future[T] = Future()

        def work() -> None:
            if not result.set_running_or_notify_cancel():
                return  # the caller has looked itself
            try:
                result.set_result(look())
            except BaseException as error:  # noqa: BLE001  # whoever waits for it gets the error
                result.set_exception(error)

        self._dispatcher.loop.call_and_wait(work, _LOOK_SECONDS)
        return look() if result.cancel() else result.result()

    def cancel(self, why: str) -> None:
        if not self._loop.is_inherited:
            super().cancel(why)

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> None:
        self.start()
        self.call(partial(super().decide, call_id, approved, arguments, reason))

    def provide(self, call_id: str, value: Any, is_error: bool) -> None:
        self.start()
        self.call(partial(super().provide, call_id, value, is_error))

    def say(self, message: Message) -> None:
        self.start()
        self.call(partial(super().say, message))

    # -- reading ---------------------------------------------------------------------------------------------------

    def read_events(self, reader: object) -> Iterator[StreamEvent]:
        """The events of the run; the iterator keeps `reader` alive."""
        self._reader.claim()
        return self._read_end() if self._is_unseen else self._read(reader)

    def _read(self, reader: object) -> Iterator[StreamEvent]:
        self.start()
        driven, outbox, view, on_loop = self._driven, self._driven.outbox, self.view, self._dispatcher.loop.call_soon
        has_callbacks = driven.config.callbacks.are_set
        may_be_late = has_callbacks or view is not None  # they hold events that `cancel` cannot drop
        take = outbox.take
        try:
            while True:
                if self._is_at_gate or not outbox.items:
                    self._wait()
                    continue
                was_full, item = outbox.is_full, take()
                self._units += 1
                if was_full and not outbox.is_full:
                    on_loop(self._dispatcher.has_room.set)
                if callable(item):
                    self._is_at_gate = True
                    on_loop(partial(self._reach, item))
                    continue
                events = item or ()
                for event in events if view is None else view.through(events):
                    if has_callbacks:
                        self._call_back(event)
                    if may_be_late and driven.is_cancelled and not is_due_after_cancel(event):
                        continue
                    yield event
                    if type(event) is Done:
                        return
        finally:
            self.close()

    def _wait(self) -> None:
        """Wait until there may be something to read."""
        arrivals = self._arrivals
        while arrivals.qsize():  # those of units that were read already
            arrivals.get()
        if self._failure is not None:
            raise self._failure
        if self._loop.is_inherited:
            raise UsageError("the run began in the parent process, which reads it: start another one in this process")
        if self._driven.outbox.items and not self._is_at_gate:
            return
        if self._driven.run.state.phase == "tools":
            self._dispatcher.loop.call_soon(partial(self._pause, self._units))
        with suppress(Empty):
            arrivals.get(timeout=_MAX_BLOCKED)

    def _pause(self, units: int) -> None:
        """Pause the run if its reader would wait for a decision or a result: it has taken nothing since it asked."""
        if units == self._units:
            self._dispatcher.pause_if_waiting()

    def _reach(self, gate: Gate) -> None:
        """The reader has come to this, and waits for what follows."""
        try:
            gate()
        except BaseException as error:  # noqa: BLE001  # the reader gets it
            self._failure = error
        self._is_at_gate = False
        self._arrived.set()  # also if nothing follows: the run may have to pause

    def _read_end(self) -> Iterator[StreamEvent]:
        """Read the run on its loop, and wait for its end."""
        self.start()
        try:
            self._run(self._drain())
            if self.done is not None:
                yield self.done
        finally:
            self.close()

    async def _drain(self) -> None:
        async for _ in self._events(None):
            pass

    def _call_back(self, event: StreamEvent) -> None:
        """Pass an event to the callbacks of the agent."""
        result = self._driven.config.callbacks.call(event)
        if isawaitable(result):
            called = self._user_loop.begin(result, copy_context())
            _wait_for(called)
            called.result()

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Cancel the run if it has not ended, and wait until its tasks have ended, at most `MAX_WAIT` seconds.

        A run that is detached continues on its loop.
        """
        if self._loop.is_inherited or self._loop.was_left:
            self._is_closed = True
        elif not self._has_begun:
            self._is_closed = True
            self.cancel("the reader closed the run")
        elif self._dispatcher.loop.is_here or self._user_loop.is_here:
            # The garbage collector freed the iterator of the reader here. The end of the run needs this loop.
            self.abandon()
            self._is_closed = True
        else:
            self._run(self.aclose(), 3 * MAX_WAIT)

    async def end(self) -> None:
        await super().end()
        self._loop.leave()

    def end_now(self) -> None:
        """Give the run back, if it has not ended, because the program ends."""
        self._run(self.end(), 3 * MAX_WAIT)

    def abandon(self) -> None:
        if not self._loop.is_inherited:
            super().abandon()

    def _drop(self) -> None:
        super()._drop()
        if not self._is_alone:
            keep(asyncio.get_running_loop().create_task(self.end()))

    def _go_on_alone(self) -> None:
        super()._go_on_alone()
        _detached.add(self)

    def _run(self, work: Coroutine[Any, Any, Any], seconds: float | None = None) -> None:
        """Run this on the loop, and wait for it; not if the loop has ended, with all that is on it."""
        try:
            done = asyncio.run_coroutine_threadsafe(work, self._dispatcher.loop.running)
        except RuntimeError:
            work.close()
            return
        _wait_for(done, seconds)
        if done.done() and not done.cancelled():
            done.result()


class _UsedLoop:
    """The loop of one run in sync code, from the beginning of the run to its end."""

    def __init__(self) -> None:
        self._loop: LoopThread | None = None
        self.is_inherited = False  # the run began before this process was forked: its loop is in the parent process
        self._is_used = False

    @property
    def was_used(self) -> bool:
        """Whether the run has begun."""
        return self._loop is not None

    @property
    def was_left(self) -> bool:
        """Whether the run has ended, and its loop may be gone."""
        return self._loop is not None and not self._is_used

    def use(self) -> LoopThread:
        """The run begins. One that code on the shared loop begins, such as an output validator, has its own loop."""
        self._is_used = True
        _used.add(self)
        self._loop = loop = LoopThread("penstock-driver") if driver_loop.is_here else driver_loop
        if loop is driver_loop:
            driver_loop.enter()
        return loop

    def leave(self) -> None:
        """The run has ended."""
        if self._is_used and self._loop is not None:
            self._is_used = False
            if self._loop is driver_loop:
                driver_loop.leave()
            else:
                self._loop.close()


def _wait_for(future: Future[Any], seconds: float | None = None) -> None:
    """Wait until a future is done, at most this many seconds. Ctrl-C interrupts the wait, also on Windows."""
    end = inf if seconds is None else time.monotonic() + seconds
    while not future.done() and (left := end - time.monotonic()) > 0:
        longest = min(_MAX_BLOCKED or inf, left)
        wait([future], None if longest == inf else longest)


_used: weakref.WeakSet[_UsedLoop] = weakref.WeakSet()  # the loops of all runs that have begun in this process


def _mark_inherited() -> None:
    """Mark the runs of the parent process, in a child."""
    for used in list(_used):
        used.is_inherited = True
    _used.clear()


after_fork(_mark_inherited)

_detached: weakref.WeakSet[SyncDriver] = weakref.WeakSet()  # runs that continue in this process without a reader
after_fork(_detached.clear)  # a child process does not have their loop; its parent gives the runs back


@atexit.register
def _give_back() -> None:
    """Give detached runs back to their stores when the program ends, so that another process can continue them."""
    for driver in list(_detached):
        driver.end_now()
