"""A server for the benchmark of serving: `python -m benchmarks.serve_server bare|none|sqlite EVENTS INTERVAL FOLDER`.

`bare` is an ASGI app that sends frames of the same size at the same times, without runs, logs and rules; the others are
`penstock.serve` with runs in memory or in SQLite. It prints its port. Runs wait for `POST /go`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import penstock.log
import penstock.serve
from penstock.agent.agent import Agent
from penstock.asgi.limits import ServerLimits
from penstock.asgi.server import listen
from penstock.asgi.stream import SSE_HEADERS
from penstock.events import Finish, StreamChunk, Text
from penstock.model.model import Model
from penstock.testing import Scripted

FRAME = b'id: %d\ndata: {"type":"text","block":0,"text":"%b","at":1789632000.125}\n\n'
MANY = 100_000


def text() -> str:
    """A piece of text with the time of its sending."""
    return f"@{time.monotonic():.6f} and some words more "


class Bare:
    """Frames for readers of runs, from one task per run."""

    def __init__(self, events: int, interval: float, go: asyncio.Event) -> None:
        self._events = events
        self._interval = interval
        self._go = go
        self._queues: dict[str, list[asyncio.Queue[bytes]]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        run_id = scope["path"].split("/")[2]
        if run_id not in self._queues:
            self._queues[run_id] = []
            self._tasks.append(asyncio.create_task(self._tell(run_id)))
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._queues[run_id].append(queue)
        headers = [(name.encode(), value.encode()) for name, value in SSE_HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while frame := await queue.get():
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _tell(self, run_id: str) -> None:
        await self._go.wait()
        for number in range(self._events):
            await asyncio.sleep(self._interval)
            frame = FRAME % (number + 1, text().encode())
            for queue in self._queues[run_id]:
                queue.put_nowait(frame)
        for queue in self._queues[run_id]:
            queue.put_nowait(b"")


class _PacedModel:
    """A model that says something at each interval."""

    name = "benchmark"
    healing = None

    def __init__(self, events: int, interval: float, go: asyncio.Event) -> None:
        self._events = events
        self._interval = interval
        self._go = go

    def for_conversation(self) -> _PacedModel:
        return self

    def astream(self, *_: object, **options: object) -> _PacedStream:
        return _PacedStream(self._batches())

    async def _batches(self) -> AsyncIterator[list[StreamChunk]]:
        await self._go.wait()
        for _ in range(self._events):
            await asyncio.sleep(self._interval)
            yield [Text(0, text())]
        yield [Finish("stop")]


class _PacedStream:
    """One response of the model, as the driver of a run reads it."""

    def __init__(self, batches: AsyncIterator[list[StreamChunk]]) -> None:
        self._batches = batches

    async def start(self) -> list[StreamChunk]:
        return []

    async def next_batch(self) -> list[StreamChunk] | None:
        return await anext(self._batches, None)

    async def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


def served(kind: str, events: int, interval: float, go: asyncio.Event, folder: str) -> Any:
    if kind == "bare":
        return Bare(events, interval, go)
    agent = Agent(Model("openai:gpt-5", via=Scripted([])), name="crowd")
    model: Any = _PacedModel(events, interval, go)
    agent.config = replace(agent.config, model=model)
    store = penstock.log.open(str(Path(folder) / "runs.db")) if kind == "sqlite" else penstock.log.memory()
    limits = ServerLimits(runs=MANY, tenant_runs=MANY, write_seconds=600)
    return penstock.serve.app(agent, log=store, limits=limits, shutdown_seconds=0.1)


def main(kind: str, events: str, interval: str, folder: str) -> None:
    import uvicorn

    go = asyncio.Event()
    app = served(kind, int(events), float(interval), go, folder)

    async def with_go(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") == "/go":
            go.set()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"{}"})
        else:
            await app(scope, receive, send)

    with listen("127.0.0.1", 0) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(with_go, log_level="error", lifespan="on", access_log=False, ws="none",
                                timeout_graceful_shutdown=1, backlog=4096)  # fmt: skip
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
