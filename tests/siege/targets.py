"""The servers that are attacked, each in a process of its own, with a watch over its event loop.

`python -m tests.siege.targets serve` prints the port of a server; `gateway BAD GOOD` that of a gateway before two
upstreams, so that what an attack makes its upstream do does not slow the good client's.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from penstock import Agent, Model, tool
from penstock.asgi.server import listen, run_server
from penstock.gateway import app as gateway_app
from penstock.gateway.config.settings import Upstream
from penstock.serve.app import app as serve_app
from penstock.testing import ReceivedRequest, Reply, Scripted

GOOD, BAD = "good-token-0123456789", "bad-token-0123456789"
"""The tokens of the two tenants."""

NAMES = "bad", "good"
"""The names of the upstreams, that of the attacks first."""

WATCH = "/siege"
"""Where a server says what it has used since the last look."""

TICK = 0.005


def answer(request: ReceivedRequest) -> Reply:
    """A short answer, or a long one."""
    return Reply("word " * 200_000) if request.prompt == "long" else Reply("Hello there.")


@tool(read_only=True)
def look(city: str) -> str:
    """Look."""
    return city


def tenant(scope: Any) -> str | None:
    """The tenant of a token."""
    header = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
    return {f"Bearer {GOOD}": "good", f"Bearer {BAD}": "bad"}.get(header)


class Watch:
    """The longest time for which the event loop worked in one piece, in seconds of CPU, and the use of memory."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.peak = 0
        self._last = 0.0
        self._ticks = 0

    def start(self) -> None:
        self._last = time.thread_time()
        asyncio.get_running_loop().call_later(TICK, self._tick)

    def _tick(self) -> None:
        now = time.thread_time()  # of this thread: other processes that take the core do not count
        self.longest = max(self.longest, now - self._last)
        self._last = now
        self._ticks += 1
        if self._ticks % 10 == 0:
            self.peak = max(self.peak, memory())
        asyncio.get_running_loop().call_later(TICK, self._tick)

    def report(self) -> bytes:
        used, now = resource.getrusage(resource.RUSAGE_SELF), memory()
        peak, self.peak = max(self.peak, now), 0
        longest, self.longest = self.longest, 0.0
        found = {"longest": longest, "cpu": used.ru_utime + used.ru_stime, "memory": now, "peak": peak}
        return json.dumps(found).encode()


def memory() -> int:
    """The resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize()


def watched(app: Callable[..., Awaitable[None]], watch: Watch) -> Callable[..., Awaitable[None]]:
    """The app, with a report of the watch at one more path."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            watch.start()
        if scope.get("path") != WATCH:
            await app(scope, receive, send)
            return
        body = watch.report()
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})

    return call


def allow_sockets() -> None:
    """Let this process have as many sockets as it may."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    served: Any
    allow_sockets()
    if sys.argv[1] == "serve":
        agent = Agent(Model("openai:gpt-5", via=Scripted(answer, pace=0.0)), [look], name="agent")
        served = serve_app([agent], auth=tenant, hosts=["localhost"])
    else:
        upstreams = [Upstream(name=name, url=url, retries=0) for name, url in zip(NAMES, sys.argv[2:], strict=True)]
        served = gateway_app(*upstreams, key=GOOD, hosts=["localhost"])
    with listen("127.0.0.1", 0) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        run_server(watched(served, Watch()), listener, served.limits, access=served.access)


if __name__ == "__main__":
    main()
