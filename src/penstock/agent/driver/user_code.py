"""Where the async code of the user runs: the tools, hooks, predicates and guards of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from types import TracebackType
from typing import Any, TypeVar

from penstock.agent.calls.step_tools import StepTools
from penstock.agent.config import AgentConfig
from penstock.transport.threads.loop_thread import CLOSING_SECONDS, RunLoop, result_of
from penstock.transport.threads.worker_threads import in_own_thread

T = TypeVar("T")


class UserCode:
    """Calls the code of the user. An async run awaits it on its own loop.

    A run of sync code awaits it on the loop that sync code shares, and not on the loop that drives it: code that blocks
    must not delay other runs. Functions that are not async are called in threads.
    """

    def __init__(self, loop: RunLoop | None = None) -> None:
        self.loop = loop

    async def call(self, function: Callable[[], Any], name: str, *, is_async: bool) -> Any:
        """The result of a function; one that `is_async` only makes a coroutine, any other is called in a thread."""
        value = function() if is_async else await in_own_thread(function, name)
        return await self.awaited(value) if isawaitable(value) else value

    async def awaited(self, value: Awaitable[Any]) -> Any:
        """The result of this."""
        if self.loop is None:
            return await value
        return await result_of(self.loop.begin(value, copy_context()))

    async def listed(self, tools: StepTools) -> AgentConfig:
        """The configuration for the next step, with the tools that the sources list."""
        if self.loop is None:
            return await tools.alisted()
        return tools.listed() if tools.are_listed else await in_own_thread(tools.listed, "tools")

    def close(self) -> list[asyncio.Future[Any]]:
        """Cancel what is awaited on the shared loop; returns what may take a while to end."""
        left = [] if self.loop is None else self.loop.close()
        return [asyncio.ensure_future(in_own_thread(partial(work.join, CLOSING_SECONDS), "close")) for work in left]


async def in_own_task(work: Coroutine[Any, Any, T]) -> T:
    """The result of this, awaited in its own task: code that cancels its task does not cancel the one that waits."""
    try:
        value, error = await asyncio.create_task(_guarded(work))
    finally:
        work.close()  # a task that was cancelled before its first step never awaited it
    if error is not None:
        raise error
    result: T = value
    return result


async def _guarded(work: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    try:
        return await work, None
    except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:  # which would end the loop, or the task that waits
        return None, error


class LateError(TimeoutError):
    """The code of the user took too long; a `TimeoutError` that it raises itself is not one."""


class StrictTimeout:
    """A time limit that raises `LateError`, also if the code inside swallows its cancellation and returns something."""

    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise LateError from late
        if self._limit.expired() and error is None:
            raise LateError


def strict_timeout(seconds: float | None) -> StrictTimeout:
    """A time limit for the code of the user."""
    return StrictTimeout(asyncio.timeout(seconds))


def is_async(function: Any) -> bool:
    """Whether a function, or the `__call__` of an object, is async: to call it only makes a coroutine."""
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
