"""Event loops in threads, for sync code: one for the user's async tools, callbacks and keys, and one for its runs.

All sync code of a process shares the first one, so that an async client which a tool keeps works in the next run too:
it belongs to the loop on which it was opened. The second one drives the runs. No code of the user is awaited on it, so
that code which blocks delays no other run. Both run until `penstock.close()` or the end of the process.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import Context as Variables
from contextvars import copy_context
from inspect import isawaitable, iscoroutine
from typing import Any, Protocol, TypeVar

from penstock.transport.threads.forks import after_fork

Ended = tuple[Any, BaseException | None]


CLOSING_SECONDS = 1.0
"""How many seconds the end of the process waits for the shared loop."""


class Joinable(Protocol):
    """A thread or a task, for which another thread can wait."""

    def join(self, timeout: float) -> None: ...


class LoopThread:
    """An event loop in a thread of its own. It starts when it is first needed; a `RuntimeError` if it cannot."""

    def __init__(self, name: str) -> None:
        self._name = name  # name of its thread
        self.reset()

    def reset(self) -> None:
        """Start again, also in a child process, which does not have the thread of its parent."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    @property
    def is_here(self) -> bool:
        """Whether this is the thread of the loop, which must not block."""
        return threading.current_thread() is self._thread

    def begin(self, work: Awaitable[Any], variables: Variables) -> LoopTask:
        """Await this on the loop, with these context variables."""
        try:
            with self._lock:
                if self._thread is None:
                    self._start()
                task = LoopTask(self._loop, work)
                self._loop.call_soon_threadsafe(task.begin, variables)
        except RuntimeError:
            close_coroutine(work)
            raise
        return task

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call this on the loop, soon."""
        with self._lock:
            if self._thread is None:
                self._start()
            self._loop.call_soon_threadsafe(callback)

    def close(self) -> threading.Thread | None:
        """Cancel the tasks of the loop and stop it; returns its thread, which may take a while to end."""
        with self._lock:
            return self._stopped()

    def _stopped(self) -> threading.Thread | None:
        """Stop the loop; the lock is held."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        return thread

    def _start(self) -> None:
        started: Future[None] = Future()
        thread = threading.Thread(target=self._run, args=(started,), name=self._name, daemon=True)
        thread.start()
        started.result()
        self._thread = thread

    def _run(self, started: Future[None]) -> None:
        try:
            with asyncio.Runner() as runner:
                main = runner.get_loop().create_task(self._main(started))
                while not main.done():
                    with suppress(RuntimeError):  # a tool stopped the loop, on which others run
                        runner.get_loop().run_until_complete(main)
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


L = TypeVar("L", bound=LoopThread)


class LoopTask(Future[Any]):
    """An awaitable on a loop in another thread, mostly a coroutine; any thread can wait for it or cancel it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Awaitable[Any]) -> None:
        super().__init__()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[Ended] | None = None
        self._is_cancelled = False
        self._thread: threading.Thread | None = None  # the thread of the loop, once it has begun

    def begin(self, variables: Variables) -> None:
        self._thread = threading.current_thread()
        self._task = self._loop.create_task(self._guarded(), context=variables)
        self._task.add_done_callback(self._end)
        if self._is_cancelled:
            self._task.cancel()

    def stop(self) -> None:
        """Cancel it, once: it may have to clean up."""
        if self._is_cancelled:
            return
        self._is_cancelled = True
        try:
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        except RuntimeError:  # the loop is closed, so the task has ended
            pass

    def join(self, timeout: float) -> None:
        """Wait until it has ended, unless this is the thread of its loop."""
        if threading.current_thread() is not self._thread:
            wait([self], timeout)

    async def _guarded(self) -> Ended:
        try:
            return await self._work, None
        except (KeyboardInterrupt, SystemExit) as error:  # which would end the loop and every other task on it
            return None, error

    def _end(self, task: asyncio.Task[Ended]) -> None:
        close_coroutine(self._work)  # a task that was cancelled before its first step never awaited it
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        value: Any = None
        if error is None:
            value, error = task.result()
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(value)


class RunLoop:
    """The event loop for one run: the shared one, and the tasks of the run on it.

    A run that is read on the shared loop itself blocks it, and gets a loop of its own.
    """

    def __init__(self) -> None:
        self.thread: LoopThread = shared_loop
        self._tasks: set[LoopTask] = set()

    @property
    def is_here(self) -> bool:
        """Whether this is the thread of the loop, which must not block."""
        return self.thread.is_here

    def attach(self) -> None:
        """Choose the loop; called by the thread that reads the run."""
        if shared_loop.is_here:
            self.thread = LoopThread("penstock-loop")

    def begin(self, work: Awaitable[Any], variables: Variables) -> LoopTask:
        """Await this on the loop, with these context variables."""
        task = self.thread.begin(work, variables)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: Future[Any]) -> None:
        self._tasks.discard(task)

    def close(self) -> list[Joinable]:
        """Cancel the tasks of the run; returns those that may take a while to end."""
        tasks, self._tasks = list(self._tasks), set()
        for task in tasks:
            task.stop()
        thread = None if self.thread is shared_loop else self.thread.close()
        return [*tasks, *([] if thread is None else [thread])]


async def result_of(task: LoopTask) -> Any:
    """The result of what is awaited on another loop. If the task that waits is cancelled, it is cancelled too."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not done.done():
            done.set_result(None)

    def notify(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # this loop is closed, and nobody waits
            loop.call_soon_threadsafe(settle)

    task.add_done_callback(notify)
    try:
        await done
    except asyncio.CancelledError:
        task.stop()
        raise
    return task.result()


def resolve(value: Any, seconds: float | None = None) -> Any:
    """The value, or the result of an awaitable on the shared event loop; a `TimeoutError` if it is late."""
    if not isawaitable(value):
        return value
    loop = RunLoop()
    loop.attach()
    try:
        return loop.begin(value, copy_context()).result(seconds)
    finally:
        loop.close()


def close_coroutine(work: object) -> None:
    """Close this if it is a coroutine: Python would warn that it was never awaited."""
    if iscoroutine(work):
        work.close()


def process_loop(loop: L) -> L:
    """A loop for all of a process: a child process starts again, and the end of the process closes it."""
    after_fork(loop.reset)

    @atexit.register
    def close() -> None:
        """Let the loop close its async generators and connections."""
        if (thread := loop.close()) is not None:
            thread.join(CLOSING_SECONDS)

    return loop


class DriverLoop(LoopThread):
    """The loop that drives the runs of sync code, and how many runs it drives."""

    def reset(self) -> None:
        super().reset()
        self._runs = 0

    def enter(self) -> None:
        """A run begins."""
        with self._lock:
            self._runs += 1

    def leave(self) -> None:
        """A run has ended."""
        with self._lock:
            self._runs -= 1

    def close_unused(self) -> None:
        """Stop the loop, with its connections, if it drives no run."""
        with self._lock:  # else a run could begin between the check and the end
            if not self._runs:
                self._stopped()


shared_loop = process_loop(LoopThread("penstock-loop"))
driver_loop = process_loop(DriverLoop("penstock-driver"))
