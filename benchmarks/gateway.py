"""What the gateway costs: CPU time per chunk, memory per stream and added latency, beside a relay that copies bytes.

This process is the server behind and the clients in front at once. Each chunk has the time at which it was sent, and
the client reads it back, so that one clock measures the latency. The relays are processes of their own and take turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.environment import ROOT
from benchmarks.process import variables
from benchmarks.report import Report, Table, say

STREAMS = 200
CHUNKS = 60
INTERVAL = 0.1
ROUNDS = 2
CPU_TARGET = 1.5
"""How many times the CPU time per chunk of the relay the gateway may take."""
MEMORY_TARGET = 50.0
"""How many kB a stream may take."""

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_SENT = re.compile(rb'"content":"(\d{12,})')
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass
class Load:
    """What one crowd of streams cost."""

    cpu: float = 0.0  # µs per chunk
    memory: float = 0.0  # kB per stream
    lags: list[float] = field(default_factory=list)  # seconds from server to client
    first: list[float] = field(default_factory=list)  # seconds until the head of the response
    whole: int = 0  # streams that ended well


def measure() -> Report:
    report = Report()
    if not Path("/proc/self/stat").exists():
        report.skipped.append("gateway: CPU time of other processes is read from /proc")
        return report
    loads: dict[str, list[Load]] = {"relay": [], "gateway": []}
    for _ in range(ROUNDS):
        for kind, many in loads.items():
            say(f"{STREAMS} streams through the {kind}")
            many.append(asyncio.run(_load(kind)))
    best = {kind: min(many, key=lambda load: load.cpu) for kind, many in loads.items()}
    relay, gateway = best["relay"], best["gateway"]
    lost = sum(STREAMS - load.whole for many in loads.values() for load in many)
    if lost:
        report.missed.append(f"{lost} streams were lost")
    rows = [_row(kind, load) for kind, load in best.items()]
    rows[1][2] = report.judge("CPU per chunk, times the relay", gateway.cpu / relay.cpu, CPU_TARGET)
    rows[1][3] = report.judge("kB per stream", gateway.memory, MEMORY_TARGET)
    title = f"gateway: {STREAMS} streams, {CHUNKS} chunks of text, one every {INTERVAL * 1000:.0f} ms"
    columns = ["", "µs/chunk", "× relay", "kB/stream", "lag p50 ms", "lag p99 ms", "first p50 ms"]
    report.tables.append(Table(title, columns, rows))
    report.rows += [{"kind": kind, "cpu": load.cpu, "memory": load.memory} for kind, load in best.items()]
    return report


def _row(kind: str, load: Load) -> list[str]:
    lags = statistics.quantiles(load.lags, n=100)
    times = [f"{value * 1000:.2f}" for value in (lags[49], lags[98], statistics.median(load.first))]
    return [kind, f"{load.cpu:.1f}", "1.00", f"{load.memory:.0f}", *times]


async def _load(kind: str) -> Load:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=4096)
    upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    with _relay(kind, upstream) as (pid, port):
        load = Load()
        await _crowd(port, 20, 3, Load())  # imports and connections
        cpu, memory = _cpu(pid), _memory(pid)
        peak = asyncio.create_task(_peak(pid))
        await _crowd(port, STREAMS, CHUNKS, load)
        load.cpu = (_cpu(pid) - cpu) / (STREAMS * CHUNKS) * 1e6
        peak.cancel()
        load.memory = (_peaks.pop(pid, memory) - memory) / STREAMS
    server.close()
    return load


async def _crowd(port: int, streams: int, chunks: int, load: Load) -> None:
    await asyncio.gather(*(_client(port, chunks, number / streams * INTERVAL, load) for number in range(streams)))


async def _client(port: int, chunks: int, delay: float, load: Load) -> None:
    await asyncio.sleep(delay)
    body = json.dumps(
        {"model": f"m{chunks}", "stream": True, "messages": [{"role": "user", "content": "Hi."}]}
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asked = time.monotonic()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
    )
    await reader.readuntil(b"\r\n\r\n")
    load.first.append(time.monotonic() - asked)
    rest = b""
    while data := await reader.read(65536):
        now = time.monotonic_ns()
        load.lags += [(now - int(sent)) / 1e9 for sent in _SENT.findall(data)]
        rest = data
    load.whole += b"[DONE]" in rest or b"0\r\n\r\n" in rest
    writer.close()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The server behind: a stream whose chunks have the time at which they were sent."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    body = await reader.readexactly(int(length[1]) if length else 0)
    match = re.search(rb'"m(\d+)"', body)
    writer.write(HEAD)
    for _ in range(int(match[1]) if match else 0):
        _write(writer, b'{"content":"%d word "}' % time.monotonic_ns(), b"null")
        await asyncio.sleep(INTERVAL)
    _write(writer, b"{}", b'"stop"')
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    writer.close()


def _write(writer: asyncio.StreamWriter, delta: bytes, reason: bytes) -> None:
    frame = (
        b'data: {"id":"chatcmpl-1234567890abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m",'
        b'"system_fingerprint":"fp_0123456789","choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]}\n\n'
        % (delta, reason)
    )
    writer.write(b"%x\r\n%s\r\n" % (len(frame), frame))


@contextmanager
def _relay(kind: str, upstream: str) -> Generator[tuple[int, int]]:
    """The id and the port of a relay."""
    command = [sys.executable, "-m", "benchmarks.gateway_server", kind, upstream]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=variables(), stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.stdin.close()


_peaks: dict[int, float] = {}


async def _peak(pid: int) -> None:
    while True:
        _peaks[pid] = max(_peaks.get(pid, 0.0), _memory(pid))
        await asyncio.sleep(0.2)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory(pid: int) -> float:
    """The resident memory of a process in kB."""
    match = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    return float(match[1]) if match else 0.0
