"""One execution of a tool function: checks the arguments, calls it, and makes an outcome of its result or error."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing
from functools import partial
from typing import Any, TypeGuard

import msgspec
from msgspec import Struct

from penstock.agent.calls.tool_exceptions import is_unexpected, log_raised
from penstock.agent.run_errors import as_exception, is_interrupt
from penstock.results import Outcome, as_outcome, failure
from penstock.run.calls.execution import ToolTime
from penstock.run.commands import StartTool
from penstock.tools.tool import Context, Tool
from penstock.transport.threads.worker_threads import in_own_thread

Room = Callable[[], Awaitable[None]]
Awaited = Awaitable[Any] | AsyncGenerator[Any, Any]


class Cancelled(Exception):
    """Ends a generator whose execution was cancelled."""


class ToolClock(Struct, eq=False):
    """When the function of a tool began, in seconds since 1970 and of a monotonic clock, and when it returned."""

    started: float | None = None
    begin: float = 0.0
    end: float | None = None

    @property
    def time(self) -> ToolTime | None:
        """When it ran, until its end or until now; None if it has not begun."""
        end = time.monotonic() if self.end is None else self.end
        return None if self.started is None else ToolTime(self.started, end - self.begin)

    def resume(self) -> None:
        """The function has returned, and its call goes on: an agent runs with the prompt that it returned."""
        self.end = None
        if self.started is None:
            self.started, self.begin = time.time(), time.monotonic()


class ToolExecution(Struct, frozen=True, eq=False):
    """A call of a tool function with checked arguments. It ends with an `Outcome`, whatever the function does.

    `may_start` is called right before the function, which `clock` times. `raised` has an exception of the function that
    is not for the model.
    """

    tool: Tool[..., Any]
    start: StartTool
    context: Context[Any]
    may_start: Callable[[], bool] | None = None
    clock: ToolClock = msgspec.field(default_factory=ToolClock)
    raised: list[Exception] = msgspec.field(default_factory=list)

    def run_in_thread(self, generator: Generator[Any, Any, Any] | None = None) -> Outcome | Awaited:
        """Call the function in this thread, or run the generator that it returned.

        Returns its outcome, or its result if that must be awaited.
        """
        try:
            value = self._call() if generator is None else generator
            while isinstance(value, Generator):
                value = self._drained(value)
            return value if _is_awaited(value) else as_outcome(value)
        except BaseException as error:  # noqa: BLE001  # any error of a tool is its result
            return self._failure(error)
        finally:
            self.clock.end = time.monotonic()  # the last time counts: what it returned may be awaited

    async def run_on_loop(self, room: Room, value: Awaited | None = None) -> Outcome:
        """Call the function on this loop, or await the value that it returned; a plain function is called in a thread.

        A generator awaits `room` before each report.
        """
        try:
            result: Any = value
            if value is None:
                result = self._call() if self.tool.is_async else await in_own_thread(self.run_in_thread, self.tool.name)
            while not isinstance(result, Outcome):
                if inspect.isawaitable(result):
                    result = await result
                elif isinstance(result, AsyncGenerator):
                    result = await self._drained_on_loop(result, room)
                elif isinstance(result, Generator):
                    result = await in_own_thread(partial(self.run_in_thread, result), self.tool.name)
                else:
                    result = as_outcome(result)
        except BaseException as error:  # any error of a tool is its result
            if is_from_outside(error):
                raise
            return self._failure(error)
        finally:
            self.clock.end = time.monotonic()
        return result

    def _call(self) -> Any:
        arguments = self.tool.bind(self.start.arguments, self.context)
        now = time.time(), time.monotonic()
        if self.context.cancelled() or (self.may_start is not None and not self.may_start()):
            raise Cancelled("the execution was cancelled")
        self.clock.started, self.clock.begin = now
        return self.tool.function(**arguments)

    def _drained(self, generator: Generator[Any, Any, Any]) -> Any:
        """Run a generator to its end and report each value; returns what it returns, or else the last value."""
        last: Any = None
        while True:
            try:
                last = next(generator)
            except StopIteration as stop:
                return last if stop.value is None else stop.value
            if self.context.cancelled():
                raise Cancelled("the execution was cancelled")
            self.context.report(last)

    async def _drained_on_loop(self, generator: AsyncGenerator[Any, Any], room: Room) -> Any:
        """Run an async generator to its end; each value is reported when the reader has caught up."""
        last: Any = None
        async with aclosing(generator):
            async for last in generator:
                await room()
                if self.context.cancelled():
                    raise Cancelled("the execution was cancelled")
                self.context.report(last)
        return last

    def _failure(self, error: BaseException) -> Outcome:
        if not isinstance(error, Cancelled) and is_unexpected(error):
            log_raised(f"the tool {self.tool.name}", self.tool.__wrapped__, error)
            self.raised.append(as_exception(error))
        return failure(error)


def is_from_outside(error: BaseException) -> bool:
    """Whether the task or the program was ended from outside, and not by the user's function itself."""
    if not isinstance(error, asyncio.CancelledError):
        return is_interrupt(error)
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_awaited(value: Any) -> TypeGuard[Awaited]:
    return isinstance(value, AsyncGenerator) or inspect.isawaitable(value)
