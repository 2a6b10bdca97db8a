"""A run in async code: the model's answer and every async tool are tasks of the caller's loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Self

from penstock.agent.config import AgentConfig
from penstock.agent.run_reader import MAX_AHEAD, MAX_WAIT, PAUSE, RunReader, provided
from penstock.agent.tool_execution import ToolExecution
from penstock.errors import UsageError
from penstock.messages import Message
from penstock.run.commands import AskModel, CancelTool, Command, Emit, StartTool, StopAsking
from penstock.run.events import Done, RequestKind, StreamEvent, ToolProgress
from penstock.run.machine import Run
from penstock.tools.outcome import Outcome, failure


class AsyncAgentRun(RunReader):
    """A run that is read in async code: `async with agent.astream(...) as run: async for event in run: …`."""

    def __init__(self, config: AgentConfig, run: Run, deps: Any) -> None:
        super().__init__(config, run, deps)
        self._out: deque[StreamEvent] = deque()
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._inbox: deque[tuple[str, Any]] = deque()  # progress that threads have reported
        self._tasks: dict[str, asyncio.Task[Outcome]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._reader: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._reading: AsyncIterator[StreamEvent] | None = None  # by `anext`

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        self._claim()
        return self._events()

    async def __anext__(self) -> StreamEvent:
        self._reading = self._reading or aiter(self)
        return await anext(self._reading)

    def cancel(self, why: str = "the run was cancelled") -> None:
        """End the run, from whatever thread; every call still gets a result."""
        self._on_loop(lambda: self._carry_out(self._run.cancel(why)))

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = "") -> None:
        """Say yes or no to a call that waits for approval, from whatever thread; `arguments` replace the model's."""
        check = partial(self._run.expect_decision, call_id, approved, arguments)
        decide = partial(self._run.decide, call_id, approved, arguments, reason)
        self._resolve(call_id, "approval", check, decide)

    def provide(self, call_id: str, value: Any, is_error: bool = False) -> None:
        """Give the result of a call that was deferred, from whatever thread: whatever a tool may return."""
        check = partial(self._run.expect, call_id, "deferred")
        self._resolve(call_id, "deferred", check, lambda: self._run.provide(call_id, provided(value, is_error)))

    async def close(self) -> None:
        """End the run if it has not ended, and wait until nothing of it is left, but not for what does not listen."""
        if self.done is None:
            self.cancel("whoever read the run went away")
        for timer in self._timers.values():
            timer.cancel()
        left = {task for task in (*self._tasks.values(), self._reader) if task is not None and not task.done()}
        left.discard(asyncio.current_task())
        self._tasks.clear()
        self._reader = None
        if left:
            await asyncio.wait(left, timeout=MAX_WAIT)

    def _begin(self) -> None:
        if self._has_begun:
            return
        try:
            self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        except RuntimeError:
            raise UsageError("the run has not begun: enter it first, with `async with`, on its loop") from None
        self._has_begun = True
        self._variables = copy_context()
        self._carry_out(self._run.begin())
        if (seconds := self._config.limits.seconds) is not None:
            self._after("", seconds, self._out_of_time)

    def _resolve(
        self, call_id: str, kind: RequestKind, check: Callable[[], None], answered: Callable[[], list[Command]]
    ) -> None:
        """Somebody answers what the run asked for; of two, the first counts. Whoever is wrong is told at once."""
        self._begin()
        self._check_open()

        def happened() -> None:
            commands = answered()
            self._resolved.add((call_id, kind))
            self._carry_out(commands)

        if self._is_here:
            happened()
        else:
            check()
            self._on_loop(lambda: happened() if self._run.waits_for(call_id, kind) else None)

    async def _events(self) -> AsyncIterator[StreamEvent]:
        self._begin()
        try:
            while True:
                while self._out:
                    event = self._shown(self._out.popleft())
                    if len(self._out) == MAX_AHEAD // 2:
                        self._has_room.set()
                    if self._is_resolved(event):
                        continue
                    called = self._config.callbacks.call(event)
                    if inspect.isawaitable(called):
                        await called
                    yield event
                    if isinstance(event, Done):
                        return
                if self._should_pause:
                    self._carry_out(self._run.pause())
                    continue
                self._changed.clear()
                await self._changed.wait()
        finally:
            await self.close()

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Emit():
                    self._tell(command.event)
                case AskModel():
                    reading = self._read(command.messages)
                    self._reader = asyncio.create_task(reading, context=self._variables.copy())
                    self._reader.add_done_callback(self._was_read)
                case StartTool():
                    self._begin_work(command)
                case CancelTool():
                    self._end_work(command.key)
                case StopAsking():
                    if self._reader is not None:
                        self._reader.cancel()
        self._changed.set()

    def _tell(self, event: StreamEvent) -> None:
        self._note(event)
        if isinstance(event, ToolProgress) and len(self._out) > MAX_AHEAD:
            for at in range(1, len(self._out) + 1):  # from the end, where it will be
                unread = self._out[-at]
                if isinstance(unread, ToolProgress) and unread.key == event.key:
                    self._out[-at] = event
                    return
        self._out.append(event)

    def _on_loop(self, happened: Callable[[], None]) -> None:
        """Let this happen on the loop of the run: now, if this is its thread."""
        if self._is_here or self._loop is None:
            happened()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(happened)

    @property
    def _is_here(self) -> bool:
        """Whether this is the thread of the run's loop."""
        return self._thread == threading.get_ident()

    async def _read(self, messages: tuple[Message, ...]) -> None:
        """Read an answer of the model."""
        try:
            async with self._config.model.astream(list(messages), **self._request()) as stream:
                async for chunk in stream:
                    self._carry_out(self._run.chunk(chunk))
                    await self._room()
            self._carry_out(self._run.ended())
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever it was, its reader must be told
            self._carry_out(self._failed(error))

    def _was_read(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # by somebody else, if the run is not over
            self._carry_out(self._run.cancel("the task that read the answer was cancelled"))

    async def _room(self) -> None:
        """Wait while whoever reads is slow."""
        if len(self._out) > MAX_AHEAD:
            self._has_room.clear()
            await self._has_room.wait()

    def _begin_work(self, start: StartTool) -> None:
        """Run a tool in a task of its own. One that is told to end and does not is left to itself."""

        def report(data: Any) -> None:
            if self._is_here:
                self._carry_out(self._run.tool_progress(start.key, data))
            else:
                self._report_from_thread(start.key, data)

        def expire() -> list[Command]:
            self._end_work(start.key)
            return self._run.tool_late(start.key)

        if start.timeout is not None:
            self._after(start.key, start.timeout, expire)
        work = ToolExecution(self._config.tools[start.name], start, self._context(start, report))
        working = work.run_on_loop(self._room)
        task = self._tasks[start.key] = asyncio.create_task(working, context=self._variables.copy())
        task.add_done_callback(partial(self._worked, start.key))

    def _worked(self, key: str, task: asyncio.Task[Outcome]) -> None:
        if not task.cancelled() and isinstance(task.exception(), KeyboardInterrupt):
            return  # it has ended the loop already
        self._end_work(key)
        self._tasks.pop(key, None)
        outcome = failure(asyncio.CancelledError()) if task.cancelled() else task.result()
        self._carry_out(self._happened(partial(self._run.tool_done, key, outcome)))

    def _end_work(self, key: str) -> None:
        """A tool has ended, or is not wanted any more."""
        if key in self._timers:
            self._timers.pop(key).cancel()
        if key in self._tasks:
            self._tasks[key].cancel()

    def _report_from_thread(self, key: str, data: Any) -> None:
        while len(self._inbox) + len(self._out) > MAX_AHEAD and key in self._tasks:  # whoever reads is slow
            time.sleep(PAUSE)
        if key in self._tasks:
            self._inbox.append((key, data))
            self._on_loop(self._take_in)

    def _take_in(self) -> None:
        key, data = self._inbox.popleft()
        self._carry_out(self._run.tool_progress(key, data))

    def _after(self, key: str, seconds: float, happened: Callable[[], list[Command]]) -> None:
        loop = asyncio.get_running_loop()
        self._timers[key] = loop.call_later(seconds, lambda: self._carry_out(self._happened(happened)))
