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


def again(frame: bytes, count: int | None = None) -> Callable[[], Iterable[bytes]]:
    """A stream of one frame, again and again; without a count, endless."""
    frames = frame * max(1, 16_384 // len(frame))

    def model() -> Iterable[bytes]:
        endless = itertools.repeat(frames) if count is None else itertools.repeat(frames, count)
        return itertools.chain([SSE + b"\r\n"], endless, [END])

    return model


def one_frame(words: str, size: int) -> Callable[[], Iterable[bytes]]:
    """A frame with a long text."""
    return lambda: [SSE + b"\r\n", text(words * (size // len(words))), END]


def calls_in_body() -> Iterable[bytes]:
    """A body that is not streamed, with many calls."""
    function = {"name": "bash", "arguments": "{}"}
    calls = [{"id": f"c{number}", "type": "function", "function": function} for number in range(100_000)]
    choice = {"index": 0, "message": {"role": "assistant", "tool_calls": calls}, "finish_reason": "tool_calls"}
    body = json.dumps({"choices": [choice]}).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return [head + b"content-length: %d\r\n\r\n" % len(body), body]


def many_choices() -> Iterable[bytes]:
    yield SSE + b"\r\n"
    for start in itertools.count(0, 100):
        frames = (b'data: {"choices":[{"index":%d,"delta":{"content":"a"}}]}\n\n' % (start + n) for n in range(100))
        yield b"".join(frames)


def listed_arguments() -> Iterable[bytes]:
    """Arguments with many values, in one frame."""
    return [SSE + b"\r\n", call(0, '{"command":[' + "[]," * 1_000_000 + "0]}"), END]


def small_chunks() -> Iterable[bytes]:
    """A body in chunks of one byte."""
    head = SSE.replace(b"connection: close\r\n", b"transfer-encoding: chunked\r\n\r\n")
    return itertools.chain([head], itertools.repeat(b"1\r\n:\r\n" * 2000))


IN_TEXT = '<tool_call>{"name":"bash","arguments":{"command":"ls"}}</tool_call>\n'

MODELS: dict[str, Callable[[], Iterable[bytes]]] = {
    "good": good, "quoted": quoted, "calls": many_calls, "line": long_line, "endless": endless_text,
    "comments": comments, "bomb": bomb, "deep": deep, "head": endless_head, "arguments": long_arguments,
    "events": many_events, "values": values, "marks": one_frame("<", 1_000_000),
    "braces": one_frame("{", 1_000_000), "written": one_frame(IN_TEXT, 1_000_000), "body": calls_in_body,
    "choices": many_choices, "listed": listed_arguments, "chunks": small_chunks, "empty": again(b"data:\n\n"),
    "deltas": again(b'data: {"choices":[{"index":0,"delta":{}}]}\n\n'), "strays": again(b"x\n\n"),
    "unknown": again(b"data: {}\n\n"), "blocks": again(text("a") + text("b").replace(b"content", b"reasoning")),
}  # fmt: skip
"""By the name of the model. The name `calls` is asked for as `bad/calls`; the upstream gets what follows the slash."""


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
