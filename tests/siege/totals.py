"""What an attack may cost in all: the CPU of a body, and requests among many idle connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.siege.attacks import BODIES, CHAT, MB, RUNS
from tests.siege.sieges import ask, show, target, upstreams, watch
from tests.siege.targets import BAD, GOOD, allow_sockets
from tests.siege.wire import ATTACKER, Place

TIMES = 3.0
"""How many times the CPU of plain text a body of the same size may cost."""
PLAIN = "plain text"
LEAST = 0.02
"""A body that costs less than this many seconds is not compared: the time is that of its connection."""


async def costs(kind: str, size: int) -> list[str]:
    """The bodies that cost too much CPU, compared with plain text."""
    path, token = (RUNS, BAD) if kind == "serve" else (CHAT, GOOD)
    found: dict[str, float] = {}
    with upstreams() as urls, target(kind, urls) as port:
        place = Place(kind, port, token)
        for name in (PLAIN, *BODIES):
            body = BODIES[name](size)
            before = (await watch(port))["cpu"]
            for _ in range(3):
                await place.post(path, body)
            found[name] = ((await watch(port))["cpu"] - before) / 3
    show(f"{kind}: {', '.join(f'{name} {seconds:.3f} s' for name, seconds in found.items())}")
    most = TIMES * max(found[PLAIN], LEAST)
    return [f"{kind}: {name} costs {seconds:.3f} s" for name, seconds in found.items() if seconds > most]


@asynccontextmanager
async def crowd(port: int, count: int) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Connections of one address that send nothing; one that is closed is opened again."""
    gate = asyncio.Semaphore(100)
    writers: list[asyncio.StreamWriter] = []

    async def hold() -> None:
        while True:
            with suppress(OSError):
                async with gate:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ATTACKER, 0))
                writers.append(writer)
                with suppress(OSError):
                    await reader.read()
                writers.remove(writer)
                writer.close()
            await asyncio.sleep(0.5)

    tasks = [asyncio.create_task(hold()) for _ in range(count)]
    try:
        yield writers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def refused(kind: str, sockets: int, requests: int) -> list[str]:
    """What was refused of a client with a token, among many connections of others without one."""
    allow_sockets()
    with upstreams() as urls, target(kind, urls) as port:
        async with crowd(port, sockets) as writers:
            await asyncio.sleep(2)
            held = len(writers)
            statuses = [await ask(kind, port) for _ in range(requests)]
    wrong = sum(status != 200 for status in statuses)
    show(f"{kind}: {sockets} sockets without a token ({held} open): {wrong} of {requests} refused")
    return [f"{kind}: {wrong} of {requests} requests refused"] if wrong else []


async def totals(kind: str, *, is_short: bool) -> list[str]:
    """All of these."""
    size = (4 if kind == "serve" else 16) * MB
    if is_short:
        return await refused(kind, 1000, 50)
    return [*await costs(kind, size), *await refused(kind, 10_000, 1000)]
