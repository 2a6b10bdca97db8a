"""One execution of a tool: its arguments checked, its kind minded, and whatever comes of it an outcome."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import copy_context
from typing import Any

from penstock.executions import Outcome, Start, words
from penstock.tools import Context, Tool, failure, outcome

Report = Callable[[Any], None]


class Work:
    """A tool about to be run with some arguments; it ends in an `Outcome`, whatever the tool does."""

    def __init__(self, tool: Tool[..., Any], start: Start, context: Context[Any]) -> None:
        self._tool = tool
        self._start = start
        self._context = context

    def perform(self) -> Outcome:
        """Run it in this thread; an async tool gets a loop of its own."""
        try:
            value = self._call()
            if isinstance(value, AsyncGenerator):
                value = asyncio.run(_drained_async(value, self._context.report))
            elif asyncio.iscoroutine(value):
                value = asyncio.run(value)
            elif isinstance(value, Generator):
                value = _drained(value, self._context.report)
        except BaseException as error:  # noqa: BLE001  # whatever a tool does is its result
            return _ended(failure(error))
        return _ended(outcome(value))

    async def perform_async(self) -> Outcome:
        """Run it on this loop, or, if it is plain code, in a thread of its own."""
        if not self._tool.is_async:
            return await self._in_thread()
        try:
            value = self._call()
            value = await (_drained_async(value, self._context.report) if self._tool.is_generator else value)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # whatever a tool does is its result
            return _ended(failure(error))
        return _ended(outcome(value))

    def _call(self) -> Any:
        arguments = self._tool.check(self._start.arguments)
        return self._tool.function(**self._tool.bound(arguments, self._context))

    async def _in_thread(self) -> Outcome:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Outcome] = loop.create_future()

        def settle(outcome: Outcome) -> None:
            if not done.done():
                done.set_result(outcome)

        def run() -> None:
            outcome = self.perform()
            try:
                loop.call_soon_threadsafe(settle, outcome)
            except RuntimeError:  # the loop is gone, and with it whoever wanted to know
                pass

        in_thread(run, self._start.name)
        return await done


def in_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """Run this in a thread, with the context variables of here; one that never ends does not keep the process alive."""
    thread = threading.Thread(target=copy_context().run, args=(work,), name=f"penstock-{name}", daemon=True)
    thread.start()
    return thread


def too_late(start: Start) -> Outcome:
    """The outcome of a tool that took too long."""
    return words(f"The tool took longer than {start.timeout:g} seconds and was given up; it may have had an effect.")


def _ended(found: Any) -> Outcome:
    return Outcome(found.content, found.data, found.is_error, "failed" if found.is_error else "done")


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


async def _drained_async(generator: AsyncGenerator[Any, Any], report: Report) -> Any:
    last: Any = None
    has_last = False
    async for value in generator:
        if has_last:
            report(last)
        last, has_last = value, True
    return last
