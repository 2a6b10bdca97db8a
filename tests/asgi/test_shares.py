"""Each client has its share of a server's connections and memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.asgi.limits import ServerLimits
from penstock.asgi.request import HTTPRequest, RejectedRequest
from penstock.asgi.shares import BYTES_PER_VALUE, MEMORY_PER_BYTE, Connection, Connections, MemoryBudget, Share
from penstock.errors import UsageError

LIMITS = ServerLimits(connections=20, address_connections=5, tenant_connections=4, memory=300, client_memory=60)


class Server:
    """Connections with their addresses; `closed` has those that the server closed."""

    def __init__(self) -> None:
        self.connections = Connections(
            LIMITS, is_trusted=lambda address: address == "here", is_proxy=lambda address: address == "proxy"
        )
        self.closed: list[Connection] = []

    def connect(self, address: str) -> Connection | str:
        connection = Connection(address, lambda: self.closed.append(connection))
        return self.connections.admit(connection) or connection

    def connected(self, address: str) -> Connection:
        connection = self.connect(address)
        assert isinstance(connection, Connection)
        return connection


@pytest.fixture
def server() -> Server:
    return Server()


def known(name: str) -> Share:
    return Share(f"tenant {name}", is_known=True)


def test_an_address_with_too_many_connections_loses_the_one_that_is_idle_for_longest(server: Server) -> None:
    first, second, *_ = [server.connected("a") for _ in range(5)]
    server.connections.work(first)
    server.connected("a")
    assert server.closed == [second]
    server.connections.rest(first)  # it is idle since now
    for _ in range(4):
        server.connected("a")
    assert first not in server.closed
    server.connected("a")
    assert server.closed[-1] is first


def test_an_address_whose_connections_all_work_is_refused(server: Server) -> None:
    for _ in range(5):
        server.connections.work(server.connected("a"))
    assert server.connect("a") == "client"
    assert isinstance(server.connect("b"), Connection)


def test_half_of_the_connections_are_for_known_clients(server: Server) -> None:
    for number in range(10):
        server.connections.work(server.connected(f"address {number}"))
    assert server.connect("another") == "server"
    server.connections.rest(server.connected("here"))  # trusted
    assert not server.closed


def test_unknown_connections_make_room_and_known_ones_stay(server: Server) -> None:
    mine = server.connected("good")
    assert server.connections.know(mine, known("good"))
    server.connections.rest(mine)
    for number in range(1000):
        server.connected(f"address {number % 7}")
    assert mine not in server.closed
    assert len(server.closed) == 1000 - 10


def test_a_tenant_has_its_own_limit_over_all_addresses(server: Server) -> None:
    for number in range(4):
        assert server.connections.know(server.connected(f"address {number}"), known("t"))
    last = server.connected("address 9")
    assert not server.connections.know(last, known("t"))
    assert server.connections.know(last, known("other"))


def test_requests_by_a_proxy_count_for_their_clients(server: Server) -> None:
    for _ in range(15):
        assert server.connected("proxy").is_counted_by_request
    assert [server.connections.begin(known("t")) for _ in range(5)] == [True] * 4 + [False]
    server.connections.end(known("t"))
    assert server.connections.begin(known("t"))
    assert [server.connections.begin(Share("address x")) for _ in range(6)] == [True] * 5 + [False]


def test_counts_are_zero_when_everything_is_closed() -> None:
    chance = random.Random(7)
    for _ in range(200):
        server = Server()
        for connection in played(server, chance):
            server.connections.close(connection)
            server.connections.close(connection)  # a transport that the server closed is lost later
        inside = server.connections
        assert (inside._count, inside._unknown) == (0, 0)
        assert [inside._by_address, inside._by_client, inside._idle, inside._idle_of] == [{}, {}, {}, {}]


def played(server: Server, chance: random.Random) -> Iterator[Connection]:
    """The connections of a random course of events."""
    every: list[Connection] = []
    for _ in range(chance.randrange(60)):
        match chance.randrange(4):
            case 0:
                found = server.connect(chance.choice(["a", "b", "here", "proxy"]))
                every += [found] if isinstance(found, Connection) else []
            case 1 if every:
                server.connections.work(chance.choice(every))
            case 2 if every:
                server.connections.rest(chance.choice(every))
            case 3 if every:
                server.connections.know(chance.choice(every), known(chance.choice("tu")))
            case _:
                pass
    yield from every


def test_bytes_are_limited_per_client_and_in_all() -> None:
    budget = MemoryBudget(LIMITS)
    a, b, trusted = Share("a"), Share("b"), Share("", is_trusted=True)
    assert budget.take(a, 60) is None
    assert budget.take(a, 1) == "client"
    assert budget.take(b, LIMITS.memory // MEMORY_PER_BYTE - 60 + 1) == "server"
    assert budget.take(b, 1) is None
    budget.give_back(a, 60)
    assert budget.take(trusted, LIMITS.memory // MEMORY_PER_BYTE - 1) is None
    assert budget.take(b, 1) == "server"
    assert set(budget._by_client) == {"b", ""}


def scope(length: int | None = None) -> Any:
    headers = [(b"content-type", b"application/json")]
    headers += [] if length is None else [(b"content-length", b"%d" % length)]
    return {"type": "http", "method": "POST", "path": "/", "headers": headers, "client": ("a", 1)}


async def read(pieces: list[bytes], limits: ServerLimits, budget: MemoryBudget, length: int | None) -> HTTPRequest:
    """A request whose body has come in these pieces."""
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages[-1]["more_body"] = False
    waiting = iter(messages)

    async def receive() -> Any:
        return next(waiting)

    request = HTTPRequest(scope(length), receive, limits, "id", budget)
    await request.json()
    return request


@pytest.mark.parametrize("is_announced", [True, False])
def test_values_count_for_the_memory_of_a_client_and_are_given_back(is_announced: bool) -> None:
    body = b"[" + b"[]," * 1000 + b"0]"
    pieces = [body[start : start + 100] for start in range(0, len(body), 100)]
    size = len(body) + BYTES_PER_VALUE * 2001
    length = len(body) if is_announced else None
    for room, is_enough in ((size, True), (size - 1, False)):
        limits = ServerLimits(client_memory=room)
        budget = MemoryBudget(limits)
        if is_enough:
            request = asyncio.run(read(pieces, limits, budget, length))
            assert budget._used == size
            request.release()
            assert budget._used == 0
        else:
            with pytest.raises(RejectedRequest) as refused:
                asyncio.run(read(pieces, limits, budget, length))
            assert refused.value.status == 413


@pytest.mark.parametrize("name", ["memory", "connections", "body", "head_seconds", "values"])
def test_a_limit_of_zero_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}.*more than 0"):
        ServerLimits(**{name: 0})
    assert ServerLimits(retry_seconds=0).retry_seconds == 0
