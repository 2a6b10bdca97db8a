"""A real server whose answers wait at gates, and whose streams can be cut: for the tests of clients.

`POST /gate/{name}` lets an answer go on that waits at this gate, and `POST /cut` cuts the connections of all streams.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from penstock import Agent, tool
from penstock.asgi.server import listen, run_server
from penstock.log import SQLiteStore
from penstock.serve import ServerLimits, app
from penstock.testing import ReceivedRequest

STREAMS = ("/events", "/api/chat")
"""How the paths of streams end that are cut."""
GATES: dict[str, asyncio.Event] = {}


def gate(name: str) -> asyncio.Event:
    return GATES.setdefault(name, asyncio.Event())


@tool(read_only=True)
async def hold(name: str) -> str:
    """Wait until a gate is opened."""
    await asyncio.wait_for(gate(name).wait(), 60)
    return f"{name} is open"


@tool(deferred=True)
def locate(accuracy: str) -> str:
    """Ask the device of the user where it is."""
    raise NotImplementedError


@tool(read_only=True)
def broken() -> str:
    """Fail."""
    raise ValueError("no such thing")


def steps_done(request: ReceivedRequest) -> int:
    """How many responses there are after the last user message."""
    messages = request.body["messages"]
    last = max(index for index, message in enumerate(messages) if message["role"] == "user")
    return sum(message["role"] == "assistant" for message in messages[last:])


def serve(
    agents: Sequence[Agent[Any, Any]], log: str, token: str = "", pages: Mapping[str, Path] | None = None
) -> None:
    """Serve agents, and pages by their paths; prints the port."""
    limits = ServerLimits(keep_alive_seconds=0.5)
    served = app(agents, log=SQLiteStore(log), limits=limits, shutdown_seconds=0.2, token=token)
    streams: set[asyncio.Task[None]] = set()

    async def with_gates(scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if path.startswith("/gate/"):
            gate(path.removeprefix("/gate/")).set()
            await _respond(send, 204, b"")
        elif path == "/cut":
            for task in streams:
                task.cancel()
            await _respond(send, 204, b"")
        elif pages and path in pages:
            await _respond(send, 200, pages[path].read_bytes())
        elif path.endswith(STREAMS):
            task = cast("asyncio.Task[None]", asyncio.current_task())
            streams.add(task)
            try:
                await served(scope, receive, send)
            finally:
                streams.discard(task)
        else:
            await served(scope, receive, send)

    with listen("127.0.0.1", 0) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        run_server(with_gates, listener, limits, on_stop=served.context.feeds.close)


async def _respond(send: Any, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": body})
