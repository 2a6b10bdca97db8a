"""A relay that keeps the bytes of each request: it stands before or behind a gateway, and changes nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Self

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web
from msgspec import Struct
from yarl import URL

from penstock.testing.server import HTTPServer

_HOP_BY_HOP = ("connection", "content-length", "host", "keep-alive", "transfer-encoding", "upgrade")


class Recorded(Struct, frozen=True):
    """A request, as its bytes arrived."""

    path: str
    body: bytes


class Recorder:
    """Passes requests on to a server and keeps them in `requests`, in the order in which they were complete."""

    def __init__(self, target: str) -> None:
        self.requests: list[Recorded] = []
        self.url = ""
        self._target = target
        self._stop: Any = None

    def __enter__(self) -> Self:
        started: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        self._thread.start()
        self.url = started.result(30)
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()
        self._thread.join(30)

    async def _serve(self, started: Future[str]) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._stop = partial(loop.call_soon_threadsafe, stopped.set)
        options: dict[str, Any] = {"auto_decompress": False, "timeout": ClientTimeout(None)}
        async with ClientSession(connector=TCPConnector(limit=0), **options) as session:
            runner = web.ServerRunner(HTTPServer(partial(self._pass, session)), shutdown_timeout=0.01)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                started.set_result(f"http://127.0.0.1:{runner.addresses[0][1]}")
                await stopped.wait()
            finally:
                await runner.cleanup()

    async def _pass(self, session: ClientSession, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.method == "POST":
            self.requests.append(Recorded(request.path, body))
        url = URL(self._target + request.raw_path, encoded=True)
        try:
            async with session.request(
                request.method, url, data=body, headers=_passed(request.headers), allow_redirects=False
            ) as answer:
                response = web.StreamResponse(status=answer.status, headers=_passed(answer.headers))
                await response.prepare(request)
                async for data in answer.content.iter_any():
                    await response.write(data)
                return response
        except (ClientError, ConnectionError):  # one of the two is gone
            if request.transport is not None:
                request.transport.abort()
            return web.Response()


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
