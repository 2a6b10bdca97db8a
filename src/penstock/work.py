"""One execution of a tool: its arguments checked, its kind minded, and whatever comes of it an outcome."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing
from contextvars import Context as Variables
from contextvars import copy_context
from copy import deepcopy
from typing import Any

from penstock.execution import Start
from penstock.tool_outcome import Outcome, failure, outcome
from penstock.tools import Context, Tool

Report = Callable[[Any], None]
Room = Callable[[], Awaitable[None]]


class Unwanted(Exception):
    """Ends a generator whose run is over."""


class Work:
    """A tool about to be run with some arguments; it ends in an `Outcome`, whatever the tool does."""

    def __init__(self, tool: Tool[..., Any], start: Start, context: Context[Any]) -> None:
        self._tool = tool
        self._start = start
        self._context = context
        self._is_cancelled = threading.Event()
        self._stop_task: Callable[[], object] | None = None

    def cancel(self) -> None:
        """Nobody wants it any more: what can be stopped from another thread is, a coroutine or a generator."""
        self._is_cancelled.set()
        if self._stop_task is not None:
            try:
                self._stop_task()
            except RuntimeError:  # its loop is closed: it has ended
                pass

    @property
    def can_stop(self) -> bool:
        """Whether it ends soon when it is cancelled, as code on a loop does that listens; a plain function cannot."""
        return self._tool.is_async or self._stop_task is not None

    def perform(self) -> Outcome:
        """Run it in this thread; an async tool gets a loop of its own."""
        return self._outcome(self._call)

    async def perform_async(self, room: Room) -> Outcome:
        """Run it on this loop, or, if it is plain code, in a thread of its own; a generator awaits `room`."""
        try:
            if not self._tool.is_async:
                return await self._in_thread(self.perform)
            value = self._call()
            while True:
                if isinstance(value, AsyncGenerator):
                    value = await _drained_async(value, self._context.report, room)
                elif inspect.isawaitable(value):
                    value = await value
                else:
                    break
            if isinstance(value, Generator):  # which is plain code again
                return await self._in_thread(lambda: self._outcome(lambda: value))
        except BaseException as error:  # whatever a tool does is its result
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # it was cancelled by us, and not by itself
            return failure(error)
        return outcome(value)

    def _outcome(self, call: Callable[[], Any]) -> Outcome:
        """What a call in this thread comes to: whatever it gives is awaited or drained, until it is a plain value."""
        try:
            value = call()
            while True:
                if isinstance(value, AsyncGenerator):
                    value = asyncio.run(self._on_loop(_drained_async(value, self._report, _no_wait)))
                elif inspect.isawaitable(value):
                    value = asyncio.run(self._on_loop(value))
                elif isinstance(value, Generator):
                    value = _drained(value, self._report)
                else:
                    return outcome(value)
        except BaseException as error:  # noqa: BLE001  # whatever a tool does is its result
            return failure(error)

    async def _on_loop(self, work: Awaitable[Any]) -> Any:
        """Wait for something on this loop, which is its own, such that it can be cancelled from another thread."""
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        self._stop_task = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._is_cancelled.is_set():
            task.cancel()
        return await task

    def _report(self, data: Any) -> None:
        if self._is_cancelled.is_set():
            raise Unwanted("nobody wants the result any more")
        self._context.report(data)

    def _call(self) -> Any:
        # A copy, because the history holds the arguments too, and a tool may change what it is given.
        arguments = self._tool.check(deepcopy(self._start.arguments))
        return self._tool.function(**self._tool.bound(arguments, self._context))

    async def _in_thread(self, work: Callable[[], Outcome]) -> Outcome:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Outcome] = loop.create_future()

        def settle(outcome: Outcome) -> None:
            if not done.done():
                done.set_result(outcome)

        def run() -> None:
            outcome = work()
            try:
                loop.call_soon_threadsafe(settle, outcome)
            except RuntimeError:  # the loop is gone, and with it whoever wanted to know
                pass

        in_thread(run, self._start.name, copy_context())
        try:
            return await done
        except asyncio.CancelledError:
            self.cancel()
            raise


def in_thread(work: Callable[[], None], name: str, variables: Variables) -> threading.Thread:
    """Run this in a thread, with these context variables; one that never ends does not keep the process alive."""
    thread = threading.Thread(target=variables.copy().run, args=(work,), name=f"penstock-{name}", daemon=True)
    thread.start()
    return thread


def _drained(generator: Generator[Any, Any, Any], report: Report) -> Any:
    """What a generator comes to: what it returns, or else the last thing that it yields; the rest is progress."""
    last: Any = None
    has_last = False
    while True:
        try:
            value = next(generator)
        except StopIteration as stop:
            if stop.value is None:
                return last
            if has_last:
                report(last)
            return stop.value
        if has_last:
            report(last)
        last, has_last = value, True


async def _drained_async(generator: AsyncGenerator[Any, Any], report: Report, room: Room) -> Any:
    """The same of an async generator; before each report it awaits room for it."""
    last: Any = None
    has_last = False
    async with aclosing(generator):
        async for value in generator:
            if has_last:
                await room()
                report(last)
            last, has_last = value, True
    return last


async def _no_wait() -> None:
    """Room where `report` itself waits."""
