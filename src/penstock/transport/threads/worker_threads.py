"""Threads for the blocking work of sync code: requests, tools, hooks and guards.

A thread that has ended its work waits a while for more. To start one costs more than to wake one, and whoever starts it
has to wait until it runs: on a busy machine that delays the tools of one response one after another.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context as Variables
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from penstock.transport.threads.forks import after_fork

T = TypeVar("T")


class RaisedInThreadError(RuntimeError):
    """A function in a thread raised something that would end whatever waits for it: the `__cause__`.

    Ctrl-C reaches the main thread alone, so a `KeyboardInterrupt` in a worker thread is an error of the function.
    """


MAX_IDLE = 64
"""How many threads may wait for work."""

IDLE_SECONDS = 10.0
"""How many seconds a thread waits for work before it ends."""

IDLE_NAME = "penstock-idle"
"""The name of an idle thread; a busy one has the name of its work."""


class Work:
    """Work for a thread, which begins after `after` has begun. Others can wait for its end, but cannot stop it."""

    def __init__(self, call: Callable[[], None], name: str, variables: Variables, after: Work | None) -> None:
        self._call = call
        self._name = name
        self._variables = variables.copy()
        self._after = after
        self._thread: threading.Thread | None = None  # once it has begun
        self._begun = threading.Lock()  # released when it has begun: an event costs several times as much
        self._ended = threading.Lock()
        self._begun.acquire()
        self._ended.acquire()

    def run(self) -> None:
        """Do it, in this thread. What it raises ends the thread."""
        self._thread = thread = threading.current_thread()
        thread.name = self._name
        if self._after is not None:
            with self._after._begun:
                pass
            self._after = None  # else work would keep all work before it alive
        self._begun.release()
        try:
            self._variables.run(self._call)
        finally:
            del self._call, self._variables  # a thread that waits keeps nothing of its last work alive
            self._ended.release()

    def join(self, timeout: float) -> None:
        """Wait until it has ended, unless this is its thread."""
        if threading.current_thread() is not self._thread and self._ended.acquire(timeout=max(timeout, 0.0)):
            self._ended.release()


class WorkerThreads:
    """The worker threads of this process, and which of them are idle. They are daemon threads.

    A thread may start work while it is inside the lock: the garbage collector may free a run, whose end needs a thread.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start again, also in a child process, which does not have the threads of its parent."""
        self._lock = threading.RLock()
        self._idle: list[SimpleQueue[Work | None]] = []  # where each thread that waits gets its work

    @property
    def idle(self) -> int:
        """How many threads wait for work."""
        return len(self._idle)

    def start(self, call: Callable[[], None], name: str, variables: Variables, after: Work | None = None) -> Work:
        """Let a thread call this, with these context variables; a `RuntimeError` if no thread can be started."""
        work = Work(call, name, variables, after)
        try:
            with self._lock:
                inbox = self._idle.pop()  # the last one that worked: its memory is still cached
        except IndexError:
            threading.Thread(target=self._run, args=(work,), name=name, daemon=True).start()
        else:
            inbox.put(work)
        return work

    def close(self) -> None:
        """End the threads that wait for work."""
        with self._lock:
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _run(self, work: Work | None) -> None:
        inbox: SimpleQueue[Work | None] = SimpleQueue()
        while work is not None:
            work.run()
            work = self._next(inbox)

    def _next(self, inbox: SimpleQueue[Work | None]) -> Work | None:
        """Wait for more work; None if the thread is to end."""
        threading.current_thread().name = IDLE_NAME
        with self._lock:
            if len(self._idle) >= MAX_IDLE:
                return None
            self._idle.append(inbox)
        try:
            return inbox.get(timeout=IDLE_SECONDS)
        except Empty:
            return None if self._leave(inbox) else inbox.get()

    def _leave(self, inbox: SimpleQueue[Work | None]) -> bool:
        """Stop waiting; returns False if work was given to this thread just now."""
        try:
            with self._lock:
                self._idle.remove(inbox)
        except ValueError:
            return False
        return True


workers = WorkerThreads()
after_fork(workers.reset)


def in_thread(work: Callable[[], None], name: str, variables: Variables) -> Work:
    """Run this in a daemon thread, with these context variables; a `RuntimeError` if no thread can be started."""
    return workers.start(work, f"penstock-{name}", variables)


async def in_own_thread(call: Callable[[], T], name: str) -> T:
    """The result of a blocking call, from a thread of its own; if the waiting task is cancelled, it runs on."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not done.done() and error is None:
            done.set_result(value)
        elif not done.done() and error is not None:
            done.set_exception(_for_future(error))

    def run() -> None:
        value, error = None, None
        try:
            value = call()
        except BaseException as failed:  # noqa: BLE001  # whoever waits for it gets it
            error = failed
        with suppress(RuntimeError):  # the loop is closed, and nobody waits for the value
            loop.call_soon_threadsafe(settle, value, error)

    in_thread(run, name, copy_context())
    return await done


def _for_future(error: BaseException) -> BaseException:
    """The error, or one that a future can hold and a task can get."""
    if not isinstance(error, StopIteration | KeyboardInterrupt | GeneratorExit):
        return error
    raised = RaisedInThreadError(f"a function raised {type(error).__name__} in a thread")
    raised.__cause__ = error
    return raised
