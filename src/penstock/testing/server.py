"""A loopback server that plays a script on every wire.

It runs in its own thread, so that sync and async tests can use it. The end of a request's path selects the wire, so
that any base URL works.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Self

import msgspec
from aiohttp import web

from penstock.errors import UnknownWireError, UsageError
from penstock.testing.cuts import Cutting, cuts
from penstock.testing.faults import Hang, Reset
from penstock.testing.reply import Drop, Wait
from penstock.testing.request import ReceivedRequest, route_request
from penstock.testing.response import Response, recut, respond
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


_MAX_REQUEST = 64 * 1024 * 1024
_REQUEST_LINE = re.compile(rb"[A-Z]+ [^ \r\n]+ HTTP/1\.[01]\r\n")
_FRAMING = (b"host", b"content-length", b"transfer-encoding")
"""Headers that are never joined: two of them are an attack on the framing of requests."""


class HTTPServer(web.Server):
    """A server for one handler of all requests."""

    def __init__(self, handle: Callable[[Any], Awaitable[web.StreamResponse]]) -> None:
        super().__init__(handle, request_factory=_request, access_log=None, handler_cancellation=True)

    def __call__(self) -> web.RequestHandler:
        return _RequestHandler(self, loop=self._loop, **self._kwargs)


class _RequestHandler(web.RequestHandler):
    """Reads requests in which a header occurs twice, such as the `User-Agent` of an SDK and of a library around it."""

    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        super().data_received(join_repeated_headers(data))


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    return web.BaseRequest(
        message, payload, protocol, writer, task, protocol._loop, client_max_size=_MAX_REQUEST
    )  # fmt: skip


def join_repeated_headers(data: bytes) -> bytes:
    """A read that begins a request, with the values of repeated headers joined by commas; any other read unchanged."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end or not _REQUEST_LINE.match(data):
        return data
    first, *lines = head.split(b"\r\n")
    headers: dict[bytes, list[bytes]] = {}
    for line in lines:
        headers.setdefault(line.partition(b":")[0].lower(), []).append(line)
    if all(len(repeated) == 1 for repeated in headers.values()):
        return data
    kept = [line for name, repeated in headers.items() for line in _joined(name, repeated)]
    return b"\r\n".join([first, *kept]) + end + body


def _joined(name: bytes, lines: list[bytes]) -> list[bytes]:
    if name in _FRAMING or len(lines) == 1:
        return lines
    values = (line.partition(b":")[2].strip() for line in lines)
    return [lines[0].partition(b":")[0] + b": " + b", ".join(values)]


_MODELS = {
    "object": "list",
    "data": [{"id": "sim", "type": "model", "object": "model", "created": 0, "owned_by": "penstock"}],
    "has_more": False,
    "models": [{"name": "sim", "model": "sim"}],
}
"""A list of models in the formats of several providers at once."""


class Player:
    """Responds to requests by a script. `requests` are those received, with keys masked."""

    def __init__(self, script: Responder, pace: float, cutting: Cutting, is_strict: bool = False) -> None:
        cuts(b"", cutting)  # a wrong value is reported here, not in the middle of a response
        self.requests: list[ReceivedRequest] = []
        self._script = script
        self._pace = pace
        self._cutting: Cutting = cutting
        self._is_strict = is_strict

    async def handle(self, http_request: web.Request) -> web.StreamResponse:
        """Responds to one HTTP request."""
        body = _json(await http_request.read())
        request = route_request(http_request.path, body, http_request.headers, http_request.query)
        if request is None or http_request.method != "POST":
            return _unknown_path(http_request)
        self.requests.append(request)
        try:
            return await self._play(http_request, respond(self._script, request, self._is_strict))
        except ConnectionError:  # the client is gone
            return web.Response()

    async def _play(self, http_request: web.Request, played: Response | Hang | Reset) -> web.StreamResponse:
        match played:
            case Response():
                return await self._send(http_request, played)
            case Hang():
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=played.seconds)
        return _broken(http_request)

    async def _send(self, http_request: web.Request, played: Response) -> web.StreamResponse:
        response = web.StreamResponse(status=played.status, headers=dict(played.headers))
        await response.prepare(http_request)
        for action in recut(played.actions, self._cutting):
            match action:
                case Wait():
                    await asyncio.sleep(action.seconds)
                case Drop():
                    return response if action.is_clean else _broken(http_request)
                case bytes():
                    await response.write(action)
                    await asyncio.sleep(self._pace)
        return response


def _json(body: bytes) -> dict[str, Any]:
    """The body of a request; empty if it is not a JSON object."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError):
        return {}


def _unknown_path(http_request: web.Request) -> web.Response:
    if http_request.method in ("GET", "HEAD") and http_request.path.endswith(("/models", "/api/tags")):
        return web.json_response(_MODELS)
    message = f"the loopback server has no {http_request.method} {http_request.path}"
    return web.json_response({"error": {"message": message, "code": "not_found"}, "message": message}, status=404)


def _broken(http_request: web.Request) -> web.Response:
    """Breaks the connection; the returned response is not sent."""
    if http_request.transport is not None:
        http_request.transport.abort()
    return web.Response()
