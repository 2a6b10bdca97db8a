"""Long work of async code, in a thread: the event loop goes on with other tasks meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

TURN: ContextVar[Callable[[], AbstractAsyncContextManager[None]] | None] = ContextVar("TURN", default=None)
"""Waits for a turn before long work begins: a server sets it for each request, so that no client has all threads."""


async def run_off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a function that takes long. A task that is cancelled ends when the function has ended.

    Nothing that the function uses is closed while it runs.
    """
    turn = TURN.get()
    if turn is None:
        return await _run(function, *args, **kwargs)
    async with turn():
        return await _run(function, *args, **kwargs)


async def _run(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError:
                continue
        if not work.cancelled():
            work.exception()  # it is nobody's any more
        raise
    finally:
        del work  # an error in it has this frame in its traceback: what was worked on would stay in memory
