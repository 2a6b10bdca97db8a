"""Canaries for docs/couplings.md: one per row, which fails when a dependency changes what we use of its insides.

They use the dependency alone, as our module does. The behaviour of the module has its own tests.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from asyncio import sslproto
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import httptools
import httpx
import httpx2
import mcp_types
import pytest
import uvicorn
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from mcp import Client
from mcp.client import streamable_http
from mcp.server.mcpserver import MCPServer
from mcp_types import methods
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from penstock.transport.http.client_logs import LOGGERS
from tests.architecture import SOURCE, tree_of

PAGE = (Path(__file__).parents[2] / "docs" / "couplings.md").read_text(encoding="utf-8")
SECONDS = 20


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(SECONDS):
            await work()

    asyncio.run(main())


class Handler(BaseHTTPRequestHandler):
    """Answers each request with its path, on a connection that stays open."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.path.encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


# -- aiohttp -----------------------------------------------------------------------------------------------------------


def test_aiohttp_reader_keeps_bytes_before_an_error() -> None:
    async def work() -> None:
        reader: Any = aiohttp.StreamReader(_connection(), 2**16, loop=asyncio.get_running_loop())
        reader.feed_data(b"before")
        reader.set_exception(ConnectionResetError())
        with pytest.raises(ConnectionResetError):
            await reader.readany()
        assert reader._buffer
        assert reader._read_nowait(-1) == b"before"
        assert not reader._buffer

    run(work)


def test_aiohttp_protocol_keeps_the_error_of_a_connection() -> None:
    async def work() -> None:
        protocol = ResponseHandler(asyncio.get_running_loop())
        reader: Any = aiohttp.StreamReader(protocol, 2**16, loop=asyncio.get_running_loop())
        assert reader._protocol is protocol
        protocol.connection_lost(ConnectionResetError())
        assert isinstance(reader._protocol.exception(), OSError)

    run(work)


def test_aiohttp_connector_lists_its_connections(url: str) -> None:
    async def work() -> None:
        async with aiohttp.ClientSession() as session:
            connector: Any = session.connector
            response = await session.get(url)
            used = [*connector._acquired]
            await response.read()
            idle = [protocol for connections in connector._conns.values() for protocol, _ in connections]
            assert all(protocol.transport is not None for protocol in (*used, *idle))
            assert len({*used, *idle}) == 1, "the connection is in one of the two, before and after it was read"

    run(work)


def test_aiohttp_server_makes_handlers_from_its_arguments(url: str) -> None:
    reads: list[bytes] = []
    loops: list[object] = []

    class Handler(web.RequestHandler):
        __slots__ = ()

        def data_received(self, data: bytes) -> None:
            reads.append(data)
            loops.append(self._loop)
            super().data_received(data)

    class Server(web.Server):
        def __call__(self) -> web.RequestHandler:
            return Handler(self, loop=self._loop, **self._kwargs)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="yes")

    async def work() -> None:
        runner = web.ServerRunner(Server(answer, access_log=None))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        sockets = site._server.sockets  # type: ignore[union-attr]
        async with aiohttp.ClientSession() as session:
            response = await session.get("http://{}:{}/".format(*sockets[0].getsockname()))
            assert await response.text() == "yes"
        await runner.cleanup()
        assert reads[0].startswith(b"GET / HTTP/1.1\r\n")
        assert loops[0] is asyncio.get_running_loop()

    run(work)


def _connection() -> Any:
    """What a reader needs of its connection."""
    return SimpleNamespace(connected=True, pause_reading=lambda: None, resume_reading=lambda *_, **__: None)


# -- asyncio and Python ------------------------------------------------------------------------------------------------


def test_asyncio_transport_closes_its_socket_without_a_loop() -> None:
    ours, theirs = socket.socketpair()
    loop = asyncio.SelectorEventLoop()
    transport: Any
    transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=ours))
    loop.close()
    transport._call_connection_lost(None)
    assert ours.fileno() == -1
    theirs.close()
    tls: Any = sslproto._SSLProtocolTransport
    made = tls(None, SimpleNamespace(_transport=transport))
    assert made._ssl_protocol._transport is transport
    made._closed = True
    assert made.is_closing(), "so that it does not warn that it was not closed"
    assert "_transport" in inspect.getsource(sslproto.SSLProtocol.connection_made)


