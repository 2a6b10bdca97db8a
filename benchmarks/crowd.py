"""Many concurrent streams: the CPU time of `Model.astream` per chunk compared to raw aiohttp, and the lag of the loop.

Each client has all of its streams open at once. The clients take turns: only the streams of one advance at a time, so
that disturbances affect all alike. Runs as its own process, which prints a line of JSON: for each client the CPU time,
the lag of the event loop, and the number of incomplete streams. The client of a peer runs in the environment of that
peer, and imports the peer itself.

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

LIMIT = 300  # seconds in total, then SIGALRM ends the process
INTERVAL = 0.01  # seconds between ticks
GATE = 50  # requests that are sent at once
TURN = 8  # frames of each stream per turn of a client
PAUSE = 0.05  # seconds at the end of a turn, for frames in transit
JOB = 0.004  # seconds between the small jobs that measure the lag
MODEL = "gpt-4o"
MESSAGES: Any = [{"role": "user", "content": "Go on."}]

Ask = Callable[[], Awaitable[bool]]
"""Sends one request and reads the response; returns whether it was complete."""
Client = Callable[[str, Stream], AbstractAsyncContextManager[Ask]]


@asynccontextmanager
async def aiohttp_alone(url: str, stream: Stream) -> AsyncIterator[Ask]:
    """Only the transport: the bytes are counted and discarded."""
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
    """The streams of one client, and their CPU time during its turns."""

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
        """Opens more streams."""
        async with self._measured():
            self._streams += (asyncio.ensure_future(self._ask()) for _ in range(count))

    async def advance(self) -> None:
        """Advances every stream by some frames."""
        async with self._measured():
            for _ in range(TURN * GROUPS):
                self._control.write(self._tick)
                await asyncio.sleep(INTERVAL)

    @asynccontextmanager
    async def _measured(self) -> AsyncIterator[None]:
        begin = time.process_time()
        watch = asyncio.ensure_future(_note_delays(self.delays))
        await asyncio.sleep(0)  # start it before the work
        yield
        await asyncio.sleep(PAUSE)
        watch.cancel()
        self.cpu += time.process_time() - begin


async def run(names: Sequence[str], port: int, count: int, stream: Stream) -> dict[str, dict[str, float]]:
    """The CPU time of each client for this many concurrent streams, in turns."""
    _, control = await asyncio.open_connection("127.0.0.1", port)
    url = f"http://127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        lanes: dict[str, Lane] = {}
        for name in names:
            client: Client = globals()[name]
            async with client(f"{url}/at-once/v1", stream) as ask:
                await ask()  # warms up lazy imports
            ask = await stack.enter_async_context(client(f"{url}/{name}/v1", stream))
            lanes[name] = Lane(ask, name, control)
        gc.collect()
        for begin in range(
            0, count, GATE
        ):  # in turns too: the heap that the garbage collector traverses grows with each
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
    """Records the delay of each of the small jobs on the event loop."""
    while True:
        due = time.perf_counter() + JOB
        await asyncio.sleep(JOB)
        delays.append(time.perf_counter() - due)


def main(port: int, streams: int, chunks: int, *names: str) -> None:
    signal.alarm(LIMIT)
    with redirect_stdout(sys.stderr):  # some clients print
        results = asyncio.run(run(names, port, streams, openai_chat_text(words(chunks))))
    print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
