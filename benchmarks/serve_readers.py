"""The readers of the benchmark of serving: many sockets in one thread, so that they cost little beside the server."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.environment import ROOT

PATIENCE = 120.0
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Server:
    """A server process: what it has cost so far."""

    process: subprocess.Popen[str]
    port: int

    @property
    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def memory(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def post(self, path: str, body: dict[str, str] | None = None) -> dict[str, str]:
        with self.connect() as connection:
            data = json.dumps(body or {}).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
            whole = b"".join(iter(lambda: connection.recv(65536), b""))
        reply: dict[str, str] = json.loads(whole.partition(b"\r\n\r\n")[2].strip() or b"{}")
        return reply

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)


@contextmanager
def server(kind: str, events: int, interval: float) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.serve_server", kind, str(events), str(interval), folder]
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            yield Server(process, int(process.stdout.readline()))
        finally:
            process.kill()
            process.communicate()


@dataclass
class Reader:
    """A reader of a run: how many frames it has got, and how late each text came."""

    connection: socket.socket
    frames: int = 0
    delays: list[float] = field(default_factory=list)
    is_over: bool = False

    def take(self, data: bytes, now: float) -> None:
        self.frames += data.count(b"\ndata: ") + (data.startswith(b"data: "))
        for piece in data.split(b'"text":"@')[1:]:
            self.delays.append(now - float(piece[: piece.index(b" ")]))


def open_readers(at: Server, run_ids: Sequence[str], each: int, after: int = 0, receive: int = 0) -> list[Reader]:
    """So many readers per run, which have sent their requests."""
    readers: list[Reader] = []
    for run_id in run_ids:
        for _ in range(each):
            connection = socket.socket()
            if receive:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
            connection.settimeout(PATIENCE)
            connection.connect(("127.0.0.1", at.port))
            path = f"/runs/{run_id}/events?after={after}"
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            readers.append(Reader(connection))
    return readers


def read_heads(readers: Sequence[Reader]) -> None:
    """Wait until each response has begun."""
    for reader in readers:
        reader.take(reader.connection.recv(65536), time.monotonic())


def read_all(readers: Sequence[Reader]) -> None:
    """Read until each stream has ended."""
    selector = selectors.DefaultSelector()
    for reader in readers:
        reader.connection.setblocking(False)
        selector.register(reader.connection, selectors.EVENT_READ, reader)
    left, end = len(readers), time.monotonic() + PATIENCE
    while left and time.monotonic() < end:
        for key, _ in selector.select(1):
            reader, data = key.data, key.fileobj.recv(65536)  # type: ignore[union-attr]
            reader.take(data, time.monotonic())
            if not data or data.endswith(b"0\r\n\r\n"):
                selector.unregister(key.fileobj)
                reader.is_over = bool(data)
                reader.connection.close()
                left -= 1
    selector.close()
