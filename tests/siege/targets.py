"""The servers that are attacked, each in a process of its own, with a watch over its event loop.

`python -m tests.siege.targets serve` prints the port of a server; `gateway URL` that of a gateway before an upstream.
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
        self._last = 0.0

    def start(self) -> None:
        self._last = time.thread_time()
        asyncio.get_running_loop().call_later(TICK, self._tick)

    def _tick(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._last)
        self._last = now
        asyncio.get_running_loop().call_later(TICK, self._tick)

    def report(self) -> bytes:
        longest, self.longest = self.longest, 0.0
        used = resource.getrusage(resource.RUSAGE_SELF)
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
        found = {"longest": longest, "cpu": used.ru_utime + used.ru_stime, "memory": pages * resource.getpagesize()}
        return json.dumps(found).encode()


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


def main() -> None:
    served: Any
    if sys.argv[1] == "serve":
        agent = Agent(Model("openai:gpt-5", via=Scripted(answer, pace=0.0)), [look], name="agent")
        served = serve_app([agent], auth=tenant, hosts=["localhost"])
    else:
        upstream = Upstream(name="upstream", url=sys.argv[2], retries=0)
        served = gateway_app(upstream, key=GOOD, hosts=["localhost"])
    with listen("127.0.0.1", 0) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        run_server(watched(served, Watch()), listener, served.limits, access=served.access)


if __name__ == "__main__":
    main()
