"""An event loop in a thread, for async tools and callbacks of a run in plain code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextvars import Context as Variables
from typing import Any

Ended = tuple[Any, BaseException | None]


class LoopThread:
    """The event loop of a run in plain code, shared by all its async tools and callbacks.

    It starts when it is first needed; a `RuntimeError` if it cannot.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    @property
    def is_here(self) -> bool:
        """Whether this is the thread of the loop, which must not block."""
        return threading.current_thread() is self._thread

    def begin(self, work: Coroutine[Any, Any, Any], variables: Variables) -> LoopTask:
        """Start a coroutine on the loop, with these context variables."""
        try:
            with self._lock:
                if self._thread is None:
                    self._start()
                task = LoopTask(self._loop, work)
                self._loop.call_soon_threadsafe(task.begin, variables)
        except RuntimeError:
            work.close()
            raise
        return task

    def close(self) -> threading.Thread | None:
        """Cancel the tasks of the loop and stop it; returns its thread, which may take a while to end."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._loop.call_soon_threadsafe(self._stop.set)
        return thread

    def _start(self) -> None:
        started: Future[None] = Future()
        thread = threading.Thread(target=self._run, args=(started,), name="penstock-loop", daemon=True)
        thread.start()
        started.result()
        self._thread = thread

    def _run(self, started: Future[None]) -> None:
        try:
            asyncio.run(self._main(started))
        except Exception as error:  # noqa: BLE001  # whoever waits for it gets the error
            if not started.done():
                started.set_exception(RuntimeError(f"the event loop could not be started: {error}"))

    async def _main(self, started: Future[None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        started.set_result(None)
        await self._stop.wait()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            if not task.cancelling():  # else it is being cancelled already, and may have to clean up
                task.cancel()
        if left:
            await asyncio.wait(left)


class LoopTask(Future[Any]):
    """A coroutine that runs on a loop in another thread; any thread can wait for it or cancel it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> None:
        super().__init__()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[Ended] | None = None
        self._is_cancelled = False

    def begin(self, variables: Variables) -> None:
        self._task = self._loop.create_task(self._guarded(), context=variables)
        self._task.add_done_callback(self._end)
        if self._is_cancelled:
            self._task.cancel()

    def stop(self) -> None:
        """Cancel it."""
        self._is_cancelled = True
        try:
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        except RuntimeError:  # the loop is closed, so the task has ended
            pass

    async def _guarded(self) -> Ended:
        try:
            return await self._work, None
        except (KeyboardInterrupt, SystemExit) as error:  # which would end the loop and every other task on it
            return None, error

    def _end(self, task: asyncio.Task[Ended]) -> None:
        self._work.close()  # a task that was cancelled before its first step never awaited it
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        value: Any = None
        if error is None:
            value, error = task.result()
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(value)
