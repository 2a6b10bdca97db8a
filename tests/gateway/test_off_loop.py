"""Calls in text are compared with a long conversation in a thread: the event loop goes on.

`python -m tests.gateway.test_off_loop` prints the longest stalls in wall-clock time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock import Healing, Model, ToolCall
from penstock.testing import Scripted
from penstock.testing.response import Response
from tests.asgi_client import serving
from tests.gateways import TOOLS, chat, delta, gateway, sse, upstream

SIZE = 2 * 1024 * 1024
BUDGET = 0.15
"""How many seconds of CPU the loop may use at once: to send 2 MB to the server takes about 0.05."""
LINE = '    {{"line": {0}, "text": "def f_{0}(x): return [x, \\"a\\", {0}] & x"}},\n'
LINES = "".join(LINE.format(number) for number in range(30_000))[:SIZE]
MESSAGES: Any = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": LINES},
    {"role": "user", "content": "Go on."},
]
CALL = '<tool_call>{"name": "shell", "arguments": {"command": "make"}}</tool_call>'
PIECES = [CALL[start : start + 7] for start in range(0, len(CALL), 7)]
BODIES = {
    "in pieces": [sse(delta(content=piece), done=False) for piece in ("So: ", *PIECES)] + [sse(delta("stop"))],
    "in one piece": [sse(delta(content=f"So: {CALL}"), done=False), sse(delta("stop"))],
    "in one read": [sse(delta(content="So: "), delta(content=CALL), delta("stop"))],
}
Answer = Callable[[list[bytes]], Awaitable[int]]


class Reads(Scripted):
    """A connector that sends a body in these reads."""

    def __init__(self, body: list[bytes]) -> None:
        super().__init__("")
        self._body = body

    def _respond(self, command: Any) -> Response:
        return Response(200, {"content-type": "text/event-stream"}, tuple(self._body))


async def through_the_gateway(body: list[bytes]) -> int:
    app = gateway(upstream("", via=Reads(body)))
    async with serving(app) as browser:
        reply = await browser.post("/v1/chat/completions", chat(messages=MESSAGES, tools=TOOLS))
    return reply.body.count(b'"name":"shell"')


async def in_a_model(body: list[bytes], **options: Any) -> int:
    model = Model("vllm:m", "http://server/v1", via=Reads(body))
    async with model.astream(MESSAGES, tools=TOOLS, **options) as stream:
        return len([chunk async for chunk in stream if isinstance(chunk, ToolCall)])


async def in_a_healed_model(body: list[bytes]) -> int:
    return await in_a_model(body, healing=Healing())


async def in_a_model_with_a_dialect(body: list[bytes]) -> int:
    return await in_a_model(body, calls="hermes")


ANSWERS: list[Answer] = [through_the_gateway, in_a_healed_model, in_a_model_with_a_dialect]


async def longest_stall(work: Awaitable[int], clock: Callable[[], float]) -> tuple[float, int]:
    """The longest time of a clock in which the loop did nothing else while the work was done, and its result."""
    stalls: list[float] = []

    async def watch() -> None:
        while True:
            start = clock()
            await asyncio.sleep(0.001)
            stalls.append(clock() - start)

    watcher = asyncio.create_task(watch())
    await asyncio.sleep(0.01)
    calls = await work
    watcher.cancel()
    return max(stalls), calls


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_long_conversation_does_not_stop_the_loop(answer: Answer, body: list[bytes]) -> None:
    stall, calls = asyncio.run(longest_stall(answer(body), time.thread_time))
    assert calls == 1
    assert stall < BUDGET


if __name__ == "__main__":
    for answer in ANSWERS:
        for name, body in BODIES.items():
            begun = time.perf_counter()
            stall, _ = asyncio.run(longest_stall(answer(body), time.perf_counter))
            took = time.perf_counter() - begun
            sys.stdout.write(f"{answer.__name__}, {name}: {stall * 1000:.0f} ms of {took * 1000:.0f}\n")
