"""A gateway over real sockets: clients that leave in every phase, and clients that read nothing."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import anthropic
import openai
import pytest
import uvicorn
from msgspec.structs import replace

from penstock.asgi.limits import MEGABYTE
from penstock.gateway import GatewayApp, Upstream, app
from penstock.gateway.context import LIMITS
from tests.gateways import ASK, chat, delta, sse

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PIECE = sse(delta(content="word "), done=False)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class SlowServer:
    """A server that sends what it is told to, and notices when its connection is closed."""

    def __init__(self, *sent: bytes, floods: bool = False, seconds: float = 60.0) -> None:
        self._sent = sent
        self._seconds = seconds  # after which it closes the connection
        self._floods = floods
        self.asked = asyncio.Event()
        self.closed = asyncio.Event()
        self.size = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET"):  # for the facts of the server
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            writer.close()
            return
        self.asked.set()
        try:
            for piece in self._sent:
                writer.write(piece)
                await writer.drain()
            while self._floods:
                writer.write(chunk(PIECE * 200))
                await writer.drain()
                self.size += len(PIECE) * 200
            async with asyncio.timeout(self._seconds):
                while await reader.read(65536):
                    pass
        except OSError:
            pass
        finally:
            self.closed.set()
            writer.close()


@asynccontextmanager
async def served(application: GatewayApp) -> AsyncGenerator[int]:
    """The port of an app that is served by uvicorn."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, log_level="warning", lifespan="on"))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        listener.close()


NewLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> NewLoop:
    """Makes an event loop: the one of Python, and the one that the command uses where it is installed."""
    if request.param == "asyncio":
        return asyncio.new_event_loop
    module = pytest.importorskip("uvloop", reason="uvloop is not for this system")
    return cast("NewLoop", module.new_event_loop)


def between(
    upstream: Callable[[], SlowServer],
    test: Callable[[SlowServer, int], Coroutine[Any, Any, None]],
    new_loop: NewLoop = asyncio.new_event_loop,
    keep_alive: float = 0.2,
    **settings: Any,
) -> None:
    """Run a test with a server and a gateway in front of it."""

    async def main() -> None:
        slow = upstream()
        server = await asyncio.start_server(slow.answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        limits = replace(LIMITS, write_seconds=1.0, keep_alive_seconds=keep_alive, body_seconds=0.5)
        local = Upstream(name="local", url=f"http://127.0.0.1:{port}/v1", **settings)
        async with server, served(app(local, limits=limits)) as gateway_port:
            await asyncio.wait_for(test(slow, gateway_port), 60)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


async def ask(port: int, stream: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(chat(stream=stream)).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    return reader, writer


PHASES: dict[str, tuple[bytes, ...]] = {
    "before the headers": (),
    "after the headers": (HEAD,),
    "in mid-stream": (HEAD, chunk(PIECE)),
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("phase", PHASES)
def test_when_a_client_leaves_the_upstream_is_closed(phase: str, stream: bool, new_loop: NewLoop) -> None:
    async def test(slow: SlowServer, port: int) -> None:
        reader, writer = await ask(port, stream)
        await slow.asked.wait()
        if phase == "in mid-stream" and stream:
            await reader.readuntil(b"word ")
        assert not slow.closed.is_set()
        writer.close()
        await asyncio.wait_for(slow.closed.wait(), 10)

    between(lambda: SlowServer(*PHASES[phase]), test, new_loop)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_an_upstream_that_sends_nothing_but_a_head_is_closed_and_named(stream: bool, new_loop: NewLoop) -> None:
    async def test(slow: SlowServer, port: int) -> None:
        reader, writer = await ask(port, stream)
        answer = await reader.read(65536)
        assert b"HTTP/1.1 504" in answer
        await asyncio.wait_for(slow.closed.wait(), 10)
        writer.close()

    between(lambda: SlowServer(HEAD), test, new_loop, keep_alive=30, first_token=0.1)


def test_a_client_that_reads_nothing_costs_little_memory_and_is_closed() -> None:
    async def test(slow: SlowServer, port: int) -> None:
        _, writer = await ask(port, True)
        await asyncio.wait_for(slow.closed.wait(), 30)
        writer.close()
        assert slow.size < 50_000_000

    between(lambda: SlowServer(HEAD, floods=True), test)


def test_clients_of_vendors_see_that_a_late_error_is_not_the_answer() -> None:
    """It comes after a keep-alive, and so after the status 200."""

    async def test(slow: SlowServer, port: int) -> None:
        chat_client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
        messages_client = anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{port}", api_key="none", max_retries=0)
        async with chat_client, messages_client:
            with pytest.raises(openai.APIConnectionError):
                await chat_client.chat.completions.create(model="m", messages=ASK)
            with pytest.raises(anthropic.APIConnectionError):
                await messages_client.messages.create(model="m", messages=ASK, max_tokens=9)

    between(lambda: SlowServer(HEAD, chunk(PIECE), seconds=0.8), test)


async def send(port: int, length: int, body: bytes) -> tuple[int, bytes]:
    """The status and the body of the response to a request that says how long it is, and sends this much of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {length}\r\n\r\n".encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", answer)
    assert found
    rest = await reader.readexactly(int(found[1]))
    writer.close()
    return int(answer.split()[1]), rest


def test_half_a_body_and_a_huge_one_are_refused_in_the_shape_of_the_protocol() -> None:
    async def test(slow: SlowServer, port: int) -> None:
        for length, status in ((100, 408), (100 * MEGABYTE, 413)):
            answered, body = await send(port, length, b'{"model": ')
            error = json.loads(body)
            assert (answered, error["type"]) == (status, "error")
            assert error["error"]["message"]
        assert not slow.asked.is_set()

    between(SlowServer, test)


def test_clients_that_leave_at_once_leave_nothing_behind() -> None:
    """With half a head, half a body, or a whole request."""
    body = json.dumps(chat()).encode()
    first = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head = f"{first}content-length: {len(body)}\r\n\r\n"

    async def test(slow: SlowServer, port: int) -> None:
        for sent in (head.encode()[:30], head.encode() + body[:9], head.encode() + body) * 10:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            writer.close()
        reader, writer = await ask(port, True)
        await reader.readuntil(b"word ")
        assert requests_under_way() > 0
        writer.close()
        async with asyncio.timeout(30):
            while requests_under_way() > 0:  # noqa: ASYNC110  # uvicorn does not say when it has answered one
                await asyncio.sleep(0.02)

    between(lambda: SlowServer(HEAD, chunk(PIECE)), test)


def requests_under_way() -> int:
    """How many requests uvicorn is answering."""
    return sum("RequestResponseCycle.run_asgi" in repr(task.get_coro()) for task in asyncio.all_tasks())
