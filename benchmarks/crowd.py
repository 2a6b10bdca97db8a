"""Many streams at once: what `Model.astream` costs a chunk beside raw aiohttp on the same bytes, and how late it is.

Each client has all of its streams open at one time. They take turns: for a moment only the streams of one advance, then
those of the next, so that whatever else the machine does slows them alike. Runs as a process of its own, which prints a
line of JSON: for each client the CPU time, how late the loop was with other work, and how many streams did not come
whole. A peer's client runs in the environment of that peer, so each imports what it needs itself.

    python -m benchmarks.crowd PORT STREAMS CHUNKS CLIENT...
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, redirect_stdout
from typing import Any

from benchmarks.content import words
from benchmarks.crowd_server import GROUPS
from benchmarks.streams import Stream, openai_chat_text

LIMIT = 300  # seconds for all; then the process ends by SIGALRM
INTERVAL = 0.01  # seconds between two ticks
GATE = 50  # requests that are sent at once
TURN = 8  # frames of each stream, before it is another client's turn
PAUSE = 0.05  # seconds at the end of a turn, in which what is under way comes in
JOB = 0.004  # seconds between the small jobs by which the lag is measured
MODEL = "gpt-4o"
MESSAGES: Any = [{"role": "user", "content": "Go on."}]

Ask = Callable[[], Awaitable[bool]]
"""Ask once, and read the answer; whether all of it came."""
Client = Callable[[str, Stream], AbstractAsyncContextManager[Ask]]


@asynccontextmanager
async def aiohttp_alone(url: str, stream: Stream) -> AsyncIterator[Ask]:
    """The transport, and nothing else: the bytes are counted and thrown away."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0)
    size = len(stream.body)

    async def ask() -> bool:
        count = 0
        async with session.post(f"{url}/chat/completions", json={"model": MODEL, "messages": MESSAGES}) as response:
            async for data in response.content.iter_any():
                count += len(data)
        return count == size

    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        yield ask


@asynccontextmanager
async def penstock_astream(url: str, stream: Stream) -> AsyncIterator[Ask]:
    import penstock

    model = penstock.Model(f"openai-compatible:{MODEL}", url, "none")

    async def ask() -> bool:
        async with model.astream(MESSAGES) as chunks:
            async for _ in chunks:
                pass
        return chunks.text == stream.text

    yield ask


@asynccontextmanager
async def openai_create(url: str, stream: Stream) -> AsyncIterator[Ask]:
    import openai

    async def ask() -> bool:
        texts: list[str] = []
        async for chunk in await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True):
            texts += (choice.delta.content or "" for choice in chunk.choices)
        return "".join(texts) == stream.text

    async with openai.AsyncOpenAI(base_url=url, api_key="none", timeout=LIMIT, max_retries=0) as client:
        yield ask


@asynccontextmanager
async def litellm_acompletion(url: str, stream: Stream) -> AsyncIterator[Ask]:
    import litellm

    async def ask() -> bool:
        texts: list[str] = []
        async for chunk in await litellm.acompletion(
            model=f"openai/{MODEL}", messages=MESSAGES, stream=True, api_base=url, api_key="none", timeout=LIMIT
        ):
            texts += (choice.delta.content or "" for choice in chunk.choices)
        return "".join(texts) == stream.text

    yield ask


class Lane:
    """The streams of one client, and what they cost while it is their turn."""

    def __init__(self, ask: Ask, mark: str, control: asyncio.StreamWriter) -> None:
        self._ask = ask
        self._tick = f"TICK {mark}\n".encode()
        self._control = control
        self._streams: list[asyncio.Future[bool]] = []
        self.cpu = 0.0
        self.delays: list[float] = []

    @property
    def is_done(self) -> bool:
        return all(stream.done() for stream in self._streams)

    @property
    def lost(self) -> int:
        return sum(stream.exception() is not None or not stream.result() for stream in self._streams)

    async def open(self, count: int) -> None:
        """Ask so many times more."""
        async with self._measured():
            self._streams += (asyncio.ensure_future(self._ask()) for _ in range(count))

    async def advance(self) -> None:
        """Let every stream advance by some frames."""
        async with self._measured():
            for _ in range(TURN * GROUPS):
                self._control.write(self._tick)
                await asyncio.sleep(INTERVAL)

    @asynccontextmanager
    async def _measured(self) -> AsyncIterator[None]:
        begin = time.process_time()
        watch = asyncio.ensure_future(_note_delays(self.delays))
        await asyncio.sleep(0)  # it begins before the work does
        yield
        await asyncio.sleep(PAUSE)
        watch.cancel()
        self.cpu += time.process_time() - begin


async def run(names: Sequence[str], port: int, count: int, stream: Stream) -> dict[str, dict[str, float]]:
    """What it costs each client to read so many streams at once, in turns."""
    _, control = await asyncio.open_connection("127.0.0.1", port)
    url = f"http://127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        lanes: dict[str, Lane] = {}
        for name in names:
            client: Client = globals()[name]
            async with client(f"{url}/at-once/v1", stream) as ask:
                await ask()  # warms what a client prepares late
            ask = await stack.enter_async_context(client(f"{url}/{name}/v1", stream))
            lanes[name] = Lane(ask, name, control)
        gc.collect()
        for begin in range(0, count, GATE):  # by turns too, because the heap that the collector walks grows with each
            for lane in lanes.values():
                await lane.open(min(GATE, count - begin))
        while waiting := [lane for lane in lanes.values() if not lane.is_done]:
            for lane in waiting:
                await lane.advance()
        control.close()
    return {
        name: {
            "cpu_seconds": lane.cpu,
            "lag_mean": sum(lane.delays) / len(lane.delays),
            "lag_most": max(lane.delays),
            "lost": lane.lost,
        }
        for name, lane in lanes.items()
    }


async def _note_delays(delays: list[float]) -> None:
    """Note how late the loop is with each of the small jobs that it also has."""
    while True:
        due = time.perf_counter() + JOB
        await asyncio.sleep(JOB)
        delays.append(time.perf_counter() - due)


def main(port: int, streams: int, chunks: int, *names: str) -> None:
    signal.alarm(LIMIT)
    with redirect_stdout(sys.stderr):  # some clients like to talk
        results = asyncio.run(run(names, port, streams, openai_chat_text(words(chunks))))
    print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
