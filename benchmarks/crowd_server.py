"""A cheap server with one response, in its own process: `python -m benchmarks.crowd_server CHUNKS`.

It implements a minimum of HTTP, and its response is encoded in advance. The first part of a path names the lane of a
stream; the line `TICK lane` on a connection advances a group of the streams of that lane by one frame. So streams are
not faster than their readers, and frames do not pile up. Requests in the lane `at-once` get the whole response at once.
Prints its port; ends when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterator

from benchmarks.content import words
from benchmarks.streams import openai_chat_text

GROUPS = 8
"""The number of groups of a lane; each tick advances one of them."""
BACKLOG = 4096
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Lane:
    """The open streams, with the rest of each."""

    def __init__(self) -> None:
        self._groups = deque[dict[asyncio.WriteTransport, Iterator[bytes]]]({} for _ in range(GROUPS))

    def add(self, transport: asyncio.WriteTransport, writes: Iterator[bytes]) -> None:
        min(self._groups, key=len)[transport] = writes

    def advance(self) -> None:
        group = self._groups[0]
        self._groups.rotate()
        for transport, writes in list(group.items()):
            if transport.is_closing() or (data := next(writes, None)) is None:
                del group[transport]
            else:
                transport.write(data)


class Connection(asyncio.Protocol):
    """A connection with requests, or with ticks."""

    def __init__(self, writes: list[bytes], lanes: defaultdict[bytes, Lane]) -> None:
        self._writes = writes
        self._lanes = lanes
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._buffer.startswith(b"TICK"):
            *ticks, self._buffer = self._buffer.split(b"\n")
            for tick in ticks:
                self._lanes[tick.removeprefix(b"TICK ")].advance()
            return
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if found and len(body) >= _length(head):
            self._buffer = b""
            self._answer(head.split(b"/")[1])

    def _answer(self, lane: bytes) -> None:
        self._transport.write(HEAD)
        if lane == b"at-once":
            self._transport.writelines(self._writes)
        else:
            self._lanes[lane].add(self._transport, iter(self._writes))


def _length(head: bytes) -> int:
    fields = (line.partition(b":") for line in head.lower().split(b"\r\n"))
    return next((int(value) for name, _, value in fields if name == b"content-length"), 0)


def _in_chunks(frames: tuple[bytes, ...]) -> list[bytes]:
    """The encoded response: one HTTP chunk per frame, and the end with the last."""
    *others, last = (b"%x\r\n%s\r\n" % (len(frame), frame) for frame in frames)
    return [*others, last + b"0\r\n\r\n"]


async def serve(chunks: int) -> None:
    writes, lanes = _in_chunks(openai_chat_text(words(chunks)).frames), defaultdict[bytes, Lane](Lane)
    loop, closed = asyncio.get_running_loop(), asyncio.Event()
    server = await loop.create_server(lambda: Connection(writes, lanes), "127.0.0.1", 0, backlog=BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(closed.set)), daemon=True).start()
    await closed.wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
