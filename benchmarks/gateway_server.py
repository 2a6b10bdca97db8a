"""A relay in its own process: `python -m benchmarks.gateway_server relay|gateway UPSTREAM`.

`relay` is the floor: an ASGI app that copies the bytes of the upstream, and notices when its client leaves. Both are
served as `penstock gateway` serves. Prints the port; ends with its standard input.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from typing import Any

from penstock.asgi.server import run_server
from penstock.gateway import app as gateway_app
from penstock.gateway.context import LIMITS


class Relay:
    """Copies the bytes of an upstream."""

    def __init__(self, upstream: str) -> None:
        self._url = f"{upstream}/chat/completions"
        self._session: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        message = await receive()
        watcher = asyncio.create_task(receive())
        async with self._session.post(self._url, data=message["body"]) as response:
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while not watcher.done() and (data := await response.content.readany()):
                await send({"type": "http.response.body", "body": data, "more_body": True})
        watcher.cancel()
        await send({"type": "http.response.body", "body": b""})


async def _live(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


def main(kind: str, upstream: str) -> None:
    gateway = gateway_app(upstream, limits=LIMITS)
    application: Any = Relay(upstream) if kind == "relay" else gateway
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    run_server(application, listener, LIMITS, access=gateway.access)


if __name__ == "__main__":
    main(*sys.argv[1:])
