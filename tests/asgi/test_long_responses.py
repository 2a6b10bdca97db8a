"""Long responses: in pieces, as the client reads them, and counted for the client."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from penstock.asgi.access import Access
from penstock.asgi.app import ASGIApp
from penstock.asgi.limits import MEGABYTE, ServerLimits
from penstock.asgi.metrics import Metrics
from penstock.asgi.request import ClientGone, HTTPRequest, RejectedRequest
from penstock.asgi.response import PIECE, respond, respond_parts
from penstock.asgi.sending import Sender
from penstock.asgi.shares import MEMORY_PER_BYTE, MemoryBudget
from penstock.transport.threads.off_loop import run_off_loop


def made(limits: ServerLimits | None = None, budget: MemoryBudget | None = None, method: str = "GET") -> HTTPRequest:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    scope: Any = {"type": "http", "method": method, "path": "/", "headers": [], "client": ("a", 1)}
    return HTTPRequest(scope, receive, limits or ServerLimits(), "id", budget)


class Client:
    """Gets the messages of a response; `held` has what was counted for it with each."""

    def __init__(self, budget: MemoryBudget | None = None) -> None:
        self.messages: list[Any] = []
        self.held: list[int] = []
        self._budget = budget

    async def send(self, message: Any) -> None:
        self.messages.append(message)
        self.held.append(0 if self._budget is None else self._budget._used)

    @property
    def pieces(self) -> list[bytes]:
        return [message["body"] for message in self.messages[1:]]


@pytest.mark.parametrize("size", [0, 10, PIECE, PIECE + 1, 5 * PIECE])
def test_a_response_is_whole_however_long_it_is(size: int) -> None:
    client, body = Client(), bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    asyncio.run(respond(made(), client.send, 200, body))
    assert b"".join(client.pieces) == body
    assert (b"content-length", b"%d" % size) in client.messages[0]["headers"]
    assert max(map(len, client.pieces)) <= PIECE
    assert [bool(message.get("more_body")) for message in client.messages[1:]][-1] is False


def test_parts_are_one_body() -> None:
    client = Client()
    asyncio.run(respond_parts(made(), client.send, 200, [b"[", b"x" * (2 * PIECE), b"]"]))
    assert b"".join(client.pieces) == b"[" + b"x" * (2 * PIECE) + b"]"


def test_a_long_response_without_a_body_has_its_length() -> None:
    client = Client()
    asyncio.run(respond(made(method="HEAD"), client.send, 200, b"x" * (2 * PIECE)))
    assert client.pieces == [b""]
    assert (b"content-length", b"%d" % (2 * PIECE)) in client.messages[0]["headers"]


def test_a_long_response_counts_for_its_client_until_its_end() -> None:
    limits = ServerLimits(client_memory=MEGABYTE)
    budget = MemoryBudget(limits)
    client, request = Client(budget), made(limits, budget)
    asyncio.run(respond(request, client.send, 200, b"x" * (2 * MEGABYTE)))
    assert client.held == [2 * MEGABYTE // MEMORY_PER_BYTE] * len(client.held)
    other = made(limits, budget)
    with pytest.raises(RejectedRequest) as refused:
        asyncio.run(respond(other, client.send, 200, b"x" * (2 * MEGABYTE)))
    assert (refused.value.status, refused.value.headers) == (429, {"retry-after": "1"})
    request.release()
    other.release()
    assert budget._used == 0
    asyncio.run(respond(other, client.send, 200, b"x" * (2 * MEGABYTE)))


def test_a_server_without_memory_says_so_before_it_responds() -> None:
    limits = ServerLimits(memory=MEGABYTE)
    client = Client()
    with pytest.raises(RejectedRequest) as refused:
        asyncio.run(respond(made(limits, MemoryBudget(limits)), client.send, 200, b"x" * (2 * MEGABYTE)))
    assert refused.value.status == 503
    assert not client.messages


class Large:
    """Something large that a request has read."""


class Refusing(ASGIApp):
    """An app that reads something large and refuses it, on the loop or in a thread."""

    large: weakref.ref[Large]
    is_threaded = False

    async def route(self, request: HTTPRequest, send: Sender, tenant: str) -> None:
        large = Large()
        self.large = weakref.ref(large)
        if self.is_threaded:
            await run_off_loop(self._refuse, large)
        self._refuse(large)

    def _refuse(self, large: Large) -> None:
        raise RejectedRequest(400, "no", f"not {type(large).__name__}")


@pytest.mark.parametrize("is_threaded", [False, True])
def test_what_was_refused_is_freed_at_once(is_threaded: bool) -> None:
    async def main() -> None:
        app = Refusing(Access(auth=lambda scope: "me"), ServerLimits(), Metrics("test"))
        app.is_threaded = is_threaded
        client = Client()
        await app(made().scope, made()._receive, client.send)
        assert client.messages[0]["status"] == 400
        await asyncio.sleep(0.01)  # the thread drops what it had
        assert app.large() is None, "it waits for the collector"

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        asyncio.run(main())
    finally:
        if was_enabled:
            gc.enable()


def test_a_client_that_does_not_read_is_given_up() -> None:
    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    with pytest.raises(ClientGone):
        asyncio.run(respond(made(ServerLimits(write_seconds=0.01)), send, 200, b"x" * (2 * PIECE)))
