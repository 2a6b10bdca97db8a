"""A served agent over real sockets: slow and silent clients, stuck readers, and a server that stops."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.log.sqlite import SQLiteStore
from tests.served_process import Server, read_until, served, with_length

SERVER = """
import socket
import sys
from penstock.agent.agent import Agent
from penstock.asgi.limits import ServerLimits
from penstock.asgi.server import address_of, listen, run_server
from penstock.log.sqlite import SQLiteStore
from penstock.model.model import Model
from penstock.serve import app
from penstock.testing import Reply, Scripted, wait

def answer(request):
    if request.prompt == "slow":
        return Reply("first ", wait(60), "last")
    return ("x" * 500 + " ") * 1_000 if request.prompt == "large" else "Hello."

limits = ServerLimits(
    head_seconds=0.5, body_seconds=0.5, write_seconds=0.5, keep_alive_seconds=0.3, connections=int(sys.argv[2]),
)
agent = Agent(Model("openai:gpt-5", via=Scripted(answer)), name="support")
served = app(agent, log=SQLiteStore(sys.argv[1]), limits=limits, shutdown_seconds=0.2)
with listen("127.0.0.1", 0) as listener:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)  # else the system takes megabytes for a client
    print(listener.getsockname()[1], flush=True)
    run_server(served, listener, limits, on_stop=served.context.feeds.close)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with served(SERVER, tmp_path / "runs.db", "100") as server:
        yield server


def test_a_client_that_takes_too_long_is_disconnected(server: Server) -> None:
    with server.connection() as silent, server.connection() as slow:
        slow.sendall(b"GET /healthz HT")
        assert silent.recv(100) == b""
        assert slow.recv(100) == b""
    with server.connection() as dripping:
        dripping.sendall(with_length("POST /runs", '{"prompt": ', 100))
        assert b" 408 " in read_until(dripping, b"\r\n\r\n")
    assert server.request("GET /healthz")[0] == 200


def test_a_silent_stream_sends_comments_and_a_reader_that_leaves_is_noticed(server: Server) -> None:
    run_id = server.start("slow")
    with server.connection() as reader:
        reader.sendall(with_length(f"GET /runs/{run_id}/events"))
        read_until(reader, b": keep-alive")
        assert b"penstock_serve_readers 1\n" in server.request("GET /metrics")[1]
    server.until("/metrics", b"penstock_serve_readers 0\n")


def test_a_reader_that_does_not_read_is_disconnected_and_can_come_back(server: Server) -> None:
    run_id = server.start("large")
    with server.connection() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.sendall(with_length(f"GET /runs/{run_id}/events"))
        stuck.recv(10)
        status, events = server.request(f"GET /runs/{run_id}/events")
        assert (status, events.count(b'"type":"done"')) == (200, 1)
        server.until("/metrics", b"penstock_serve_readers 0\n")


@pytest.mark.parametrize("path", ["events", "messages"])
def test_clients_that_do_not_read_are_not_connections_for_ever(tmp_path: Path, path: str) -> None:
    with served(SERVER, tmp_path / "runs.db", "3") as server, ExitStack() as stack:
        run_id = server.start("large")
        server.request(f"GET /runs/{run_id}/events")  # until it is over
        for _ in range(2):
            stuck = stack.enter_context(socket.socket())
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect(("127.0.0.1", server.port))
            stuck.sendall(with_length(f"GET /runs/{run_id}/{path}"))
            stuck.recv(10)
        server.until("/healthz", b"ok")


def test_a_server_that_is_told_to_stop_ends_its_streams_and_gives_its_runs_back(server: Server) -> None:
    run_id = server.start("slow")
    with server.connection() as reader:
        reader.sendall(with_length(f"GET /runs/{run_id}/events"))
        read_until(reader, b"first")
        server.process.send_signal(signal.SIGTERM)
        while reader.recv(65536):
            pass
    assert server.process.wait(30) is not None
    store = SQLiteStore(server.log)
    try:
        row = store.find(run_id)
    finally:
        store.close()
    assert row is not None
    assert row.state == "ready"
