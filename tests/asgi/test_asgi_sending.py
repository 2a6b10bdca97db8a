"""Pieces that are sent where they turn up, without the task of their stream: in order, each once, and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.asgi.request import HTTPRequest, Message, Send
from penstock.asgi.sending import Sender
from penstock.asgi.stream import ResponseStream
from penstock.serve import ServerLimits

SECONDS = 10
LIMITS = ServerLimits(write_seconds=0.1, keep_alive_seconds=60)


class Cycle:
    """A request as uvicorn answers it, whose client can stop reading."""

    __module__ = "uvicorn.protocols.http.tests"

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.is_read = asyncio.Event()
        self.is_read.set()
        self.error: Exception | None = None
        self.cancelled = 0

    async def send(self, message: Message) -> None:
        try:
            await self.is_read.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        self.bodies.append(message.get("body", b""))

    async def receive(self) -> Message:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    def stream(self, limits: ServerLimits = LIMITS, send: Send | None = None) -> ResponseStream:
        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        return ResponseStream(HTTPRequest(scope, self.receive, limits, "r1"), Sender(send or self.send), limits)

    async def write_until_full(self, stream: ResponseStream) -> None:
        """Write a piece that is sent, and one that has to wait, as the client reads nothing more."""
        await stream.write(b"1")
        self.is_read.clear()
        assert stream.write_now(b"2")


def run(work: Callable[[Cycle], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(SECONDS):
            await work(Cycle())

    asyncio.run(main())


def test_a_piece_is_sent_at_once() -> None:
    async def test(cycle: Cycle) -> None:
        stream = cycle.stream()

        async def work() -> None:
            await stream.write(b"1")
            assert stream.write_now(b"2")
            assert stream.write_now(b"")
            assert cycle.bodies == [b"", b"1", b"2"]
            assert stream.sent == 2

        assert await stream.run(work())
        assert cycle.bodies == [b"", b"1", b"2", b""]

    run(test)


def test_a_piece_that_has_to_wait_is_sent_before_the_next_one() -> None:
    async def test(cycle: Cycle) -> None:
        stream = cycle.stream()

        async def work() -> None:
            await cycle.write_until_full(stream)
            assert not stream.write_now(b"3")  # until the one before it is sent
            asyncio.get_running_loop().call_later(0.02, cycle.is_read.set)
            await stream.write(b"3")
            assert stream.write_now(b"4")

        assert await stream.run(work())
        assert b"".join(cycle.bodies) == b"1234"

    run(test)


def test_a_piece_that_has_to_wait_is_sent_also_if_nothing_follows() -> None:
    async def test(cycle: Cycle) -> None:
        stream, is_over = cycle.stream(), asyncio.Event()

        async def work() -> None:
            await cycle.write_until_full(stream)
            await is_over.wait()

        async def client() -> None:
            while stream.sent != 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            cycle.is_read.set()
            while b"2" not in cycle.bodies:  # noqa: ASYNC110
                await asyncio.sleep(0)
            is_over.set()

        assert (await asyncio.gather(stream.run(work()), client()))[0]

    run(test)


def test_a_client_that_reads_nothing_more_ends_the_stream() -> None:
    async def test(cycle: Cycle) -> None:
        stream = cycle.stream()

        async def work() -> None:
            await cycle.write_until_full(stream)
            await asyncio.Event().wait()

        assert not await stream.run(work())
        await asyncio.sleep(0)
        assert cycle.cancelled == 1
        assert cycle.bodies == [b"", b"1"]

    run(test)


def test_an_error_of_the_server_is_raised_in_the_task_of_the_stream() -> None:
    async def test(cycle: Cycle) -> None:
        stream = cycle.stream()

        async def work() -> None:
            await stream.write(b"1")
            cycle.error = RuntimeError("no")
            assert not stream.write_now(b"2")
            await stream.write(b"2")

        with pytest.raises(RuntimeError, match="no"):
            await stream.run(work())

    run(test)


def test_more_than_the_limit_is_left_to_the_stream() -> None:
    async def test(cycle: Cycle) -> None:
        stream = cycle.stream(ServerLimits(answer=3))

        async def work() -> None:
            await stream.write(b"1")
            assert stream.write_now(b"23")
            assert not stream.write_now(b"4")

        assert await stream.run(work())

    run(test)


def test_only_servers_that_are_known_are_called_without_a_task() -> None:
    h11 = pytest.importorskip("uvicorn.protocols.http.h11_impl")
    httptools = pytest.importorskip("uvicorn.protocols.http.httptools_impl")

    async def around(message: Message) -> None:
        pass

    for server in (h11, httptools):
        assert Sender(server.RequestResponseCycle.send.__get__(object.__new__(server.RequestResponseCycle))).is_direct
    assert not Sender(around).is_direct

    async def test(cycle: Cycle) -> None:
        stream = cycle.stream(send=around)
        await stream.write(b"1")
        assert not stream.write_now(b"2")

    run(test)
