"""One execution of a tool function: checks the arguments, calls it, and makes an outcome of its result or error."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing, suppress
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from typing import Any, TypeGuard, TypeVar

from msgspec.structs import replace

from penstock.agent.run_errors import is_interrupt
from penstock.agent.tool_errors import log_raised
from penstock.jsontext.values import deep_copy
from penstock.results import Outcome, as_outcome, failure
from penstock.run.commands import StartTool
from penstock.tools.tool import Context, Tool
from penstock.transport.loop_thread import LoopTask, close_coroutine
from penstock.transport.worker_threads import Work, WorkInOrder, workers

T = TypeVar("T")
Report = Callable[[Any], None]
Room = Callable[[], Awaitable[None]]
Awaited = Awaitable[Any] | AsyncGenerator[Any, Any]


class Cancelled(Exception):
    """Ends a generator whose execution was cancelled."""


class ToolExecution:
    """A call of a tool function with checked arguments. It ends with an `Outcome`, whatever the function does.

    `may_start` is called right before the function. `threads` are those of all plain functions of a run.
    """

    def __init__(
        self,
        tool: Tool[..., Any],
        start: StartTool,
        context: Context[Any],
        may_start: Callable[[], bool] | None = None,
        threads: WorkInOrder | None = None,
    ) -> None:
        self._may_start = may_start
        self._threads = threads or WorkInOrder()
        self._tool = tool
        self._start = start
        self._is_cancelled = threading.Event()
        self._context = replace(context, cancelled=self._is_cancelled.is_set)
        self._awaited: LoopTask | None = None  # the task that its thread waits for

    def cancel(self) -> None:
        """Cancel it, if it can be stopped from another thread: a coroutine or a generator."""
        self._is_cancelled.set()
        if self._awaited is not None:
            self._awaited.stop()

    @property
    def can_stop(self) -> bool:
        """Whether it ends soon after `cancel`, as a coroutine does; a plain function cannot be stopped."""
        return self._awaited is not None

    def begin_thread(self, work: Callable[[], None], variables: Variables) -> Work:
        """Do this in a thread of the run, with these context variables; a `RuntimeError` if none can be started."""
        return self._threads.start(work, f"penstock-{self._start.name}", variables)

    def run_in_thread(self, begin: Callable[[Coroutine[Any, Any, Any]], LoopTask], room: Room) -> Outcome:
        """Run it in this thread; `begin` starts what it returns to be awaited on the loop."""

        def wait_for(value: Awaited) -> Any:
            if self._is_cancelled.is_set():
                close_coroutine(value)
                raise Cancelled("the execution was cancelled")
            self._awaited = begin(_result(value, self._context.report, room))
            if self._is_cancelled.is_set():
                self._awaited.stop()
            try:
                return self._awaited.result()
            finally:
                close_coroutine(value)  # a task that was cancelled before its first step never awaited it

        value = self._plain(self._call)
        while not isinstance(value, Outcome):
            value = self._plain(partial(wait_for, value))
        return value

    async def run_on_loop(self, room: Room) -> Outcome:
        """Run it on this loop, a sync function in a thread; a generator awaits `room` before each report."""
        try:
            value = self._call() if self._tool.is_async else await self._in_thread(self._call)
            while not isinstance(value, Outcome):
                if _is_awaited(value):
                    value = await _result(value, self._context.report, room)
                elif isinstance(value, Generator):
                    value = await self._in_thread(partial(_drained, value, self._report))
                else:
                    value = as_outcome(value)
        except BaseException as error:  # any error of a tool is its result
            if is_from_outside(error):
                raise
            return self._failure(error)
        return value

    def _plain(self, call: Callable[[], Any]) -> Outcome | Awaited:
        """Call this in this thread; returns its outcome, or its result if that must be awaited."""
        try:
            value = call()
            while isinstance(value, Generator):
                value = _drained(value, self._report)
            return value if _is_awaited(value) else as_outcome(value)
        except BaseException as error:  # noqa: BLE001  # any error of a tool is its result
            return self._failure(error)

    def _failure(self, error: BaseException) -> Outcome:
        if not isinstance(error, Cancelled):
            log_raised(self._tool.name, self._tool.function, error)
        return failure(error)

    def _report(self, data: Any) -> None:
        if self._is_cancelled.is_set():
            raise Cancelled("the execution was cancelled")
        self._context.report(data)

    def _call(self) -> Any:
        # A copy, because the history holds the arguments too, and a tool may change them.
        arguments = self._tool.check(deep_copy(self._start.arguments))
        if self._is_cancelled.is_set() or (self._may_start is not None and not self._may_start()):
            raise Cancelled("the execution was cancelled")
        return self._tool.function(**self._tool.with_context(arguments, self._context))

    async def _in_thread(self, call: Callable[[], Any]) -> Outcome | Awaited:
        try:
            return await _from_thread(partial(self._plain, call), self.begin_thread)
        except asyncio.CancelledError:
            self.cancel()
            raise


async def in_own_thread(call: Callable[[], T], name: str) -> T:
    """The result of a blocking call, from a thread of its own; if the waiting task is cancelled, it runs on."""
    return await _from_thread(call, lambda work, variables: in_thread(work, name, variables))


async def _from_thread(call: Callable[[], T], begin: Callable[[Callable[[], None], Variables], object]) -> T:
    """The result of a blocking call, from the thread that `begin` begins."""
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

    begin(run, copy_context())
    return await done


def _for_future(error: BaseException) -> BaseException:
    """The error, or one that a future can hold."""
    return RuntimeError(f"something raised {error!r}") if isinstance(error, StopIteration) else error


def in_thread(work: Callable[[], None], name: str, variables: Variables) -> Work:
    """Run this in a daemon thread, with these context variables."""
    return workers.start(work, f"penstock-{name}", variables)


def _is_awaited(value: Any) -> TypeGuard[Awaited]:
    return isinstance(value, AsyncGenerator) or inspect.isawaitable(value)


def is_from_outside(error: BaseException) -> bool:
    """Whether the task or the program was ended from outside, and not by the user's function itself."""
    if not isinstance(error, asyncio.CancelledError):
        return is_interrupt(error)
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _drained(generator: Generator[Any, Any, Any], report: Report) -> Any:
    """Run a generator to its end and report each value; returns what it returns, or else the last value."""
    last: Any = None
    while True:
        try:
            last = next(generator)
        except StopIteration as stop:
            return last if stop.value is None else stop.value
        report(last)


async def _result(value: Awaited, report: Report, room: Room) -> Any:
    """Await this; of an async generator, report each value when the reader has caught up."""
    if not isinstance(value, AsyncGenerator):
        return await value
    last: Any = None
    async with aclosing(value):
        async for last in value:
            await room()
            report(last)
    return last
