"""The drivers of a run that is started or followed by its id in a log: `agent.stream(..., log=store, run_id=…)`.

First the reader gets from the log what happened before, or happens in another process. When this process owns the run,
an ordinary driver continues it. Until then, what the reader wants of the run goes to its owner through the store.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext, suppress
from inspect import isawaitable
from typing import Any, Generic, TypeVar

from penstock.agent.config import AgentConfig
from penstock.agent.driver.driven_run import DrivenRun
from penstock.agent.driver.driver import Driver
from penstock.agent.driver.sync_driver import SyncDriver
from penstock.agent.reader_view import OneReader, reader_view, through_view
from penstock.agent.run_errors import logged_error
from penstock.errors import UsageError
from penstock.log.ending import release_claimed
from penstock.log.follow import ringing, wait_for_ring
from penstock.log.follower import MAX_WAIT, Follower, LoggedStart, Settings
from penstock.log.inputs import cancel_input, decision_input, message_input, result_input
from penstock.log.store import Input, StoreError
from penstock.log.store_retries import awith_retries, with_retries
from penstock.messages import Message
from penstock.output.partial import PartialView
from penstock.run.events import Done, StreamEvent
from penstock.run.machine import Run
from penstock.transport.threads.loop_thread import resolve


class RemoteOwner:
    """Leaves what the reader wants in the store, for whichever process owns the run."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def cancel(self, why: str) -> None:
        self._put(cancel_input(self._follower.run_id, why))

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> None:
        self._answer(decision_input(self._follower.run_id, call_id, approved, arguments, reason))

    def provide(self, call_id: str, value: Any, is_error: bool) -> None:
        self._answer(result_input(self._follower.run_id, call_id, value, is_error))

    def say(self, message: Message) -> None:
        self._put(message_input(self._follower.run_id, message))

    def _answer(self, answer: Input) -> None:
        if not self._put(answer):
            raise UsageError(f"the call {answer.key!r} was answered already, and only the first answer counts")

    def _put(self, input: Input) -> bool:
        """Leave an input; False if there was one like it, as a second cancel. Either way, the owner takes the first."""
        if self._follower.run.state.is_over:
            raise UsageError("the run is over")
        return self._follower.store.put(input)


D = TypeVar("D", SyncDriver, Driver)
T = TypeVar("T")


class LoggedDriver(Generic[D]):
    """What both drivers share; `owner` drives the run when this process owns it."""

    owner: D | None
    has_log = True

    def __init__(self, config: AgentConfig, start: LoggedStart, deps: Any) -> None:
        pauses = config.approvals == "pause"
        settings = Settings(config.policies, config.limits, config.run_repaired, config.output, pauses)
        self.run_id = start.row.id
        self.owner = None
        self._follower = Follower(start, settings)
        self._config = config
        self._deps = deps
        self._view = reader_view(config)
        self._reader = OneReader()
        self._is_open = False
        self._is_closed = False
        self._is_detached = False

    @property
    def run(self) -> Run:
        """The run as the log has it."""
        return self._follower.run

    @property
    def done(self) -> Done | None:
        """The end, if the reader has got it."""
        return self._follower.done or (self.owner.done if self.owner else None)

    @property
    def errors(self) -> tuple[Exception | None, tuple[Exception, ...]]:
        """The exception of a request that failed, and those of tools in this process that are not `ToolError`s."""
        if self.owner is not None:
            return self.owner.errors
        done, error = self._follower.done, self.run.state.error
        return logged_error(error) if done and done.reason == "error" and error else None, ()

    def dump(self) -> bytes:
        """The run as JSON."""
        return self.run.dump() if self.owner is None else self.owner.dump()

    def fold(self) -> None:
        """Bring the history up to what the reader has read."""
        if self.owner is not None:
            self.owner.fold()

    def detach(self) -> None:
        """Let the run continue when its reader leaves."""
        self._is_detached = True
        if self.owner is not None:
            self.owner.detach()

    def cancel(self, why: str) -> None:
        """End the run, or ask its owner to end it."""
        self._steered().cancel(why)

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> None:
        """Approve or decline a call."""
        self._steered().decide(call_id, approved, arguments, reason)

    def provide(self, call_id: str, value: Any, is_error: bool) -> None:
        """Give the result of a deferred call."""
        self._steered().provide(call_id, value, is_error)

    def say(self, message: Message) -> None:
        """Add a message."""
        self._steered().say(message)

    def _begin(self) -> None:
        """Begin the run, if it has not begun."""
        raise NotImplementedError

    def _steered(self) -> D | RemoteOwner:
        """What carries out what the reader wants: the driver, unless there is none, or its run waits in the store."""
        self._begin()
        is_paused = self.done is not None and self.done.reason == "paused" and not self.run.state.is_over
        return RemoteOwner(self._follower) if is_paused or self.owner is None else self.owner

    def _prepare(self, driver: D) -> D:
        """Let a driver continue what the reader has read so far."""
        driver.view = self._view
        if self._is_detached:
            driver.detach()
        return driver

    def _release(self) -> None:
        """Release a run that cannot be driven here, such as a fork with an unknown model: nobody renews its lease."""
        if self._follower.owned is not None:
            with suppress(StoreError):
                release_claimed(self._follower.store, self._follower.owned.claim)

    @property
    def partial(self) -> PartialView | None:
        """The structured output so far."""
        return None if self._view is None else self._view.partial


