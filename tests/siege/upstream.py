"""A model server that does what the name of the model says: the good one answers, the others attack."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from collections.abc import Callable, Iterable
from contextlib import suppress

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def text(words: str) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": {"content": words}}]}
    return f"data: {json.dumps(chunk)}\n\n".encode()


def call(number: int, arguments: str = "{}") -> bytes:
    function = {"name": "bash", "arguments": arguments}
    calls = [{"index": number, "id": f"c{number}", "type": "function", "function": function}]
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'tool_calls': calls}}]})}\n\n".encode()


def good() -> Iterable[bytes]:
    return [SSE + b"\r\n", text("Hello"), text(" there."), END]


def quoted() -> Iterable[bytes]:
    """Twenty calls in the text, each of which is searched for in the conversation."""
    calls = (f'<tool_call>{{"name":"bash","arguments":{{"command":"run {n}"}}}}</tool_call>\n' for n in range(20))
    return [SSE + b"\r\n", text("".join(calls)), END]


def many_calls() -> Iterable[bytes]:
    yield SSE + b"\r\n"
    for start in range(0, 100_000, 100):
        yield b"".join(call(number) for number in range(start, start + 100))
    yield END


def long_line() -> Iterable[bytes]:
    return itertools.chain(
        [SSE + b'\r\ndata: {"choices":[{"index":0,"delta":{"content":"'], itertools.repeat(b"x" * 65536)
    )


def endless_text() -> Iterable[bytes]:
    return itertools.chain([SSE + b"\r\n"], itertools.repeat(text("word ") * 100))


def comments() -> Iterable[bytes]:
    return itertools.chain([SSE + b"\r\n"], itertools.repeat(b": nothing\n\n" * 1000))


def bomb() -> Iterable[bytes]:
    packed = gzip.compress(b": nothing\n\n" * 18_000_000, 9)
    return [SSE + b"content-encoding: gzip\r\n\r\n", packed]


def deep() -> Iterable[bytes]:
    frame = b'data: {"choices":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n\n"
    return itertools.chain([SSE + b"\r\n"], itertools.repeat(frame, 20), [END])


def endless_head() -> Iterable[bytes]:
    return itertools.chain([SSE], itertools.repeat(b"x-more: " + b"y" * 1000 + b"\r\n"))


def long_arguments() -> Iterable[bytes]:
    first = call(0, '{"command":"')
    piece = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"%s"}}]}}]}\n\n'
    return itertools.chain([SSE + b"\r\n", first], itertools.repeat(piece % (b"x" * 10_000)))


def many_events() -> Iterable[bytes]:
    return itertools.chain([SSE + b"\r\n"], itertools.repeat(text("a") * 1000, 600), [END])


def values() -> Iterable[bytes]:
    frame = b'data: {"choices":[{"index":0,"delta":{}}],"z":[' + b"[]," * 1_000_000 + b"0]}\n\n"
    return itertools.chain([SSE + b"\r\n"], itertools.repeat(frame, 10), [END])


MODELS: dict[str, Callable[[], Iterable[bytes]]] = {
    "good": good, "quoted": quoted, "calls": many_calls, "line": long_line, "endless": endless_text,
    "comments": comments, "bomb": bomb, "deep": deep, "head": endless_head, "arguments": long_arguments,
    "events": many_events, "values": values,
}  # fmt: skip


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request, as its model says."""
    with suppress(OSError, asyncio.IncompleteReadError, ValueError):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        body = await reader.readexactly(length)
        model = next((name for name in MODELS if f'"model":"{name}"'.encode() in body.replace(b" ", b"")), "good")
        for piece in MODELS[model]():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
    writer.close()


async def start() -> tuple[asyncio.Server, str]:
    """The server, and its URL."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 26)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
