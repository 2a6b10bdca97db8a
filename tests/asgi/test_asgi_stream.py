"""Responses to a client that does not read: whatever is being sent, it ends in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from penstock.asgi.request import HTTPRequest, Message
from penstock.asgi.server import ClosingConnections
from penstock.asgi.stream import ResponseStream
from penstock.serve import ServerLimits

SECONDS = 10
"""Much longer than a client may take here."""

LIMITS = ServerLimits(write_seconds=0.1, keep_alive_seconds=0.02)


class Stuck:
    """A client that reads nothing more from the message of the response at which it is stuck."""

    def __init__(self, is_stuck_at: Callable[[Message], bool]) -> None:
        self.sent: list[Message] = []
        self._is_stuck_at = is_stuck_at
        self._never = asyncio.Event()
        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        self.stream = ResponseStream(HTTPRequest(scope, self._receive, LIMITS, "r1"), self._send, LIMITS)

    async def _receive(self) -> Message:
        await self._never.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
        if self._is_stuck_at(message):
            await self._never.wait()


def is_start(message: Message) -> bool:
    return message["type"] == "http.response.start"


def is_end(message: Message) -> bool:
    return message["type"] == "http.response.body" and not message.get("more_body", False)


async def whole(stream: ResponseStream) -> bool:
    return await stream.run(stream.complete(200, b"{}", {}))


async def whole_after_a_comment(stream: ResponseStream) -> bool:
    async def work() -> None:
        await stream.write(b" ")
        await stream.complete(200, b"{}", {})

    return await stream.run(work())


async def streamed(stream: ResponseStream) -> bool:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"

    return await stream.send_all(pieces())


@pytest.mark.parametrize("is_stuck_at", [is_start, is_end])
@pytest.mark.parametrize("respond", [whole, whole_after_a_comment, streamed])
def test_a_client_that_does_not_read_ends_the_response(
    respond: Callable[[ResponseStream], Awaitable[bool]], is_stuck_at: Callable[[Message], bool]
) -> None:
    async def main() -> None:
        client = Stuck(is_stuck_at)
        async with asyncio.timeout(SECONDS):
            assert not await respond(client.stream)
        assert is_stuck_at(client.sent[-1])  # and no comment was sent after it

    asyncio.run(main())


class Closing(asyncio.Transport):
    """A transport that was closed, with so many bytes left to send."""

    def __init__(self, size: int, is_closing: bool = True) -> None:
        super().__init__()
        self.size = size
        self.aborted = 0
        self._is_closing = is_closing

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return self.size

    def abort(self) -> None:
        self.aborted += 1


def test_a_connection_that_closes_ends_when_its_client_has_read_nothing_for_so_long() -> None:
    closing, stuck, slow, is_open = ClosingConnections(10), Closing(100), Closing(100), Closing(100, is_closing=False)
    for now in range(0, 41, 5):
        slow.size -= 1 if now % 2 else 0
        closing.end_stuck([stuck, slow, is_open], now)
        assert (stuck.aborted > 0) == (now >= 10)
    assert (slow.aborted, is_open.aborted) == (0, 0)
    aborted = []
    for now in (44, 45):
        closing.end_stuck([slow], now)
        aborted.append(slow.aborted)
    assert aborted == [0, 1]


class Leaving:
    """A client that leaves when it has got the message at which it leaves; the server tells at once."""

    def __init__(self, leaves_at: Callable[[Message], bool]) -> None:
        self._leaves_at = leaves_at
        self._gone = asyncio.Event()
        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        self.stream = ResponseStream(
            HTTPRequest(scope, self._receive, ServerLimits(), "r1"), self._send, ServerLimits()
        )

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._leaves_at(message):
            self._gone.set()


def test_a_client_that_leaves_cancels_the_work_and_nothing_else() -> None:
    async def main() -> None:
        client, ended = Leaving(is_start), asyncio.Event()

        async def work() -> None:
            try:
                await client.stream.write(b"data: 1\n\n")
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with asyncio.timeout(SECONDS):
            assert not await client.stream.run(work())
            assert ended.is_set()
            await asyncio.sleep(0)  # the task that ran it is not cancelled

    asyncio.run(main())


def test_a_client_that_has_its_response_has_not_left() -> None:
    async def main() -> None:
        client = Leaving(is_end)

        async def work() -> None:
            await client.stream.end(b"data: 1\n\n")
            for _ in range(3):
                await asyncio.sleep(0)  # the connection behind is closed

        async with asyncio.timeout(SECONDS):
            assert await client.stream.run(work())

    asyncio.run(main())


def test_a_server_that_stops_cancels_the_work() -> None:
    async def main() -> None:
        client, begun, ended = Leaving(lambda _: False), asyncio.Event(), asyncio.Event()

        async def work() -> None:
            try:
                begun.set()
                await asyncio.Event().wait()
            finally:
                ended.set()

        running = asyncio.create_task(client.stream.run(work()))
        async with asyncio.timeout(SECONDS):
            await begun.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert ended.is_set()

    asyncio.run(main())
