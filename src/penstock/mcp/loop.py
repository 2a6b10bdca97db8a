"""The event loop of all MCP connections of a process, in a thread of its own.

A connection outlives the run that opened it, serves plain and async runs side by side, and must be closed by the task
that opened it. User code never runs here, so that a tool that blocks its loop does not stall a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from penstock.errors import UsageError
from penstock.transport.threads.loop_thread import LoopThread, process_loop

T = TypeVar("T")

mcp_loop = process_loop(LoopThread("penstock-mcp"))


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run this on the loop, and wait for its result in this thread."""
    if mcp_loop.is_here:
        work.close()
        raise UsageError("this blocks the event loop of the MCP connections: use the async form")
    task = mcp_loop.begin(work, copy_context())
    try:
        result: T = task.result()
    except BaseException:
        task.stop()  # Ctrl-C came
        raise
    return result


async def run_on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run this on the loop, and await its result here; cancelling the one cancels the other."""
    if mcp_loop.is_here:
        return await work
    here = asyncio.get_running_loop()
    ended: asyncio.Future[None] = here.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    def notify(_: object) -> None:
        try:
            here.call_soon_threadsafe(end)
        except RuntimeError:  # the loop is closed, and nobody waits
            pass

    task = mcp_loop.begin(work, copy_context())
    task.add_done_callback(notify)
    try:
        await ended
    except asyncio.CancelledError:
        task.stop()
        raise
    result: T = task.result()
    return result
