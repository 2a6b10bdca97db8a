"""Thousands of connections to a gateway that say nothing, or leave: others are served, and memory is bounded."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.asgi.server import allow_files
from tests.gateway.test_gateway_sockets import HEAD, chunk
from tests.gateway_process import running_gateway
from tests.gateways import chat, delta, sse

resource = pytest.importorskip("resource", reason="there are no limits of open files on this system")

CONNECTIONS = 5_000
MAX_BYTES = 50_000
"""How much memory a connection may cost."""


class TickingServer:
    """A server whose responses go on when it is told to, and end then."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + chunk(sse(delta(content="first "), done=False)))
        await self.go_on.wait()
        writer.write(chunk(sse(delta(content="last"), delta("stop"))) + b"0\r\n\r\n")
        await writer.drain()
        writer.close()


def request(body: bytes, length: int | None = None) -> bytes:
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body) if length is None else length}\r\n\r\n".encode() + body


WHOLE = request(json.dumps(chat()).encode())
LITTLE = (b"", b"POST /v1/chat/compl", WHOLE[:-20])
"""What clients send before they fall silent: nothing, half a head, half a body."""


@contextmanager
def silent_clients(port: int, count: int) -> Generator[None]:
    with ExitStack() as stack:
        for number in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            client.sendall(LITTLE[number % len(LITTLE)])
        yield


async def answered(reader: asyncio.StreamReader) -> bool:
    """Whether the rest of a response comes."""
    data = b""
    async with asyncio.timeout(60):
        while b"[DONE]" not in data and (piece := await reader.read(65536)):
            data += piece
    return b"last" in data and b"[DONE]" in data


def memory_of(pid: int) -> int:
    """The bytes of a process; 0 where the system does not say."""
    path = Path(f"/proc/{pid}/statm")
    return int(path.read_text(encoding="utf-8").split()[1]) * resource.getpagesize() if path.exists() else 0


def possible() -> int:
    """How many connections the limit of open files allows."""
    allow_files(CONNECTIONS + 500)
    return min(CONNECTIONS, int(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) - 500)


def test_silent_connections_do_not_disturb_others(capsys: pytest.CaptureFixture[str]) -> None:
    count = possible()

    async def flood(port: int, pid: int, upstream: TickingServer) -> int:
        early, early_writer = await asyncio.open_connection("127.0.0.1", port)
        early_writer.write(WHOLE)
        await asyncio.wait_for(early.readuntil(b"first "), 60)
        before = memory_of(pid)
        clients = silent_clients(port, count)
        await asyncio.to_thread(clients.__enter__)
        try:
            grown = memory_of(pid) - before
            upstream.go_on.set()
            assert await answered(early), "a response that had begun goes on"
            late, late_writer = await asyncio.open_connection("127.0.0.1", port)
            late_writer.write(WHOLE)
            assert await answered(late), "a client that comes later is served"
        finally:
            await asyncio.to_thread(clients.__exit__, None, None, None)
        for writer in (early_writer, late_writer):
            writer.close()
        return grown

    async def main() -> int:
        upstream = TickingServer()
        server = await asyncio.start_server(upstream.answer, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with server:
            gateway = running_gateway({"local": address})
            url, pid = await asyncio.to_thread(gateway.__enter__)
            try:
                return await flood(int(urlsplit(url).port or 0), pid, upstream)
            finally:
                await asyncio.to_thread(gateway.__exit__, None, None, None)

    grown = asyncio.run(main())
    with capsys.disabled():
        sys.stdout.write(f" [{count:,} connections, {grown / count / 1000:.1f} kB each]")
    assert grown < count * MAX_BYTES
