"""A loop in a thread of its own, for what has to be awaited where the code itself is plain."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextvars import Context as Variables
from typing import Any

Ended = tuple[Any, BaseException | None]


class LoopThread:
    """The loop of a run in plain code. All that is awaited there shares it, as it would in async code.

    It is started when it is first needed; a `RuntimeError` says that there is none to be had.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    @property
    def is_here(self) -> bool:
        """Whether this is its thread, in which nothing may wait."""
        return threading.current_thread() is self._thread

    def begin(self, work: Coroutine[Any, Any, Any], variables: Variables) -> LoopTask:
        """Begin this on the loop, with these context variables."""
        try:
            with self._lock:
                if self._thread is None:
                    self._start()
                begun = LoopTask(self._loop, work)
                self._loop.call_soon_threadsafe(begun.begin, variables)
        except RuntimeError:
            work.close()
            raise
        return begun

    def close(self) -> threading.Thread | None:
        """End whatever still goes on there, and the loop; its thread, which may take a while."""
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
        except Exception as error:  # noqa: BLE001  # whoever waits for it must be told
            if not started.done():
                started.set_exception(RuntimeError(f"there is no loop to be had: {error}"))

    async def _main(self, started: Future[None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        started.set_result(None)
        await self._stop.wait()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            if not task.cancelling():  # else it is about to end, and may have something to put in order
                task.cancel()
        if left:
            await asyncio.wait(left)


class LoopTask(Future[Any]):
    """Something on the way on a loop; it can be waited for, and cancelled, from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> None:
        super().__init__()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[Ended] | None = None
        self._is_unwanted = False

    def begin(self, variables: Variables) -> None:
        self._task = self._loop.create_task(self._guarded(), context=variables)
        self._task.add_done_callback(self._end)
        if self._is_unwanted:
            self._task.cancel()

    def stop(self) -> None:
        """Cancel it."""
        self._is_unwanted = True
        try:
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        except RuntimeError:  # the loop is closed: it has ended
            pass

    async def _guarded(self) -> Ended:
        try:
            return await self._work, None
        except (KeyboardInterrupt, SystemExit) as error:  # which would end the loop, and all that shares it
            return None, error

    def _end(self, task: asyncio.Task[Ended]) -> None:
        self._work.close()  # one that was cancelled before its first step was never awaited
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        value: Any = None
        if error is None:
            value, error = task.result()
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(value)
