"""A served agent over real sockets: slow and silent clients, stuck readers, and a server that stops."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import pytest

from penstock.log.sqlite import SQLiteStore

SERVER = """
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
    return Reply("x" * 2_000_000) if request.prompt == "large" else "Hello."

limits = ServerLimits(head_seconds=0.5, body_seconds=0.5, write_seconds=0.5, keep_alive_seconds=0.3)
agent = Agent(Model("openai:gpt-5", via=Scripted(answer)), name="support")
served = app(agent, log=SQLiteStore(sys.argv[1]), limits=limits, shutdown_seconds=0.2)
with listen("127.0.0.1", 0) as listener:
    print(listener.getsockname()[1], flush=True)
    run_server(served, listener, limits, on_stop=served.context.feeds.close)
"""


class Server:
    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            yield connection

    def request(self, head: str, body: str = "") -> tuple[int, bytes]:
        """Send a request; returns the status and the body of the response."""
        with self.connection() as connection:
            connection.sendall(with_length(head, body))
            whole = b"".join(iter(lambda: connection.recv(65536), b""))
        top, _, rest = whole.partition(b"\r\n\r\n")
        return int(top.split()[1]), rest

    def start(self, prompt: str) -> str:
        status, body = self.request("POST /runs", json.dumps({"prompt": prompt}))
        assert status == 201
        return str(json.loads(body)["id"])


def with_length(head: str, body: str = "", length: int | None = None) -> bytes:
    lines = [f"{head} HTTP/1.1", "Host: localhost", "Connection: close"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {length or len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    command = [sys.executable, "-c", SERVER, str(tmp_path / "runs.db")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = int(cast("IO[str]", process.stdout).readline())
        yield Server(process, port, tmp_path / "runs.db")
    finally:
        process.kill()
        process.communicate()


def read_until(connection: socket.socket, wanted: bytes) -> bytes:
    got = b""
    while wanted not in got:
        piece = connection.recv(65536)
        assert piece, got[-500:]
        got += piece
    return got


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
    end = time.monotonic() + 30
    while b"penstock_serve_readers 0\n" not in server.request("GET /metrics")[1]:
        assert time.monotonic() < end


def test_a_reader_that_does_not_read_is_disconnected_and_can_come_back(server: Server) -> None:
    run_id = server.start("large")
    with server.connection() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.sendall(with_length(f"GET /runs/{run_id}/events"))
        stuck.recv(10)
        status, events = server.request(f"GET /runs/{run_id}/events")
        assert (status, events.count(b'"type":"done"')) == (200, 1)
        end = time.monotonic() + 30
        while b"penstock_serve_readers 0\n" not in server.request("GET /metrics")[1]:
            assert time.monotonic() < end


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
