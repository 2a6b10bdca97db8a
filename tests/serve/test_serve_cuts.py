"""Connections that are cut at every event of a run of three steps, over real sockets.

The clients of AI SDK (6 and 7) and AG-UI are cut in `tests/clients`; these are the protocols without a client.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.serve.models.api import WIRES
from tests.served_process import Server, cut, served, with_length

SERVER = """
import sys
from penstock.agent.agent import Agent
from penstock.asgi.limits import ServerLimits
from penstock.asgi.server import listen, run_server
from penstock.log.sqlite.store import SQLiteStore
from penstock.model.model import Model
from penstock.serve import app
from penstock.testing import Reply, Scripted, call, wait
from penstock.tools.tool import tool

@tool(read_only=True)
def look(city: str) -> str:
    "Look."
    return f"{city} is clear"

def answer(request):
    steps = Reply("One. ", call("look", {"city": "Rome"})), Reply("Two. ", call("look", {"city": "Oslo"}))
    last = Reply("All is clear.", wait(60), "Never.") if request.prompt == "hang" else "All is clear."
    return (*steps, last)[len(request.results)]

limits = ServerLimits(retry_seconds=0.3)  # a cut cancels a run that nobody joins after this time
agent = Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[look], name="support")
served = app(agent, log=SQLiteStore(sys.argv[1]), limits=limits, shutdown_seconds=0.2)
with listen("127.0.0.1", 0) as listener:
    print(listener.getsockname()[1], flush=True)
    run_server(served, listener, limits, on_stop=served.context.feeds.close)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(SERVER, Path(tmp_path_factory.mktemp("cuts")) / "runs.db") as server:
        yield server


def frames(connection: socket.socket, most: int) -> list[bytes]:
    """Up to so many frames of a stream; a frame that has not come whole does not count."""
    got = b""
    while (whole := got.partition(b"\r\n\r\n")[2].replace(b"\r\n", b"\n")).count(b"\n\n") < most:
        piece = connection.recv(4096)
        if not piece:
            break
        got += piece
    found = whole.split(b"\n\n")[:-1]
    return [b"\n".join(line for line in frame.split(b"\n") if b": " in line) for frame in found][:most]


def event_of(frame: bytes) -> tuple[int, dict[str, Any]]:
    lines = dict(line.split(": ", 1) for line in frame.decode().splitlines() if not line.startswith(":"))
    return int(lines["id"].partition("-")[0]), json.loads(lines["data"])


def message(events: list[tuple[int, dict[str, Any]]]) -> list[Any]:
    """What a client shows of a run: its text, the calls and their results; nothing of it twice."""
    numbers = [number for number, _ in events]
    assert numbers == sorted({*numbers})
    shown: list[Any] = [event["text"] for _, event in events if event["type"] == "text"]
    shown += [(event["name"], event["arguments"]) for _, event in events if event["type"] == "tool_call"]
    shown += [event["result"]["text"] for _, event in events if event["type"] == "tool_end"]
    return [*shown, events[-1][1]["output"]]


def test_a_run_that_is_followed_with_a_cut_after_any_event_gives_the_same_message(server: Server) -> None:
    whole = read_run(server, server.start("go"), 1000, 0)
    expected = message(whole)
    assert expected[-3:] == ["Rome is clear", "Oslo is clear", "All is clear."]
    assert len(whole) > 30
    for count in range(len(whole)):
        run_id = server.start("go")
        first = read_run(server, run_id, count, 0)
        rest = read_run(server, run_id, 1000, first[-1][0] if first else 0)
        assert message([*first, *rest]) == expected, f"cut after {count} events"


def read_run(server: Server, run_id: str, most: int, after: int) -> list[tuple[int, dict[str, Any]]]:
    """The events of a run after a number, on a connection that is reset after so many."""
    with server.connection() as connection:
        connection.sendall(with_length(f"GET /runs/{run_id}/events", Last_Event_ID=str(after)))
        events = [event_of(frame) for frame in frames(connection, most) if b"data: " in frame]
        cut(connection)
    return events


@pytest.mark.parametrize("path", WIRES)
def test_a_response_that_is_cut_after_any_piece_cancels_its_run(server: Server, path: str) -> None:
    body: dict[str, Any] = {"model": "support", "max_tokens": 100, "stream": True}
    body |= {"input": "hang"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "hang"}]}
    request, count, is_last = with_length(f"POST {path}", json.dumps(body)), 1, False
    while not is_last:
        with server.connection() as connection:
            connection.sendall(request)
            pieces = frames(connection, count)
            assert len(pieces) == count  # nothing ends this response but the client
            is_last = any(b"clear." in piece for piece in pieces)
            cut(connection)
        count += 1
        server.until("/metrics", b"penstock_serve_runs 0\n")
        [newest, *_] = json.loads(server.send("GET", "/runs?state=over")[2])["runs"]
        assert json.loads(server.send("GET", f"/runs/{newest['id']}")[2])["done"]["reason"] == "cancelled"
    assert count > 8


@pytest.mark.parametrize("path", WIRES)
def test_a_whole_response_that_nobody_waits_for_cancels_its_run(server: Server, path: str) -> None:
    body: dict[str, Any] = {"model": "support", "max_tokens": 100}
    body |= {"input": "hang"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "hang"}]}
    with server.connection() as connection:
        connection.sendall(with_length(f"POST {path}", json.dumps(body)))
        server.until("/metrics", b"penstock_serve_runs 1\n")
        cut(connection)
    server.until("/metrics", b"penstock_serve_runs 0\n")
    [newest, *_] = json.loads(server.send("GET", "/runs?state=over")[2])["runs"]
    assert json.loads(server.send("GET", f"/runs/{newest['id']}")[2])["done"]["reason"] == "cancelled"
