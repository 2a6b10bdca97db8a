"""A run in async code: the model's answer and every async tool are tasks of the caller's loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

from penstock.errors import AlreadyReadError
from penstock.executions import Cancel, Start
from penstock.happenings import Done, StreamEvent
from penstock.messages import Message
from penstock.run import Ask, Command, Hush, Run, Tell
from penstock.run_view import MAX_AHEAD, RunView
from penstock.settings import Settings
from penstock.work import Work, too_late


class AsyncAgentRun(RunView):
    """A run that is read in async code: `async with agent.astream(...) as run: async for event in run: …`."""

    def __init__(self, settings: Settings, run: Run, deps: Any) -> None:
        super().__init__(settings, run, deps)
        self._out: deque[StreamEvent] = deque()
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        if self._is_read:
            raise AlreadyReadError("a run can be read once: start another, or keep the events in a list")
        self._is_read = True
        return self._events()

    def cancel(self, why: str = "the run was cancelled") -> None:
        """End the run, from whatever thread; every call still gets a result."""
        self._on_loop(lambda: self._carry_out(self._run.cancel(why)))

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = "") -> None:
        """Say yes or no to a call that waits for approval; `arguments` replace those of the model."""
        self._carry_out(self._run.decide(call_id, approved, arguments, reason))

    async def close(self) -> None:
        """End the run if it has not ended, and wait until nothing of it is left."""
        if self.done is None:
            self.cancel("whoever read the run went away")
        if self._deadline is not None:
            self._deadline.cancel()
        left = [task for task in (*self._tasks.values(), self._reader) if task is not None and not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _begin(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        seconds = self._settings.limits.seconds
        if seconds is not None:
            told = f"the run took longer than {seconds:g} seconds"
            self._deadline = self._loop.call_later(seconds, lambda: self._carry_out(self._run.expire(told)))
        self._carry_out(self._run.begin())

    async def _events(self) -> AsyncIterator[StreamEvent]:
        self._begin()
        try:
            while True:
                while self._out:
                    event = self._shown(self._out.popleft())
                    if len(self._out) == MAX_AHEAD // 2:
                        self._has_room.set()
                    called = self._settings.callbacks.call(event)
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
                case Tell():
                    self._out.append(command.event)
                    self._note(command.event)
                case Ask():
                    self._reader = asyncio.create_task(self._read(command.messages))
                case Start():
                    self._tasks[command.key] = asyncio.create_task(self._work(command))
                case Cancel():
                    if command.key in self._tasks:
                        self._tasks[command.key].cancel()
                case Hush():
                    if self._reader is not None:
                        self._reader.cancel()
        self._changed.set()

    def _on_loop(self, happened: Callable[[], None]) -> None:
        """Let this happen on the loop of the run: now, if this is its thread."""
        if self._loop is None or self._thread == threading.get_ident():
            happened()
        else:
            self._loop.call_soon_threadsafe(happened)

    async def _read(self, messages: tuple[Message, ...]) -> None:
        """Read an answer of the model."""
        try:
            async with self._settings.model.astream(list(messages), **self._request()) as stream:
                async for chunk in stream:
                    self._carry_out(self._run.chunk(chunk))
                    if len(self._out) > MAX_AHEAD:  # whoever reads is slow
                        self._has_room.clear()
                        await self._has_room.wait()
        except Exception as error:  # noqa: BLE001  # whatever it was, the run must end, and its reader be told
            self._carry_out(self._failed(error))
        else:
            self._carry_out(self._run.ended())

    async def _work(self, start: Start) -> None:
        """Run a tool."""

        def report(data: Any) -> None:
            self._on_loop(lambda: self._carry_out(self._run.tool_progress(start.key, data)))

        work = Work(self._settings.tools[start.name], start, self._context(start, report))
        try:
            async with asyncio.timeout(start.timeout):
                outcome = await work.perform_async()
        except TimeoutError:
            outcome = too_late(start)
        self._carry_out(self._run.tool_done(start.key, outcome))
