"""Responses that are too slow or too large: heads that drip, compressed bodies, and the cap on their size."""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import aiohttp
import httpx
import pytest

from penstock import ConnectionFailed, Model, TimedOut, Timeouts, UnexpectedReplyError
from penstock.testing import Loopback, Raw, Reply, always, frames
from penstock.transport.attempt import MAX_RESPONSE_BYTES
from penstock.transport.commands import HTTPRequest, OpenRequest
from penstock.transport.http.async_http import AsyncHTTPConnection
from penstock.transport.http.decompression import PIECE_BYTES, Decompressor, decompressed
from tests.asking import (
    KEY,
    LONG,
    ONCE,
    SOON,
    aread,
    failure,
    model_at,
    model_on,
    read,
    request_of,
    serving,
    sync_and_async,
    within,
)
from tests.turns import counted_turns

BODY = b"".join(frames("openai-chat", Reply("Sunny.")))
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)

# Heads that drip.


def drip(connection: socket.socket, answers: int) -> None:
    """Respond to some requests, then send the head of a response byte by byte."""
    for _ in range(answers):
        request_of(connection)
        connection.sendall(WHOLE)
    request_of(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nx-slow: ")
    for _ in range(600):
        connection.sendall(b"a")
        time.sleep(0.05)


@sync_and_async
@pytest.mark.parametrize("answers", [0, 1], ids=["new", "reused"])
@pytest.mark.parametrize(
    ("timeouts", "message"),
    [
        (Timeouts(first_event=0.4), "no event received within 0.4 seconds (timeouts.first_event)"),
        (Timeouts(total=0.4), "the response took longer than 0.4 seconds (timeouts.total)"),
    ],
    ids=["first_event", "total"],
)
def test_a_head_that_drips_exceeds_the_timeout(mode: str, answers: int, timeouts: Timeouts, message: str) -> None:
    async def ask(models: list[Model]) -> None:
        for model in models:
            await aread(model)

    def ask_sync(models: list[Model]) -> None:
        for model in models:
            read(mode, model)

    with serving(lambda connection: drip(connection, answers)) as url, within(LONG):
        models = [model_on("openai-chat", url, api_key=KEY)] * answers
        models.append(model_on("openai-chat", url, api_key=KEY, timeouts=timeouts, retries=ONCE))
        with pytest.raises(TimedOut) as raised:
            asyncio.run(ask(models)) if mode == "async" else ask_sync(models)
    assert raised.value.message == message


@sync_and_async
def test_an_error_body_that_drips_ends_with_the_time_for_the_first_event(mode: str) -> None:
    def serve(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(b"HTTP/1.1 400 No\r\ncontent-length: 10000\r\n\r\n")
        for _ in range(600):
            connection.sendall(b"a")
            time.sleep(0.05)

    with serving(serve) as url, within(LONG):
        model = model_on("openai-chat", url, api_key=KEY, timeouts=Timeouts(first_event=0.4), retries=ONCE)
        with pytest.raises(Exception, match="HTTP 400"):
            read(mode, model)


# Compressed bodies.


def deflate(data: bytes, wbits: int) -> bytes:
    compressor = zlib.compressobj(wbits=wbits)
    return compressor.compress(data) + compressor.flush()


COMPRESSED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": (" X-GZip", gzip.compress),
    "two members": ("gzip", lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:])),
    "zlib": ("deflate", zlib.compress),
    "deflate": ("deflate", lambda data: deflate(data, -zlib.MAX_WBITS)),
}
every_encoding = pytest.mark.parametrize("encoding", COMPRESSED)
BOMB = gzip.compress(b"\n" * (1 << 20)) * 200
"""200 kilobytes that become 200 megabytes."""


def compressed(body: bytes, encoding: str = "gzip") -> Raw:
    return Raw(body, headers={"content-encoding": encoding})


