"""One siege: a server, an attacker and a good client, each in a process of its own, and so are their upstreams."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from msgspec import Struct

from tests.siege.attacks import Named, by_name
from tests.siege.targets import BAD, GOOD, WATCH, allow_sockets
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
WORN = 200_000_000
"""How much more memory than idle a server may have after an attack to be used for the next."""

processes = multiprocessing.get_context("spawn")


class Bounds(Struct, frozen=True):
    """What an attack may cost the good client and the server."""

    p99: float = P99
    longest: float = LONGEST


class Seen(Struct):
    """What the good client and the watch saw."""

    times: list[float]
    refused: int
    longest: float = 0.0
    memory: int = 0

    @property
    def p99(self) -> float:
        return sorted(self.times)[int(len(self.times) * 0.99)] if self.times else float("inf")

    def problems(self, calm: Seen, bounds: Bounds) -> list[str]:
        """What is worse than it may be, compared with the time without an attack."""
        checks = {
            f"p99 {self.p99 * 1000:.0f} ms": self.p99 > max(bounds.p99, TIMES * calm.p99),
            f"{self.refused} refused": self.refused > 0,
            f"{self.longest * 1000:.0f} ms in one piece": self.longest > bounds.longest,
            f"{(self.memory - calm.memory) / 1e6:.0f} MB more": self.memory - calm.memory > MEMORY,
        }
        return [text for text, is_wrong in checks.items() if is_wrong]


Found = tuple[str, Seen, list[str]]
"""An attack, what was seen, and what was worse than it may be."""


def show(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def ask(kind: str, port: int) -> int:
    """The status of one request of the good client; 0 if there was no response."""
    try:
        async with asyncio.timeout(15):
            if kind == "serve":
                return (await request(port, GOOD, "GET", "/runs"))[0]
            return (await request(port, GOOD, "POST", "/v1/chat/completions", chat("good/good", "hello")))[0]
    except (OSError, TimeoutError):
        return 0


async def good_client(kind: str, port: int, seconds: float) -> Seen:
    """Ask again and again."""
    seen = Seen([], 0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        seen.refused += await ask(kind, port) != 200
        seen.times.append(time.monotonic() - begin)
        await asyncio.sleep(PAUSE)
    return seen


async def watch(port: int) -> dict[str, Any]:
    """What the server says about itself."""
    found: dict[str, Any] = json.loads((await request(port, GOOD, "GET", WATCH))[1])
    return found


@contextmanager
def upstreams() -> Iterator[list[str]]:
    """The URLs of two upstreams: one for attackers, one for the good client."""
    started = []
    try:
        urls = []
        for _ in range(2):
            queue = processes.Queue()
            started.append(processes.Process(target=run_upstream, args=(queue,), daemon=True))
            started[-1].start()
            urls.append(queue.get())
        yield urls
    finally:
        for process in started:
            process.kill()


@contextmanager
def target(kind: str, urls: list[str]) -> Iterator[int]:
    """The port of a server in a process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.siege.targets", kind, *(urls if kind == "gateway" else [])],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@contextmanager
def attacker(name: str, port: int) -> Iterator[None]:
    """The process of an attacker."""
    has_begun = processes.Event()
    process = processes.Process(target=attack, args=(name, port, has_begun), daemon=True)
    process.start()
    try:
        assert has_begun.wait(60), "the attacker did not start"  # else nothing would be measured
        yield
    finally:
        process.kill()
        process.join()


def attack(name: str, port: int, has_begun: Any) -> None:
    """What the process of an attacker does."""
    allow_sockets()
    has_begun.set()
    named: Named = by_name()[name]
    token = BAD if named.kind == "serve" else GOOD  # the clients of a gateway have one key
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_attack(named, Place(named.kind, port, token)))


async def _attack(named: Named, place: Place) -> None:
    await named.play(place)


class Besieged:
    """A server that is attacked again and again; a fresh one follows when an attack has left too much behind."""

    def __init__(self, kind: str, urls: list[str]) -> None:
        self._kind = kind
        self._urls = urls
        self._stack = ExitStack()
        self.port = 0
        self.calm = Seen([], 0)

    async def begin(self) -> None:
        """Start the server, and measure the good client without an attack."""
        self.end()
        self.port = self._stack.enter_context(target(self._kind, self._urls))
        await good_client(self._kind, self.port, 0.5)
        await watch(self.port)
        self.calm = await good_client(self._kind, self.port, 1.5)
        self.calm.memory = (await watch(self.port))["memory"]

    def end(self) -> None:
        self._stack.close()
        self.port = 0

    async def attacked(self, name: str, seconds: float, bounds: Bounds) -> Found:
        """What the good client sees while the server is attacked."""
        if not self.port:
            await self.begin()
        await watch(self.port)
        with attacker(name, self.port):
            await asyncio.sleep(0.5)
            seen = await good_client(self._kind, self.port, seconds)
        report = await watch(self.port)
        seen.longest, seen.memory = report["longest"], report["peak"]
        problems = seen.problems(self.calm, bounds)
        line = f"{seen.p99 * 1000:7.0f} ms ({self.calm.p99 * 1000:.0f}) {seen.refused:4} refused "
        line += f"{seen.longest * 1000:5.0f} ms {(seen.memory - self.calm.memory) / 1e6:6.0f} MB"
        show(f"{name:68} {line}  {'; '.join(problems) or 'right'}")
        if problems or report["memory"] - self.calm.memory > WORN:
            self.end()
        return name, seen, problems


async def siege(kind: str, names: list[str], seconds: float, bounds: Bounds) -> list[Found]:
    """Attack a server of one kind."""
    with upstreams() as urls:
        besieged = Besieged(kind, urls)
        try:
            return [await besieged.attacked(name, seconds, bounds) for name in names]
        finally:
            besieged.end()


def run_upstream(urls: Any) -> None:
    """The process of an upstream."""

    async def run() -> None:
        server, url = await start_upstream()
        urls.put(url)
        await server.serve_forever()

    asyncio.run(run())