def test_asyncio_process_has_its_transport() -> None:
    async def work() -> None:
        process: Any = await asyncio.create_subprocess_exec(sys.executable, "-c", "", stdin=asyncio.subprocess.PIPE)
        await process.wait()
        assert isinstance(process._transport, asyncio.SubprocessTransport)
        process._transport.close()

    run(work)


@pytest.mark.skipif(os.name != "posix", reason="other systems keep the environment as text")
def test_python_keeps_the_environment_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_NAME", "a value")
    data: Any = os.environ._data  # type: ignore[attr-defined]
    assert isinstance(data, dict)
    assert data[b"A_NAME"] == b"a value"


# -- uvicorn -----------------------------------------------------------------------------------------------------------


def test_uvicorn_protocol_has_the_callbacks_that_are_overridden() -> None:
    config = uvicorn.Config(_no_app, http="httptools")
    config.load()
    protocol: Any = config.http_protocol_class
    names = ("connection_made", "connection_lost", "data_received", "on_message_begin", "on_header",
             "on_headers_complete", "on_body", "on_message_complete")  # fmt: skip
    assert [name for name in names if not callable(getattr(protocol, name, None))] == []
    source = inspect.getsource(protocol)
    assert "self.cycle: RequestResponseCycle" in source
    assert "self.transport" in source
    assert "response_complete" in inspect.getsource(sys.modules[protocol.__module__].RequestResponseCycle)

    class Seen:
        chunks = 0

        def on_chunk_header(self) -> None:
            self.chunks += 1

    seen = Seen()
    parser = httptools.HttpRequestParser(seen)
    parser.feed_data(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
    assert seen.chunks == 2, "httptools reports the start of each chunk, also of the last one, which is empty"


def test_uvicorn_server_has_what_is_overridden() -> None:
    config = uvicorn.Config(_no_app)
    config.load()
    config.http_protocol_class = mine = type("Mine", (config.http_protocol_class,), {})
    server = uvicorn.Server(config)
    assert server.config.http_protocol_class is mine
    assert isinstance(server.server_state.connections, set)
    assert list(inspect.signature(uvicorn.Server.serve).parameters) == ["self", "sockets"]
    with server.capture_signals():
        assert signal.getsignal(signal.SIGTERM) == server.handle_exit
    server.handle_exit(signal.SIGTERM, None)
    assert server.should_exit
    assert "config.loaded" in inspect.getsource(uvicorn.Server), "a server loads its config only if that was not done"


def test_uvicorn_send_needs_no_task() -> None:
    config = uvicorn.Config(_no_app, http="httptools")
    config.load()
    cycle_class: Any = sys.modules[config.http_protocol_class.__module__].RequestResponseCycle
    assert cycle_class.__module__.startswith("uvicorn.protocols.http.")
    written: list[bytes] = []
    cycle = cycle_class.__new__(cycle_class)
    flow = SimpleNamespace(write_paused=False)
    values = {
        "disconnected": False, "response_started": True, "response_complete": False, "flow": flow,
        "transport": SimpleNamespace(write=written.append), "chunked_encoding": True, "expected_content_length": 0,
        "scope": {"method": "GET"},
    }  # fmt: skip
    for name, value in values.items():
        setattr(cycle, name, value)
    assert cycle.send.__self__ is cycle
    sending = cycle.send({"type": "http.response.body", "body": b"piece", "more_body": True})
    with pytest.raises(StopIteration):  # without an event loop
        sending.send(None)
    assert b"piece" in b"".join(written)


async def _no_app(scope: Any, receive: Any, send: Any) -> None:
    """An ASGI app that does nothing."""


# -- httpx2 ------------------------------------------------------------------------------------------------------------


def test_httpx2_reports_its_streams_and_lets_their_writes_be_watched(url: str) -> None:
    events: list[str] = []
    streams: list[Any] = []
    writes: list[bytes] = []

    def trace(event: str, info: Any) -> None:
        events.append(event.partition(".")[2])
        if event.endswith("connect_tcp.complete"):
            stream = info["return_value"]
            streams.append(stream)
            write = stream.write

            def watched(buffer: bytes, timeout: float | None = None) -> None:
                writes.append(buffer)
                write(buffer, timeout)

            stream.write = watched

    with httpx2.Client() as client:
        for path in ("one", "two"):
            writes.clear()
            request = client.build_request("GET", url + path, extensions={"trace": trace})
            response = client.send(request, stream=True)
            assert response.extensions["network_stream"].get_extra_info("socket").fileno() > 0
            assert response.read() == f"/{path}".encode()
            assert b"".join(writes).startswith(f"GET /{path} ".encode())
    assert len(streams) == 1, "the second request uses the connection of the first, which is not reported"
    steps = ["connect_tcp.started", "connect_tcp.complete", "send_request_headers.started",
             "receive_response_headers.started", "response_closed.started"]  # fmt: skip
    assert [step for step in steps if step not in events] == []
    source = inspect.getsource(sys.modules[type(streams[0]).__module__]) + inspect.getsource(_httpcore("connection"))
    assert "start_tls" in source
    assert "setup_socks5_connection" in inspect.getsource(_httpcore("socks_proxy"))


def test_httpx2_reads_the_stream_that_a_hook_has_put_there(url: str) -> None:
    class Other(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"other"

    async def replace(response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        await response.stream.aclose()
        response.stream, response.status_code = Other(), 418
        response.headers["content-type"] = "text/other"

    async def work() -> None:
        async with httpx2.AsyncClient(event_hooks={"response": [replace]}) as client:
            response = await client.get(url)
        assert (response.status_code, response.content) == (418, b"other")
        assert response.headers["content-type"] == "text/other"

    run(work)


def test_httpx2_logs_under_the_names_that_are_filtered(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), httpx2.Client() as client:
        client.get(url)
    names = {record.name for record in caplog.records if record.name.startswith("http")}
    assert names
    assert names - set(LOGGERS) == set()


def _httpcore(module: str) -> Any:
    """A module of the library below httpx2."""
    names = [name for name in sys.modules if re.fullmatch(rf"httpcore2?\._sync\.{module}", name)]
    return sys.modules[next(name for name in names if name.startswith("httpcore2") or len(names) == 1)]


def test_uvicorn_hands_a_connection_over_to_a_websocket() -> None:
    config = uvicorn.Config(lambda *_: None, ws="websockets-sansio")
    config.load()
    protocol: Any = config.http_protocol_class
    source = inspect.getsource(protocol.handle_websocket_upgrade)
    assert "self.ws_protocol_class(" in source
    assert "set_protocol" in source
    socket_class: Any = config.ws_protocol_class
    assert {"data_received", "connection_lost"} <= vars(socket_class).keys()
    assert "self.scope" in inspect.getsource(socket_class.handle_connect)


# -- websockets --------------------------------------------------------------------------------------------------------


def test_websockets_asks_before_it_follows_a_redirect() -> None:
    from websockets.asyncio.client import connect

    asked: list[Exception] = []

    class Connect(connect):
        def process_redirect(self, exc: Exception) -> Exception | str:
            asked.append(exc)
            return exc

    async def refuse(connection: Any, request: Any) -> Any:
        response = connection.respond(307, "")
        response.headers["Location"] = "/elsewhere"
        return response

    async def work() -> None:
        async with serve(lambda connection: connection.wait_closed(), "localhost", 0, process_request=refuse) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            with pytest.raises(InvalidStatus):
                await Connect(f"ws://localhost:{port}/")

    run(work)
    assert len(asked) == 1


def test_websockets_connection_has_its_transport() -> None:
    from websockets.asyncio.client import connect

    async def close(connection: Any) -> None:
        await connection.close(1012, "again")

    async def work() -> None:
        async with serve(close, "localhost", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            connection = await connect(f"ws://localhost:{port}/")
            assert connection.transport.get_extra_info("socket").fileno() >= 0
            with pytest.raises(ConnectionClosed) as caught:
                await connection.recv()
            assert caught.value.rcvd is not None
            assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1012, "again")
            assert caught.value.sent is not None

    run(work)


# -- mcp ---------------------------------------------------------------------------------------------------------------


def test_mcp_session_sends_through_its_dispatcher() -> None:
    async def work() -> None:
        async with Client(MCPServer("canary")) as client:
            session: Any = client.session
            strict, asked = session._dispatcher.send_raw_request, list[str]()

            async def send(method: str, *arguments: Any, **options: Any) -> Any:
                asked.append(method)
                return await strict(method, *arguments, **options)

            session._dispatcher.send_raw_request = send
            await client.list_tools()
            assert asked == ["tools/list"]
            with pytest.raises(ValueError, match="tools"):
                methods.validate_server_result("tools/list", session.protocol_version, {"tools": [{"name": 1}]})

    run(work)


def test_mcp_session_validates_results_in_a_method_of_its_own() -> None:
    server = MCPServer("canary")

    @server.tool()
    def count() -> int:
        return 1

    async def work() -> None:
        async with Client(server) as client:
            session: Any = client.session
            names: list[str] = []

            async def accept(name: str, result: mcp_types.CallToolResult) -> None:
                names.append(name)

            session.validate_tool_result = accept
            await client.call_tool("count", {})
            assert names == ["count"]

    run(work)


def test_mcp_says_that_a_session_was_terminated() -> None:
    assert 'message="Session terminated"' in inspect.getsource(streamable_http)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_aiohttp_reader_waits_in_a_method() -> None:
    async def work() -> None:
        class Reader(aiohttp.StreamReader):
            async def _wait(self, func_name: str) -> None:
                self.feed_data(b"one\n") if not self.total_bytes else self.feed_eof()

        reader = Reader(ResponseHandler(asyncio.get_running_loop()), 2**16, loop=asyncio.get_running_loop())
        assert not reader._buffer
        assert not reader._eof
        assert hasattr(reader, "_protocol")
        assert [line async for line in reader] == [b"one\n"]

    run(work)


def test_aiohttp_session_has_its_middlewares() -> None:
    async def work() -> None:
        async with aiohttp.ClientSession() as session:
            assert session._middlewares == ()

    run(work)


@pytest.mark.parametrize("library", [httpx2, httpx])
def test_httpx_clients_have_a_transport_and_mounts(library: Any) -> None:
    with library.Client(mounts={"all://a": library.HTTPTransport()}) as client:
        assert isinstance(client._transport, library.BaseTransport)
        assert all(isinstance(one, library.BaseTransport | None) for one in client._mounts.values())


def test_attach_finds_the_clients_of_every_sdk() -> None:
    """A process of its own: frameworks leave connections open."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.heal.found_clients"]
    place = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=place, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    counts = {name: int(count) for name, count in map(str.split, done.stdout.splitlines())}
    assert counts == {
        "openai": 1, "async-openai": 1, "anthropic": 1, "ollama": 1, "google-genai": 3, "mistralai": 2, "langchain": 2,
        "langchain-anthropic": 2, "pydantic-ai": 1, "openai-agents": 1, "litellm": 2,
    }  # fmt: skip


ROWS = re.findall(r"^\| (`\S+\.py`.*?) \| .* \| `(test_\w+)` \|$", PAGE, re.MULTILINE)


def test_the_page_has_a_row_for_each_canary() -> None:
    about_the_page = {
        "test_the_page_has_a_row_for_each_canary",
        "test_each_module_that_uses_private_names_is_on_the_page",
    }
    canaries = {name for name, value in globals().items() if name.startswith("test_") and callable(value)}
    assert sorted(canary for _, canary in ROWS) == sorted(canaries - about_the_page)


def test_each_module_that_uses_private_names_is_on_the_page() -> None:
    listed = {module for modules, _ in ROWS for module in re.findall(r"`([^`]+)`", modules)}
    assert {module for module in listed if not (SOURCE / module).exists()} == set()
    used = {
        path.relative_to(SOURCE).as_posix(): names for path in SOURCE.rglob("*.py") if (names := _private_names(path))
    }
    assert {module: names for module, names in used.items() if module not in listed} == {}


ALLOWED = {"_replace", "_getframe"}
"""Private only by their spelling: of a named tuple, and of `sys`."""


def _private_names(path: Path) -> set[str]:
    """The private names that a module uses of other objects than its own, and does not define itself."""
    nodes = list(ast.walk(tree_of(path)))
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and _is_self(node.value)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name)}
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute) and not _is_self(node.value)}
    used |= {name for node in nodes if isinstance(node, ast.Call) for name in _looked_up(node)}
    return {name for name in used - own - ALLOWED if re.match(r"_[a-z]", name)}


def _is_self(node: ast.expr) -> bool:
    return ast.unparse(node) in ("self", "cls", "super()")


def _looked_up(call: ast.Call) -> Iterator[str]:
    """The name that is looked up with `getattr`, `hasattr` or `setattr`."""
    match call:
        case ast.Call(func=ast.Name(id="getattr" | "hasattr" | "setattr"), args=[_, ast.Constant(value=str(name)), *_]):
            yield name
        case _:
            pass
