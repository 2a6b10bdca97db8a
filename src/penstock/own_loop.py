"""A loop in a thread of its own, for what has to be awaited where the code itself is plain."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextvars import Context as Variables
from functools import partial
from typing import Any


class OwnLoop:
    """The loop of a run in plain code. All that is awaited there shares it, as it would in async code.

    It is started when it is first needed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    def begin(self, work: Coroutine[Any, Any, Any], variables: Variables) -> Begun:
        """Begin this on the loop, with these context variables."""
        try:
            self._start()
        except RuntimeError:  # there is no thread to be had
            work.close()
            raise
        begun = Begun(self._loop)
        self._loop.call_soon_threadsafe(begun.begin, work, variables)
        return begun

    def close(self) -> threading.Thread | None:
        """End whatever still goes on there, and the loop; its thread, which may take a while."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        return thread

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                is_ready = threading.Event()
                run = partial(asyncio.run, self._main(is_ready))
                thread = threading.Thread(target=run, name="penstock-loop", daemon=True)
                thread.start()
                is_ready.wait()
                self._thread = thread

    async def _main(self, is_ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        is_ready.set()
        await self._stop.wait()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            if not task.cancelling():  # else it is about to end, and may have something to put in order
                task.cancel()
        if left:
            await asyncio.wait(left)


class Begun(Future[Any]):
    """Something on the way on a loop; it can be waited for, and cancelled, from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None
        self._is_unwanted = False

    def begin(self, work: Coroutine[Any, Any, Any], variables: Variables) -> None:
        self._task = self._loop.create_task(work, context=variables)
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

    def _end(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())
