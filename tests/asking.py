"""Shared parts of the tests of models: requests in both modes on every wire, and servers that misbehave."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from penstock import AsyncStream, Model, Retries, StreamChunk
from penstock.testing import Loopback, wait
from penstock.wires import wire_name

KEY = "sk-very-secret-0123456789"
PROVIDERS = {
    "anthropic": "anthropic:claude",
    "bedrock": "bedrock:anthropic.claude-v1:0",
    "cohere": "cohere:command",
    "gemini": "google:gemini",
    "gemini-interactions": "google:gemini",
    "mistral": "mistral:large",
    "ollama": "ollama:qwen",
    "openai-chat": "openai:gpt",
    "openai-responses": "openai:gpt",
}
"""The wires of the loopback server, and a model for each."""
WIRES = sorted(PROVIDERS)
ONCE = Retries(attempts=0)
SOON = Retries(first_delay=0.001)
PATIENCE = 20
"""Seconds until a test fails; it does not wait for them if all is well."""
FOREVER = wait(3600)
LONG = 15.0
"""Seconds that no test takes unless something fails to end."""
AT_ONCE = 4.0
"""Seconds that cancelling may take; the cancelled wait would take far longer."""

every_wire = pytest.mark.parametrize("wire", WIRES)
sync_and_async = pytest.mark.parametrize("mode", ["sync", "async"])


def model_at(server: Loopback, wire: str = "openai-chat", **options: Any) -> Model:
    """A model of the loopback server on a wire."""
    return model_on(wire, server.url if wire == "mistral" else server.base_url(wire), api_key=KEY, **options)


def model_on(wire: str, url: str = "http://localhost", **options: Any) -> Model:
    """A model on a wire; the server recognises Mistral by its path."""
    if wire == "mistral":
        return Model(PROVIDERS[wire], f"{url}/mistral/v1", **options)
    return Model(PROVIDERS[wire], url, wire=wire_name(wire), **options)


def read(mode: str, model: Model, messages: Any = "Hi.", **options: Any) -> tuple[list[StreamChunk], Any]:
    """The chunks of a response, and the stream that they were read from."""
    if mode == "sync":
        with model.stream(messages, **options) as stream:
            return list(stream), stream
    return asyncio.run(aread(model, messages, **options))


async def aread(model: Model, messages: Any = "Hi.", **options: Any) -> tuple[list[StreamChunk], AsyncStream]:
    async with model.astream(messages, **options) as stream:
        return [chunk async for chunk in stream], stream


def failure(mode: str, kind: type[Exception], model: Model, **options: Any) -> Any:
    """The error of a request, which must be of exactly this class and must not contain the key."""
    with pytest.raises(kind) as raised:
        read(mode, model, **options)
    assert type(raised.value) is kind
    assert KEY not in f"{raised.value} {raised.value!r} {vars(raised.value)}"
    return raised.value


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Assert that the block takes at most this long."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def in_thread(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


# Servers that cannot be scripted.


@contextmanager
def full_backlog() -> Iterator[str]:
    """A base URL at which a connection is never established, because the backlog is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        for one in waiting:
            one.close()


Serve = Callable[[socket.socket], None]


@contextmanager
def serving(serve: Serve) -> Iterator[str]:
    """The base URL of a server that handles each connection with a function."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads: list[threading.Thread] = []

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # the socket is closed
                    return
                threads.append(in_thread(partial(handle, connection)))

        def handle(connection: socket.socket) -> None:
            with connection:
                try:
                    serve(connection)
                except OSError:  # the client is gone
                    pass

        accepting = in_thread(accept)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join(PATIENCE)
        for thread in threads:
            thread.join(PATIENCE)


def request_of(connection: socket.socket) -> bytes:
    """A whole request as bytes."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def is_gone(connection: socket.socket, timeout: float = PATIENCE) -> bool:
    """Whether the other side closes the connection soon."""
    connection.settimeout(timeout)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


STREAMING = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
"""The head of a response that ends with the connection."""
