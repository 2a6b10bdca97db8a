"""WebSocket handshakes that are refused: without a library with 426, so that clients such as Codex use HTTP at once."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest
import uvicorn

import penstock
import penstock.gateway
import penstock.serve

SECONDS = 30.0
HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: {upgrade}\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def app_of(kind: str) -> Any:
    if kind == "serve":
        return penstock.serve.app(penstock.Agent("sim:fast", name="support"))
    return penstock.gateway.app("http://127.0.0.1:9/v1")


@contextmanager
def served(app: Any, implementation: str) -> Generator[int]:
    """The port of a server with one of the WebSocket implementations of uvicorn."""
    config: Any = {"ws": implementation, "log_level": "error"}
    server = uvicorn.Server(uvicorn.Config(app, **config))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            end = time.monotonic() + SECONDS
            while not server.started:
                assert time.monotonic() < end
                time.sleep(0.01)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(SECONDS)


def answer_to(port: int, request: str) -> tuple[int, str, bytes]:
    """The status, the head and the body of a response, to the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
        connection.sendall(request.encode())
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), body


@pytest.mark.parametrize("kind", ["serve", "gateway"])
def test_without_a_library_a_handshake_at_the_responses_path_gets_426(kind: str) -> None:
    with served(app_of(kind), "none") as port:
        for path, upgrade in (("/v1/responses", "websocket"), ("/v1/responses/?x=1", "WebSocket")):
            status, head, body = answer_to(port, HANDSHAKE.format(path=path, upgrade=upgrade))
            assert (status, "connection: close" in head) == (426, True), head
            assert "POST" in json.loads(body)["error"]["message"]
        plain = "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert answer_to(port, plain)[0] == 405


@pytest.mark.parametrize("kind", ["serve", "gateway"])
@pytest.mark.parametrize("implementation", ["auto", "websockets-sansio", "wsproto"])
def test_with_a_library_only_the_responses_path_is_opened(kind: str, implementation: str) -> None:
    if find_spec(implementation.partition("-")[0]) is None and implementation != "auto":
        pytest.skip(f"{implementation} is not installed")
    with served(app_of(kind), implementation) as port:
        with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
            connection.sendall(HANDSHAKE.format(path="/v1/responses", upgrade="websocket").encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 101 ")
        status, _, _ = answer_to(
            port, HANDSHAKE.format(path="/v1/models/x", upgrade="websocket").replace(": Up", ": close, Up")
        )
        assert status in (403, 404, 405)


@pytest.mark.parametrize("kind", ["serve", "gateway"])
def test_a_handshake_is_closed_where_no_response_can_be_sent(kind: str) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    evil = [(b"host", b"localhost"), (b"origin", b"https://evil.example")]
    for path, headers in (("/v1/responses", evil), ("/runs", evil[:1])):
        scope: dict[str, Any] = {"type": "websocket", "path": path, "headers": headers, "extensions": None}
        asyncio.run(app_of(kind)(scope, receive, send))
    assert [(message["type"], message["code"]) for message in sent] == [
        ("websocket.close", 1008),
        ("websocket.close", 1003),
    ]
