"""A served agent over real sockets: slow and silent clients, stuck readers, and a server that stops."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.log import SQLiteStore
from penstock.serve.feeds.feed import PAGE_BYTES
from tests.served_process import Server, read_until, served, with_length

SERVER = """
import json
import socket
import sys
from penstock.agent.agent import Agent
from penstock.asgi.limits import ServerLimits
from penstock.asgi.server import address_of, listen, run_server
from penstock.log.sqlite.store import SQLiteStore
from penstock.model.model import Model
from penstock.serve import app
from penstock.testing import Reply, Scripted, wait

def answer(request):
    if request.prompt == "slow":
        return Reply("first ", wait(60), "last")
    return ("x" * 500 + " ") * 1_000 if request.prompt == "large" else "Hello."

seconds = {"head_seconds": 0.5, "body_seconds": 0.5, "write_seconds": 0.5, "keep_alive_seconds": 0.3}
limits = ServerLimits(**{**seconds, **json.loads(sys.argv[2])})
agent = Agent(Model("openai:gpt-5", via=Scripted(answer)), name="support")
served = app(agent, log=SQLiteStore(sys.argv[1]), limits=limits, shutdown_seconds=0.2)
with listen("127.0.0.1", 0) as listener:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)  # else the system takes megabytes for a client
    print(listener.getsockname()[1], flush=True)
    run_server(served, listener, limits, on_stop=served.context.feeds.close)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with served(SERVER, tmp_path / "runs.db", "{}") as server:
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
    with served(SERVER, tmp_path / "runs.db", '{"connections": 3}') as server, ExitStack() as stack:
        run_id = server.start("large")
        server.request(f"GET /runs/{run_id}/events")  # until it is over
        for _ in range(2):
            stuck = stack.enter_context(socket.socket())
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect(("127.0.0.1", server.port))
            stuck.sendall(with_length(f"GET /runs/{run_id}/{path}"))
            stuck.recv(10)
        server.until("/healthz", b"ok")


def test_a_response_that_is_too_long_ends_and_its_reader_comes_back_for_the_rest(tmp_path: Path) -> None:
    with served(SERVER, tmp_path / "runs.db", '{"answer": 100000, "write_seconds": 30}') as server:
        run_id = server.start("large")
        responses: list[bytes] = []
        after = "0"
        while not responses or b'"type":"done"' not in responses[-1]:
            status, events = server.request(f"GET /runs/{run_id}/events?after={after}")
            assert (status, bool(events)) == (200, True)
            responses.append(events)
            after = (b"\n" + events).rpartition(b"\nid: ")[2].partition(b"\n")[0].decode()
    texts = [event.count(b'"type":"text"') for event in responses]
    assert max(texts) * 500 < 100_000 + PAGE_BYTES + 10_000
    lines = b"".join(responses).splitlines()
    numbers = [int(line[4:].partition(b"-")[0]) for line in lines if line.startswith(b"id: ")]
    assert numbers == sorted({*numbers})
    assert sum(line.count(b"x") for line in lines if b'"type":"text"' in line) > 500_000


def test_an_event_that_is_too_large_is_sent_shortened(tmp_path: Path) -> None:
    with served(SERVER, tmp_path / "runs.db", '{"event": 2000, "write_seconds": 30}') as server:
        run_id = server.start("Tell me about " + "birds " * 1_000)
        events = server.request(f"GET /runs/{run_id}/events")[1]
    sizes = [len(line) for line in events.splitlines() if line.startswith(b"data: ")]
    assert max(sizes) < 2_100
    assert b"Tell me about" in events
    assert b"(shortened)" in events


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


@pytest.mark.parametrize("pause", [0.0, 0.01])
def test_the_text_of_a_model_response_arrives_whole_whether_or_not_the_client_is_slow(
    server: Server, pause: float
) -> None:
    """The pieces are written where they turn up, unless the client does not read fast enough."""
    asked = {"model": "support", "stream": True, "messages": [{"role": "user", "content": "large"}]}
    with server.connection() as connection:
        connection.sendall(with_length("POST /v1/chat/completions", json.dumps(asked)))
        received = b""
        while piece := connection.recv(16_384):
            received += piece
            if len(received) < 1_000_000:
                time.sleep(pause)
    frames = [line[6:] for line in received.split(b"\n") if line.startswith(b"data: {")]
    choices = [choice for frame in frames for choice in json.loads(frame)["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == ("x" * 500 + " ") * 1_000
    assert choices[-1]["finish_reason"] == "stop"
