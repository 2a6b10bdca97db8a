"""A loopback server that plays a script on every wire.

It runs in its own thread, so that sync and async tests can use it. The end of a request's path selects the wire, so
that any base URL works.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Self

from aiohttp import web

from penstock.errors import UnknownWireError, UsageError
from penstock.testing.cuts import Cutting
from penstock.testing.http_server import HTTPServer
from penstock.testing.player import Player
from penstock.testing.request import ReceivedRequest
from penstock.testing.script import Responder, Step, as_script
from penstock.testing.wires.routes import BASES
from penstock.wires import RESPONSE_FRAMES

_BACKLOG = 4096  # a thousand clients may connect at once
_GRACE = 0.01  # seconds for open responses when the server stops; zero would mean no limit
_TURNS = 4  # turns of the event loop until the server knows an accepted connection


class Loopback:
    """A server that plays a script.

        with Loopback([Reply(say("Let me look."), call("weather", {"city": "Rome"})), Reply("Sunny.")]) as server:
            model = Model("openai:gpt-5", base_url=server.base_url("openai-responses"), api_key="-")

    `script` is a list of replies (one per request), a single reply, or a function from `ReceivedRequest` to a reply.
    `pace` is the pause in seconds between two frames. `cuts` splits the bytes without regard to frames: "bytes" after
    every byte, a number (the seed) at random places. With `strict`, requests that the real provider would reject get
    its error message and do not consume a step of the script. The server runs inside `with` or `async with`.
    """

    def __init__(
        self,
        script: Responder | Iterable[Step | str] | Step | str,
        *,
        pace: float = 0,
        cuts: Cutting = None,
        strict: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._player = Player(as_script(script), pace, cuts, strict)
        self._address = host, port
        self._url = ""
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] | None = None

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The requests received, with keys masked."""
        return self._player.requests

    @property
    def url(self) -> str:
        """The address of the server, without a path."""
        if not self._url:
            raise UsageError("the server is not running: use `with` or `async with`")
        return self._url

    def base_url(self, wire: str) -> str:
        """The base URL of a wire, for a model or a vendor's SDK."""
        if wire not in RESPONSE_FRAMES:
            raise UnknownWireError(wire, RESPONSE_FRAMES)
        return self.url + BASES.get(wire, "")

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise UsageError("the server is already running")
        started: Future[str] = Future()
        thread = threading.Thread(target=self._run, args=(started,), name="penstock-loopback", daemon=True)
        thread.start()
        self._url = started.result()
        self._thread = thread
        return self

    def __exit__(self, *error: object) -> None:
        if self._thread is not None and self._stop is not None:
            self._stop()
            self._thread.join()
        self._thread, self._url = None, ""

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.__exit__)

    # The thread.

    def _run(self, started: Future[str]) -> None:
        try:
            asyncio.run(self._serve(started))
        except (OSError, OverflowError) as error:  # the port is in use, or not a port
            started.set_exception(error)

    async def _serve(self, started: Future[str]) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._stop = partial(loop.call_soon_threadsafe, stopped.set)
        runner = web.ServerRunner(HTTPServer(self._player.handle), shutdown_timeout=_GRACE)
        await runner.setup()
        try:
            host, port = self._address
            await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
            address = f"[{host}]" if ":" in host else host
            started.set_result(f"http://{address}:{runner.addresses[0][1]}")
            await stopped.wait()
        finally:
            await _stop(runner)


async def _stop(runner: web.ServerRunner) -> None:
    """Stops the server and aborts its open connections.

    An accepted connection belongs to the server only some turns of the event loop later. If the server is closed
    before, asyncio leaves the socket open (`_accept_connection2` fails). So it stops to accept first.
    """
    for site in runner.sites:
        _stop_accepting(site)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    connections = [] if runner.server is None else runner.server.connections
    transports = [connection.transport for connection in connections]
    await runner.cleanup()
    for transport in transports:
        if transport is not None:
            transport.abort()


def _stop_accepting(site: web.BaseSite) -> None:
    """Accept no more connections, without closing the server."""
    with suppress(AttributeError, NotImplementedError, OSError):  # not a loop with selectors
        for sock in site._server.sockets:  # type: ignore[union-attr]
            asyncio.get_running_loop().remove_reader(sock.fileno())
