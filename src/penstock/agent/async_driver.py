"""The driver of a run in async code: the model and every tool have a task on the caller's event loop."""

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
from penstock.agent.run_reader import MAX_WAIT, PAUSE, RunReader, provided
from penstock.agent.timers import Timers
from penstock.agent.tool_execution import ToolExecution
from penstock.errors import UsageError
from penstock.messages import Message
from penstock.run.commands import AskModel, CancelTool, Command, Emit, StartTool, StopAsking
from penstock.run.events import Done, RequestKind, StreamEvent
from penstock.run.machine import Run
from penstock.run.outbox import MAX_AHEAD
from penstock.tools.outcome import Outcome, failure


class AsyncAgentRun(RunReader):
    """A run that is read in async code: `async with agent.astream(...) as run: async for event in run: …`."""

    def __init__(self, config: AgentConfig, run: Run, deps: Any) -> None:
        super().__init__(config, run, deps)
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._inbox: deque[tuple[str, Any]] = deque()  # progress that threads have reported
        self._tools: dict[str, asyncio.Task[Outcome]] = {}
        self._timers = Timers()
        self._model_task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._events: AsyncIterator[StreamEvent] | None = None  # for `anext`

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        self._claim()
        return self._read_events()

    async def __anext__(self) -> StreamEvent:
        self._events = self._events or aiter(self)
        return await anext(self._events)

    def cancel(self, why: str = "the run was cancelled") -> None:
        """End the run, from any thread; every call still gets a result."""
        self._on_loop(lambda: self._carry_out(self._run.cancel(why)))

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = "") -> None:
        """Approve or decline a call that waits for approval, from any thread; `arguments` replace the model's."""
        check = partial(self._run.expect_decision, call_id, approved, arguments)
        decide = partial(self._run.decide, call_id, approved, arguments, reason)
        self._resolve(call_id, "approval", check, decide)

    def provide(self, call_id: str, value: Any, is_error: bool = False) -> None:
        """Give the result of a deferred call, from any thread: anything that a tool may return."""
        check = partial(self._run.expect, call_id, "deferred")
        self._resolve(call_id, "deferred", check, lambda: self._run.provide(call_id, provided(value, is_error)))

    async def close(self) -> None:
        """Cancel the run if it has not ended, and wait until its tasks have ended, at most `MAX_WAIT` seconds."""
        if self.done is None:
            self.cancel("the reader closed the run")
        self._timers.close()
        left = {task for task in (*self._tools.values(), self._model_task) if task is not None and not task.done()}
        left.discard(asyncio.current_task())
        self._tools.clear()
        self._model_task = None
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
            self._timers.start("", seconds, partial(self._happened, self._expired))

    def _resolve(
        self, call_id: str, kind: RequestKind, check: Callable[[], None], answer: Callable[[], list[Command]]
    ) -> None:
        """Carry out the answer to a request of the run; of two answers the first counts. A wrong one raises here."""
        self._begin()
        self._check_open()

        def resolve() -> None:
            commands = answer()
            self._outbox.withdraw(call_id, kind)
            self._carry_out(commands)

        if self._is_here:
            resolve()
        else:
            check()
            self._on_loop(lambda: resolve() if self._run.waits_for(call_id, kind) else None)

    # -- the reader ------------------------------------------------------------------------------------------------

    async def _read_events(self) -> AsyncIterator[StreamEvent]:
        self._begin()
        outbox, line_breaks, callbacks = self._outbox, self._line_breaks, self._config.callbacks
        has_callbacks = callbacks.are_set
        try:
            while True:
                while not outbox.units:
                    if self._should_pause:
                        self._carry_out(self._run.pause())
                    else:
                        self._arrived.clear()
                        await self._arrived.wait()
                was_full, events = outbox.is_full, outbox.take()
                if was_full and not outbox.is_full:
                    self._has_room.set()
                for event in events:
                    if line_breaks is not None:
                        event = line_breaks.feed(event)
                    if has_callbacks and inspect.isawaitable(result := callbacks.call(event)):
                        await result
                    yield event
                    if type(event) is Done:
                        return
        finally:
            await self.close()

    # -- the machine -----------------------------------------------------------------------------------------------

    def _happened(self, step: Callable[[], list[Command]]) -> None:
        """Tell the machine what happened, and carry out what follows."""
        self._carry_out(self._guarded(step))

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Emit():
                    self._outbox.put(command.events)
                    self._arrived.set()
                    if isinstance(last := command.events[-1], Done):
                        self._remember(last)
                case AskModel():
                    reading = self._read_model(command.messages)
                    self._model_task = asyncio.create_task(reading, context=self._variables.copy())
                    self._model_task.add_done_callback(self._model_was_read)
                case StartTool():
                    self._start_tool(command)
                case CancelTool():
                    self._stop_tool(command.key)
                case StopAsking():
                    if self._model_task is not None:
                        self._model_task.cancel()

    def _on_loop(self, callback: Callable[[], None]) -> None:
        """Call this on the loop of the run: now, if this is its thread."""
        if self._is_here or self._loop is None:
            callback()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    @property
    def _is_here(self) -> bool:
        """Whether this is the thread of the run's loop."""
        return self._thread == threading.get_ident()

    async def _read_model(self, messages: tuple[Message, ...]) -> None:
        run, outbox = self._run, self._outbox
        try:
            async with self._config.model.astream(list(messages), **self._request()) as stream:
                async for chunks in stream.batches():
                    self._carry_out(run.chunks(chunks))
                    if outbox.is_full:
                        await self._room()
            self._carry_out(run.ended())
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever it was, the reader gets it
            self._carry_out(self._failed(error))

    def _model_was_read(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # by somebody else, if the run is not over
            self._carry_out(self._run.cancel("the task that read the answer was cancelled"))

    async def _room(self) -> None:
        """Wait until the reader has caught up."""
        while self._outbox.is_full:
            self._has_room.clear()
            await self._has_room.wait()

    # -- the tools -------------------------------------------------------------------------------------------------

    def _start_tool(self, start: StartTool) -> None:
        """Run a tool in a task of its own. One that is cancelled and does not end is left alone."""
        if start.timeout is not None:
            self._timers.start(start.key, start.timeout, partial(self._happened, partial(self._late, start.key)))
        context = self._context(start, partial(self._report, start.key))
        running = ToolExecution(self._config.tools[start.name], start, context).run_on_loop(self._room)
        task = self._tools[start.key] = asyncio.create_task(running, context=self._variables.copy())
        task.add_done_callback(partial(self._tool_ended, start.key))

    def _report(self, key: str, data: Any) -> None:
        """Pass on the progress of a tool; in a thread, when the reader has caught up."""
        if self._is_here:
            self._carry_out(self._run.tool_progress(key, data))
            return
        while key in self._tools and (self._outbox.is_full or len(self._inbox) + self._outbox.unread > MAX_AHEAD):
            time.sleep(PAUSE)
        if key in self._tools:
            self._inbox.append((key, data))
            self._on_loop(self._take_in)

    def _take_in(self) -> None:
        self._carry_out(self._run.tool_progress(*self._inbox.popleft()))

    def _late(self, key: str) -> list[Command]:
        self._stop_tool(key)
        return self._run.tool_late(key)

    def _tool_ended(self, key: str, task: asyncio.Task[Outcome]) -> None:
        if not task.cancelled() and isinstance(task.exception(), KeyboardInterrupt):
            return  # it has ended the loop already
        self._stop_tool(key)
        self._tools.pop(key, None)
        outcome = failure(asyncio.CancelledError()) if task.cancelled() else task.result()
        self._happened(partial(self._run.tool_done, key, outcome))

    def _stop_tool(self, key: str) -> None:
        """Forget a tool that has ended, or cancel it."""
        self._timers.cancel(key)
        if key in self._tools:
            self._tools[key].cancel()
