"""The load on a relay: many streams at once, and what they cost the process of the relay.

This process is the server behind and the clients in front at once. Each chunk has the time at which it was sent, and
the client reads it back, so that one clock measures the latency. After the time comes a piece of prose with every
letter, in pieces as long as the tokens of models.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

STREAMS = 200
CHUNKS = 100
INTERVAL = 0.05
SPREAD = 1.0
"""The seconds over which the clients arrive: they do not come at once."""
WARM_UP = 3
"""How many times each of 20 clients asks before anything is measured: imports, connections, caches."""

PROSE = (
    "The quick brown fox jumps over the lazy dog, and the dog asks itself why. A common answer is that jumping costs "
    "less than walking around: a fox weighs about six kilograms, carries almost nothing, and has a clear view of what "
    "comes next. Before each jump it stops, measures the distance with its ears as much as with its eyes, and then "
    "commits. As soon as it has landed it looks back; a second attempt is rarely necessary. In contrast, an average "
    "dog acts at once, corrects its course three or four times, and arrives at about the same place. Which of the two "
    "is better depends on the task. For a single obstacle the fox wins; across a field of zigzagging hares, quite a "
    "few observers expect the opposite. The data is small, so nobody can be certain, but a careful comparison exists. "
)
"""What the server writes, again and again."""
PIECES = [piece.encode() for piece in re.findall(r"\s?\S{1,5}", PROSE)]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": parameters}}}
    for name, parameters in {
        "read_file": {"path": {"type": "string"}},
        "write_file": {"path": {"type": "string"}, "content": {"type": "string"}},
        "bash": {"command": {"type": "string"}},
        "grep": {"pattern": {"type": "string"}, "path": {"type": "string"}},
        "edit": {"path": {"type": "string"}, "old": {"type": "string"}, "new": {"type": "string"}},
    }.items()
]
"""The tools of a coding agent."""

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_SENT = re.compile(rb'"content": ?"(\d{12,})')
_STARTS = count(step=7)
"""Where in the prose each response begins."""
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass
class Load:
    """What one crowd of streams cost."""

    cpu: float = 0.0  # µs per chunk
    memory: float = 0.0  # kB per stream
    lags: list[float] = field(default_factory=list)  # seconds from server to client
    first: list[float] = field(default_factory=list)  # seconds until the head of the response
    whole: int = 0  # streams that ended well

    @property
    def times(self) -> list[float]:
        """The median and the 99th percentile of the lags, and the median until the head, in milliseconds."""
        lags = statistics.quantiles(self.lags, n=100)
        return [seconds * 1000 for seconds in (lags[49], lags[98], statistics.median(self.first))]


@asynccontextmanager
async def upstream() -> AsyncGenerator[int]:
    """The port of the server behind."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=4096)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def run(port: int, process: int | None = None, *, has_tools: bool = False) -> Load:
    """Streams through the relay at this port; the CPU time and the memory are those of its process."""
    fields = {"tools": TOOLS} if has_tools else {}
    for _ in range(WARM_UP):
        await _crowd(port, 20, 3, 0.1, Load(), fields)
    load, cpu, memory = Load(), _cpu(process), [_memory(process)]
    sampling = asyncio.create_task(_sample(process, memory))
    await _crowd(port, STREAMS, CHUNKS, SPREAD, load, fields)
    sampling.cancel()
    load.cpu = (_cpu(process) - cpu) / (STREAMS * CHUNKS) * 1e6
    load.memory = (max(memory) - memory[0]) / STREAMS
    return load


async def _crowd(port: int, streams: int, chunks: int, spread: float, load: Load, fields: dict[str, Any]) -> None:
    request = {"model": f"m{chunks}", "stream": True, "messages": [{"role": "user", "content": "Hi."}]}
    body = json.dumps(request | fields)
    await asyncio.gather(*(_client(port, body, number / streams * spread, load) for number in range(streams)))


async def _client(port: int, body: str, delay: float, load: Load) -> None:
    await asyncio.sleep(delay)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asked = time.monotonic()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body.encode())
    )
    await reader.readuntil(b"\r\n\r\n")
    load.first.append(time.monotonic() - asked)
    rest = b""
    while data := await reader.read(65536):
        now = time.monotonic_ns()
        load.lags += [(now - int(sent)) / 1e9 for sent in _SENT.findall(data)]
        rest = (rest + data)[-100:]
    load.whole += b"[DONE]" in rest
    writer.close()


async def _serve(reader: StreamReader, writer: StreamWriter) -> None:
    """Answers the requests of a connection, each with a stream whose chunks have the time at which they were sent."""
    try:
        while not reader.at_eof():
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = re.search(rb"content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            await _answer(body, writer)
            if b"connection: close" in head:
                break
    except (EOFError, ConnectionError, asyncio.CancelledError):  # the relay, or the measurement, has ended
        pass
    finally:
        writer.close()


async def _answer(body: bytes, writer: StreamWriter) -> None:
    """Writes the stream for a request: as many chunks as the name of its model says."""
    match = re.search(rb'"m(\d+)"', body)
    writer.write(HEAD)
    first = next(_STARTS)
    for number in range(int(match[1]) if match else 0):
        piece = PIECES[(first + number) % len(PIECES)]
        _write(writer, b'{"content":"%d%s"}' % (time.monotonic_ns(), piece), b"null")
        await asyncio.sleep(INTERVAL)
    _write(writer, b"{}", b'"stop"')
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def _write(writer: StreamWriter, delta: bytes, reason: bytes) -> None:
    frame = (
        b'data: {"id":"chatcmpl-1234567890abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m",'
        b'"service_tier":"default","system_fingerprint":"fp_0123456789","choices":[{"index":0,"delta":%s,'
        b'"logprobs":null,"finish_reason":%s}],"obfuscation":"0123456789"}\n\n' % (delta, reason)
    )
    writer.write(b"%x\r\n%s\r\n" % (len(frame), frame))


async def _sample(process: int | None, samples: list[float]) -> None:
    while True:
        samples.append(_memory(process))
        await asyncio.sleep(0.2)


def _cpu(process: int | None) -> float:
    """The seconds of CPU time that a process has used."""
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory(process: int | None) -> float:
    """The resident memory of a process in kB."""
    if process is None:
        return 0.0
    match = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text(encoding="utf-8"))
    return float(match[1]) if match else 0.0