class LoggedSyncDriver(LoggedDriver[SyncDriver]):
    """Starts or follows a run with a log in sync code."""

    def __init__(self, config: AgentConfig, start: LoggedStart, deps: Any) -> None:
        super().__init__(config, start, deps)
        self._lock = threading.RLock()

    def call(self, look: Callable[[], T]) -> T:
        """Look at the run while nothing happens to it."""
        if self.owner is not None:
            return self.owner.call(look)
        with self._lock:
            return look()

    def start(self) -> None:
        """Start the run, or find it."""
        with self._lock:
            if not self._is_open:
                self._follower.open()
                self._is_open = True
                self._drive()

    def _begin(self) -> None:
        self.start()

    def _drive(self) -> None:
        """Continue the run, if this process owns it by now."""
        if self.owner is None and self._follower.owned is not None:
            try:
                driver = SyncDriver(self._config, self.run, self._deps, self._follower.owned)
            except BaseException:
                self._release()
                raise
            self.owner = self._prepare(driver)
            driver.start()

    def read_events(self, reader: object) -> Iterator[StreamEvent]:
        """The events of the run; the iterator keeps `reader` alive."""
        self._reader.claim()
        if self.owner is not None and not self._follower.has_more:
            return self.owner.read_events(reader)
        return self._events(reader)

    def _events(self, reader: object) -> Iterator[StreamEvent]:
        """The events of the log, and then those of the driver."""
        self.start()
        try:
            while self._follower.has_more and not self._is_closed:
                events = with_retries(self._follower.next_events)
                self._drive()
                for event in through_view(self._view, events):
                    resolve(self._config.callbacks.call(event))
                    yield event
                if not events and self.owner is None:
                    with_retries(self._follower.wait)
            if self.owner is not None:
                yield from self.owner.read_events(None)
        finally:
            self.close()

    def close(self) -> None:
        """Leave the run: see `SyncDriver.close`. One that another process owns continues there."""
        self._is_closed = True
        if self.owner is not None:
            self.owner.close()

    def abandon(self) -> None:
        """Nobody can read the run any more."""
        if self.owner is not None:
            self.owner.abandon()


class LoggedAsyncDriver(LoggedDriver[Driver]):
    """Starts or follows a run with a log in async code; the store is used in threads."""

    def __init__(self, config: AgentConfig, start: LoggedStart, deps: Any) -> None:
        super().__init__(config, start, deps)
        self._opening = asyncio.Lock()

    def call(self, look: Callable[[], T]) -> T:
        """Look at the run."""
        return look()

    async def enter(self) -> None:
        """Start the run, or find it."""
        async with self._opening:
            if not self._is_open:
                await asyncio.to_thread(self._follower.open)
                self._is_open = True
                await self._drive()

    def _begin(self) -> None:
        if not self._is_open:
            raise UsageError("the run has not begun: enter it first, with `async with`")

    async def _drive(self) -> None:
        """Continue the run, if this process owns it by now."""
        if self.owner is None and self._follower.owned is not None:
            try:
                driver = Driver(DrivenRun(self._config, self.run, self._deps, self._follower.owned))
            except BaseException:
                await asyncio.to_thread(self._release)
                raise
            self.owner = self._prepare(driver)
            await driver.enter()

    def aread_events(self, reader: object) -> AsyncIterator[StreamEvent]:
        """The events of the run; the iterator keeps `reader` alive."""
        self._reader.claim()
        if self.owner is not None and not self._follower.has_more:
            return self.owner.aread_events(reader)
        return self._events(reader)

    async def _events(self, reader: object) -> AsyncIterator[StreamEvent]:
        """The events of the log, and then those of the driver."""
        await self.enter()
        store = self._follower.store
        try:
            with ringing(store, self.run_id) if self.owner is None else nullcontext(asyncio.Event()) as bell:
                while self._follower.has_more and not self._is_closed:
                    bell.clear()
                    events = await awith_retries(self._follower.next_events)
                    await self._drive()
                    for event in through_view(self._view, events):
                        if isawaitable(result := self._config.callbacks.call(event)):
                            await result
                        yield event
                    if not events and self.owner is None:
                        await wait_for_ring(bell, min(store.poll, MAX_WAIT))
            if self.owner is not None:
                async for event in self.owner.aread_events(None):
                    yield event
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Leave the run: see `Driver.aclose`. One that another process owns continues there."""
        self._is_closed = True
        if self.owner is not None:
            await self.owner.aclose()

    def abandon(self) -> None:
        """Nobody can read the run any more."""
        if self.owner is not None:
            self.owner.abandon()
