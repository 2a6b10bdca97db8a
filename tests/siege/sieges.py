"""One siege: a server, an attacker and a good client, each in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from tests.siege.attacks import Named, by_name
from tests.siege.targets import BAD, GOOD, WATCH
from tests.siege.upstream import start as start_upstream
from tests.siege.wire import Place, chat, request

P99 = 0.25
"""How many seconds the good client may wait, in 99 of 100 requests, or `TIMES` as long as without an attack."""
TIMES = 5.0
LONGEST = 0.05
"""For how many seconds of CPU the event loop may work in one piece."""
MEMORY = 512_000_000
"""How much more memory than idle a server may use."""
PAUSE = 0.05
"""The pause between two requests of the good client, in seconds."""


class Seen(Struct):
    """What the good client and the watch saw."""

    times: list[float]
    refused: int
    longest: float = 0.0
    memory: int = 0

    @property
    def p99(self) -> float:
        return sorted(self.times)[int(len(self.times) * 0.99)] if self.times else float("inf")

    def problems(self, calm: Seen) -> list[str]:
        """What is worse than it may be, compared with the time without an attack."""
        checks = {
            f"p99 {self.p99 * 1000:.0f} ms": self.p99 > max(P99, TIMES * calm.p99),
            f"{self.refused} refused": self.refused > 0,
            f"{self.longest * 1000:.0f} ms in one piece": self.longest > LONGEST,
            f"{(self.memory - calm.memory) / 1e6:.0f} MB more": self.memory - calm.memory > MEMORY,
        }
        return [text for text, is_wrong in checks.items() if is_wrong]


async def good_client(kind: str, port: int, seconds: float) -> Seen:
    """Ask again and again."""
    seen = Seen([], 0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        try:
            async with asyncio.timeout(15):
                if kind == "serve":
                    status, _ = await request(port, GOOD, "GET", "/runs")
                else:
                    status, _ = await request(port, GOOD, "POST", "/v1/chat/completions", chat("good", "hello"))
        except (OSError, TimeoutError):
            status = 0
        seen.refused += status != 200
        seen.times.append(time.monotonic() - begin)
        await asyncio.sleep(PAUSE)
    return seen


async def watch(port: int) -> dict[str, Any]:
    """What the server says about itself."""
    found: dict[str, Any] = json.loads((await request(port, GOOD, "GET", WATCH))[1])
    return found


@contextmanager
def target(kind: str, url: str) -> Iterator[int]:
    """The port of a server in a process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.siege.targets", kind, *([url] if kind == "gateway" else [])],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def attack(name: str, port: int) -> None:
    """The process of an attacker."""
    named: Named = by_name()[name]
    token = BAD if named.kind == "serve" else GOOD  # the clients of a gateway have one key
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_attack(named, Place(named.kind, port, token)))


async def _attack(named: Named, place: Place) -> None:
    await named.play(place)


async def siege(kind: str, names: list[str], seconds: float) -> list[tuple[str, Seen, list[str]]]:
    """Attack a server of one kind."""
    processes = multiprocessing.get_context("spawn")
    found = []
    upstream = processes.Queue()
    upstream_process = processes.Process(target=run_upstream, args=(upstream,), daemon=True)
    upstream_process.start()
    url = await asyncio.to_thread(upstream.get)
    try:
        for name in names:
            with target(kind, url) as port:
                await good_client(kind, port, 1.0)
                await watch(port)
                calm = await good_client(kind, port, min(2.0, seconds))
                calm.memory = (await watch(port))["memory"]
                attacker = processes.Process(target=attack, args=(name, port), daemon=True)
                attacker.start()
                await asyncio.sleep(0.5)
                seen = await good_client(kind, port, seconds)
                attacker.kill()
                report = await watch(port)
                seen.longest, seen.memory = report["longest"], report["memory"]
                problems = seen.problems(calm)
                found.append((name, seen, problems))
                line = f"{seen.p99 * 1000:7.0f} ms ({calm.p99 * 1000:.0f}) {seen.refused:4} refused "
                line += f"{seen.longest * 1000:5.0f} ms {(seen.memory - calm.memory) / 1e6:6.0f} MB"
                sys.stdout.write(f"{name:60} {line}  {'; '.join(problems) or 'right'}\n")
                sys.stdout.flush()
    finally:
        upstream_process.kill()
    return found


def run_upstream(urls: Any) -> None:
    """The process of the upstream."""

    async def run() -> None:
        server, url = await start_upstream()
        urls.put(url)
        await server.serve_forever()

    asyncio.run(run())
