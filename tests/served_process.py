"""A server of agents in a process of its own, and sync clients with real sockets."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

SECONDS = 30
"""How long anything may take, on a busy machine."""


class Server:
    """The server, and its clients."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    @contextmanager
    def connection(self) -> Generator[socket.socket, None, None]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as connection:
            yield connection

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request; returns the status, the headers and the body of the response."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        every = {"host": "localhost", **({"content-type": "application/json"} if body is not None else {})}
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            client.request(method, path, raw, {**every, **(headers or {})})
            response = client.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            client.close()

    def request(self, head: str, body: str = "") -> tuple[int, bytes]:
        """Send a request with this first line; returns the status and the body of the response."""
        method, path = head.split()
        status, _, rest = self.send(method, path, body.encode() or None)
        return status, rest

    def start(self, prompt: str, path: str = "/runs", **headers: str) -> str:
        status, _, body = self.send("POST", path, {"prompt": prompt}, headers)
        assert status == 201, body
        return str(json.loads(body)["id"])

    def until(self, path: str, wanted: bytes, **headers: str) -> None:
        """Ask again until the response has this."""
        end = time.monotonic() + SECONDS
        while wanted not in self.send("GET", path, headers=headers)[2]:
            assert time.monotonic() < end, f"{path} has no {wanted!r}"


@contextmanager
def served(script: str, log: Path, *arguments: str) -> Generator[Server, None, None]:
    """A server that this script starts; it prints its port, and its first argument is the log."""
    command = [sys.executable, "-c", script, str(log), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield Server(process, int(cast("IO[str]", process.stdout).readline()), log)
    finally:
        process.kill()
        process.communicate()


def with_length(head: str, body: str = "", length: int | None = None, **headers: str) -> bytes:
    """A request as bytes, whose body may be said to be longer than it is."""
    lines = [f"{head} HTTP/1.1", "Host: localhost", "Connection: close"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {length or len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def read_until(connection: socket.socket, wanted: bytes) -> bytes:
    """What the server sends, up to this and what came with it."""
    got = b""
    while wanted not in got:
        piece = connection.recv(65536)
        assert piece, got[-500:]
        got += piece
    return got


def cut(connection: socket.socket) -> None:
    """Reset the connection, as a lost network does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
