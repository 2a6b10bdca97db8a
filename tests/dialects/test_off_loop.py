"""Calls in text are compared with long conversations without stopping the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from penstock import ToolCall
from penstock.messages import Message, assistant, result, tool_results, user

SIZE = 2 * 1024 * 1024
BUDGET = 0.1
"""The longest stall in seconds. The loop waits for the interpreter, which a thread gives up every 5 ms; others run here."""
LINES = "".join(
    f'    {{"line": {number}, "text": "def f_{number}(x): return [x, \\"a\\", {number}] & x"}},\n'
    for number in range(30_000)
)
READ = ToolCall("c1", "read", {})
TOOL = {"name": "run", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}
CALL = '<tool_call>{"name": "run", "arguments": {"command": "make"}}</tool_call>'


def history() -> list[Message]:
    return [user("Look."), assistant(READ), tool_results(result(READ, LINES[:SIZE])), user("Go on.")]


async def longest_stall(work: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    """The longest time in which the loop did nothing else while the work was done, and its result."""
    stalls: list[float] = []

    async def watch() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            stalls.append(time.perf_counter() - start)

    watcher = asyncio.create_task(watch())
    await asyncio.sleep(0.01)
    outcome = await work()
    watcher.cancel()
    return max(stalls), outcome