@every_encoding
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_body_is_decompressed_however_it_is_cut(encoding: str, size: int) -> None:
    name, compress = COMPRESSED[encoding]
    body = BODY + bytes(range(256)) * 200
    data = compress(body)
    pieces = list(decompressed((data[at : at + size] for at in range(0, len(data), size)), name))
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) <= PIECE_BYTES
    with pytest.raises(ConnectionFailed, match="ended before it was complete"):
        list(decompressed([data[:-1]], name))
    assert list(decompressed([], name)) == []


def test_data_that_is_not_compressed_as_declared_is_an_error() -> None:
    for name in ("gzip", "deflate"):
        with pytest.raises(ConnectionFailed, match="the compressed response cannot be read"):
            list(decompressed([b"\xff" * 100], name))
    decompressor = Decompressor("br")
    decompressor.feed(b"x")
    with pytest.raises(UnexpectedReplyError, match="compressed with 'br'"):
        decompressor.read()


@every_encoding
@pytest.mark.parametrize("client", [None, "httpx", "aiohttp"])
@sync_and_async
def test_a_compressed_response_is_read(encoding: str, client: str | None, mode: str) -> None:
    name, compress = COMPRESSED[encoding]

    async def ask(server: Loopback) -> str:
        async with httpx.AsyncClient() as one, aiohttp.ClientSession() as other:
            clients: dict[str | None, Any] = {"httpx": one, "aiohttp": other, None: None}
            return (await aread(model_at(server, client=clients[client])))[1].text

    with Loopback(always(compressed(compress(BODY), name))) as server:
        if mode == "async":
            assert asyncio.run(ask(server)) == "Sunny."
        elif client != "aiohttp":
            with httpx.Client() as one:
                assert read(mode, model_at(server, client=one if client else None))[1].text == "Sunny."


@sync_and_async
def test_an_unknown_compression_is_refused_at_once(mode: str) -> None:
    with Loopback(always(compressed(b"\x8b\x00\x80x\x03", "br"))) as server:
        error = failure(mode, UnexpectedReplyError, model_at(server, retries=SOON))
    assert "'br'" in error.message
    assert len(server.requests) == 1


@pytest.mark.parametrize("client", [None, "httpx", "aiohttp"])
def test_decompression_does_not_block_the_event_loop(client: str | None) -> None:
    gaps: list[float] = []

    async def watch() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.001)
            now = time.monotonic()
            gaps.append(now - last)
            last = now

    async def ask(server: Loopback) -> None:
        async with httpx.AsyncClient() as one, aiohttp.ClientSession() as other:
            clients: dict[str | None, Any] = {"httpx": one, "aiohttp": other, None: None}
            watching = asyncio.create_task(watch())
            with pytest.raises(UnexpectedReplyError) as raised:
                await aread(model_at(server, client=clients[client], retries=SOON))
            watching.cancel()
            assert raised.value.code == "response_too_large"

    with Loopback(always(compressed(BOMB))) as server:
        asyncio.run(ask(server))
    assert max(gaps) < 2  # it took 13 seconds in one go
    assert len(server.requests) == 1


def test_other_tasks_run_between_the_pieces_of_a_compressed_body() -> None:
    async def ask(url: str) -> Counter[int]:
        connection = AsyncHTTPConnection()
        await connection.open(OpenRequest(HTTPRequest(f"{url}/chat/completions", {}, b"{}"), 60, 60))
        seen = Counter[int]()  # how many bytes were read between two turns
        async with counted_turns() as turns:
            for _ in range(50):
                size = len(await connection.read(60))
                assert size
                seen[turns()] += size
        await connection.close()
        return seen

    def serve(connection: socket.socket) -> None:
        request_of(connection)
        head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(BOMB)
        connection.sendall(head + BOMB)

    with serving(serve) as url:
        seen = asyncio.run(ask(url))
    assert max(seen.values()) <= PIECE_BYTES


def test_a_large_response_is_an_error_in_sync_code() -> None:
    with Loopback(always(compressed(BOMB))) as server, within(LONG):
        error = failure("sync", UnexpectedReplyError, model_at(server, retries=SOON))
    assert (error.code, len(server.requests)) == ("response_too_large", 1)
    assert MAX_RESPONSE_BYTES == 64 << 20
