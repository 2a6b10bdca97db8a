"""Errors that clients of a gateway get, and lines of its log: no addresses or objects, nothing hidden or forged."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.gateway import Upstream, app
from tests.asgi_client import serving
from tests.cases import each
from tests.gateways import chat

EVIL = "\x1b[2J\n01:00:00 ffff /v1/chat/completions status=200\u200b\U000e0041\u202e"
SECRET = "10.20.30.40"
HEADS = {
    "nothing": b"",
    "not HTTP": b"SSH-2.0-OpenSSH_9.0\r\n\r\n",
    "a header without a colon": b"HTTP/1.1 200 OK\r\nset-cookie: session=s3cret\r\nbroken line\r\n\r\n",
    "too many headers": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000 + b"\r\n",
    "a long header": b"HTTP/1.1 200 OK\r\nset-cookie: s3cret" + b"x" * 100_000 + b"\r\n\r\n",
    "a cut head": b"HTTP/1.1 200 OK\r\nset-cookie: s3cret\r\n",
    "a cut body": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
    "a wrong chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "gzip that is not": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nabcd",
    "a redirect": f"HTTP/1.1 307 Moved\r\nlocation: http://{SECRET}/v1\r\ncontent-length: 0\r\n\r\n".encode(),
    "a stream that breaks": (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        b'3d\r\ndata: {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}\n\n\r\nzz\r\n'
    ),
    "an evil message": (
        b"HTTP/1.1 400 No\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
        b'{"error": {"message": "\\u001b[2J\\n01:00:00 ffff /v1/chat/completions status=200'
        b'\\u200b\\udb40\\udc41\\u202e"}}'
    ),
}
ASKED: dict[str, dict[str, Any] | None] = {
    "/v1/chat/completions": chat(),
    "/v1/messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]},
    "/v1/embeddings": {"model": "m", "input": "x"},
    "/v1/messages/count_tokens": {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    "/v1/models": None,
}
HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e\U000e0041]")


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncGenerator[str]:
    """A server that sends these bytes, whatever it is asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def ask(answer: bytes, *, stream: bool = False) -> tuple[str, str]:
    """What a client reads, and the address of the server."""

    async def main() -> tuple[str, str]:
        async with raw_server(answer) as place:
            behind = Upstream(name="local", url=f"http://{place}/v1", provider="llamacpp", retries=0)
            async with serving(app(behind)) as browser:
                replies = [
                    await browser.get(path) if body is None else await browser.post(path, {**body, "stream": stream})
                    for path, body in ASKED.items()
                ]
                healed = (await browser.get("/healed")).body.decode()
        return "\n".join([*(reply.body.decode() for reply in replies), healed]), place

    return asyncio.run(main())


@each("name", HEADS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_error_has_no_address_and_no_object_of_the_http_client(name: str, stream: bool) -> None:
    text, place = ask(HEADS[name], stream=stream)
    for leak in (place, "127.0.0.1", "://", "url=", "Raw", "CIMulti", "<", "s3cret", SECRET):
        assert leak not in text.replace("<|", ""), (name, leak, text)


def test_a_redirect_is_only_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    text, _ = ask(HEADS["a redirect"])
    assert "local redirects to another address; the log has the address" in text
    assert f"local redirects to http://{SECRET}/v1" in caplog.text


def test_a_refused_connection_names_the_upstream() -> None:
    async def main() -> str:
        behind = Upstream(name="local", url="http://127.0.0.1:1/v1", provider="llamacpp", retries=0)
        async with serving(app(behind)) as browser:
            return (await browser.post("/v1/chat/completions", chat())).body.decode()

    assert "the connection to local failed: Connection refused" in asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_words_of_a_server_forge_no_line_and_hide_nothing(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    text, _ = ask(HEADS["an evil message"], stream=stream)
    assert "\\\\x1b[2J" in text, "it is spelled out"
    for escaped in ("\\u001b", "\\u200b", "\u200b", "\u202e", "\U000e0041"):
        assert escaped not in text.replace("\\\\u200b", "")
    for record in caplog.records:
        if record.name.startswith("penstock"):
            assert not HIDDEN.search(record.getMessage())
            assert "\n" not in record.getMessage()


def test_a_path_of_a_client_forges_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def main() -> list[Any]:
        async with serving(app("http://127.0.0.1:1/v1", key="k" * 20)) as browser:
            return [
                await browser.get(f"/a{EVIL}", **headers)
                for headers in ({}, {"authorization": f"Bearer {'k' * 20}"}, {"host": "evil.example"})
            ]

    replies = asyncio.run(main())
    assert [reply.status for reply in replies] == [401, 404, 401]
    assert not any(HIDDEN.search(reply.json["error"]["message"]) for reply in replies)
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.gateway"]
    assert len(lines) == len(replies)
    assert not any("\n" in line or HIDDEN.search(line) for line in lines)
