"""Long work of async code, in a thread: the event loop goes on with other tasks meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run_off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a function that takes long. A task that is cancelled ends when the function has ended.

    Nothing that the function uses is closed while it runs.
    """
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
