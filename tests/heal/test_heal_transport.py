"""Healing under SDKs: what needs none passes byte for byte, what is damaged is healed, and our faults do no harm."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
from aiohttp import web

import penstock.heal
from penstock import Healing, UsageError
from penstock.heal import HealReport
from penstock.heal.exchange import Healer
from penstock.heal.frame_cuts import FrameCuts
from penstock.heal.frame_lane import FrameLane
from penstock.heal.response import ResponseHealing
from penstock.heal.stream import HealedStream
from penstock.healing.decoding import HealedDecoding
from tests.budget import places
from tests.cases import each
from tests.growth import assert_linear
from tests.heal.habit_replies import CHAT, NEEDS, chunks_of, expected
from tests.support import Vector, pieces_of, random_pieces, vectors

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Look."}], "tools": TOOLS}
URL = "http://server/v1/chat/completions"
SSE = {"content-type": "text/event-stream"}


def sse(*chunks: Any) -> bytes:
    sent = [one if isinstance(one, bytes) else b"data: %b\n\n" % json.dumps(one).encode() for one in chunks]
    return b"".join(sent) + b"data: [DONE]\n\n"


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "gen-1", "model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


class Pieces(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that comes in pieces; an exception is raised."""

    def __init__(self, pieces: list[bytes | Exception]) -> None:
        self.pieces = pieces
        self.is_closed = False
        self.read = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            self.read += 1
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            await asyncio.sleep(0)
            yield piece

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.is_closed = True


class Server(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """A transport that answers with one response, and keeps the requests."""

    def __init__(self, body: bytes | Pieces, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.body = body if isinstance(body, Pieces) else Pieces([body])
        self.headers = headers or SSE
        self.status = status
        self.requests: list[httpx2.Request] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        extensions = {"http_version": b"HTTP/1.1"}
        return httpx2.Response(self.status, headers=self.headers, stream=self.body, extensions=extensions)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.handle_request(request)


def client(server: Server, reports: list[HealReport] | None = None, healing: Healing | None = None) -> httpx2.Client:
    on_healed = None if reports is None else reports.append
    return httpx2.Client(transport=penstock.heal.transport(server, healing=healing, on_healed=on_healed))


def ask(server: Server, *, stream: bool = True, reports: list[HealReport] | None = None, **options: Any) -> bytes:
    with client(server, reports, **options) as http:
        return http.post(URL, json={**ASKED, "stream": stream}).content


# What passes unchanged.


def random_exchange(seed: int) -> tuple[str, str, bytes, dict[str, str], int, dict[str, str], bytes]:
    """A request that no protocol knows, or a response that is not healed."""
    chance = random.Random(seed)
    known = chance.random() < 0.5
    path = chance.choice(("/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat")) if known else (
        "/" + "/".join(chance.choice(("v1", "files", "embeddings", "audio", "chat", "completions", "models", "x:y"))
                       for _ in range(chance.randrange(4)))
    )  # fmt: skip
    path = path.replace("chat/completions", "chat/completionz") if not known else path
    body = chance.choice((b"", chance.randbytes(chance.randrange(2000)), json.dumps(ASKED).encode(), b'{"model"'))
    content = chance.choice((chance.randbytes(chance.randrange(5000)), b"<html>no</html>", sse(delta(content="Hi."))))
    status = chance.choice((400, 401, 404, 429, 500, 503)) if known else chance.choice((200, 201, 204, 302, 404, 500))
    types = ("text/event-stream", "application/json", "text/html", "application/octet-stream", "audio/mpeg", "")
    headers = {"content-type": chance.choice(types), "x-request-id": f"req-{seed}", "retry-after": "1"}
    if chance.random() < 0.3:
        content, headers["content-encoding"] = gzip.compress(content, mtime=0), "gzip"
    method = chance.choice(("POST", "POST", "GET", "PUT", "DELETE"))
    return method, path, body, {"content-type": chance.choice(types)}, status, headers, content


def test_what_is_not_known_passes_byte_for_byte() -> None:
    """A thousand random requests: unknown paths, uploads, binary bodies, errors."""
    reports: list[HealReport] = []
    for seed in range(1000):
        method, path, body, sent, status, headers, content = random_exchange(seed)
        server = Server(content, headers, status)
        with client(server, reports) as http:
            request = http.build_request(method, f"http://server{path}", content=body, headers=sent)
            with http.stream(request.method, request.url, content=body, headers=sent) as response:
                received = b"".join(response.iter_raw())
        assert received == content, seed
        assert response.status_code == status
        assert {name: response.headers.get(name) for name in headers} == headers
        assert server.requests[0].content == body
        assert server.body.is_closed
    assert not reports


@each("vector", vectors(), ids=lambda vector: f"{vector.wire}-{vector.name}")
def test_a_right_stream_passes_byte_for_byte_or_is_reported(vector: Vector) -> None:
    """However it is cut, the same bytes come out; and they decode to at least the calls that came."""
    paths = {"openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses", "anthropic": "/v1/messages",
             "ollama": "/api/chat"}  # fmt: skip
    if vector.wire not in paths or vector.quirks:
        return
    body = vector.body()
    whole = healed_bytes(vector.wire, paths[vector.wire], [body])
    for cutting in (
        [*pieces_of(body, 1)],
        random_pieces(body, 1),
        *([body[:at], body[at:]] for at in places(len(body), 4)),
    ):
        assert calls_in(vector.wire, healed_bytes(vector.wire, paths[vector.wire], cutting)) == calls_in(
            vector.wire, whole
        )


def calls_in(wire: Any, body: bytes) -> list[Any]:
    turn = penstock.collect(penstock.decode(body, wire))
    return [turn.text, turn.finish_reason, *((call.name, call.arguments) for call in turn.tool_calls)]


def healed_bytes(wire: str, path: str, pieces: list[bytes], tools: Any = TOOLS) -> bytes:
    asked = {"model": "m", "messages": ASKED["messages"], "max_tokens": 9, "stream": True, "input": "Look."}
    asked = {
        key: value
        for key, value in asked.items()
        if (key == "input") == (wire == "openai-responses") or key in ("model", "stream")
    }
    exchange = Healer().begin("POST", path, "", json.dumps(asked).encode(), 200, "text/event-stream")
    assert exchange is not None
    return b"".join(map(exchange.stage.feed, pieces)) + exchange.stage.close()


def test_a_right_stream_keeps_fields_that_only_the_server_knows() -> None:
    entry = {"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": ""}}
    body = sse(
        delta(role="assistant", content=""),
        {**delta(content="Let's <see> {it}"), "system_fingerprint": "fp", "logprobs": [1]},
        delta(tool_calls=[entry]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a": 1}'}}]),
        delta("tool_calls"),
        {"id": "gen-1", "choices": [], "usage": {"total_tokens": 1}, "x": 1},
    )
    reports: list[HealReport] = []
    assert ask(Server(Pieces([*pieces_of(body, 7)])), reports=reports) == body
    assert not reports


def test_a_right_body_passes_byte_for_byte_with_its_encoding() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
    body = json.dumps({"id": "x", "choices": [choice], "extra": 1}).encode()
    packed = gzip.compress(body, mtime=0)
    server = Server(
        packed, {"content-type": "application/json", "content-encoding": "gzip", "content-length": str(len(packed))}
    )
    with client(server) as http, http.stream("POST", URL, json={**ASKED, "stream": False}) as response:
        assert b"".join(response.iter_raw()) == packed
    assert response.headers["content-encoding"] == "gzip"


# What is healed.


@pytest.mark.parametrize("habit", CHAT)
def test_a_healed_stream_does_not_depend_on_the_cuts(habit: str) -> None:
    body = sse(*chunks_of(habit))
    healing = Healing(**NEEDS.get(habit, {}))

    def found(pieces: list[bytes]) -> list[Any]:
        sent = ask(Server(Pieces([*pieces])), healing=healing)
        turn = penstock.collect(penstock.decode(sent, "openai-chat"))
        return [turn.text, turn.finish_reason, [call.arguments for call in turn.tool_calls]]

    whole = found([body])
    assert whole[2] == expected(habit)
    for cutting in (
        [*pieces_of(body, 1)],
        random_pieces(body, 3),
        *([body[:at], body[at:]] for at in places(len(body), 20)),
    ):
        assert found(cutting) == whole


def call_frames(arguments: str, size: int) -> list[bytes]:
    """A call whose arguments come in pieces of this size, and text before it."""
    entry = {"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": ""}}
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    deltas = [delta(content=word) for word in ("Let ", "me ", "look < ", "at [it] ", "and `so`\n", "on. ")]
    deltas += [delta(tool_calls=[entry])]
    deltas += [delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}]) for piece in pieces]
    frames = [b"data: %b\n\n" % json.dumps(one).encode() for one in (*deltas, delta("tool_calls"))]
    return [*frames, b"data: [DONE]\n\n"]


DAMAGED = ("{text}", "{}{text}", "{text},", "```json\n{text}\n```", "{text}</tool_call>", "{half}", "{text}{text}")


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("size", [1, 3, 8])
def test_the_fast_lane_sends_what_the_reference_sends(damage: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({"files": [{"name": "größer", "n": 1.5, "is": True}] * 9, "command": 'a "b" \n c ' * 9})
    frames = call_frames(damage.replace("{text}", text).replace("{half}", text[: len(text) // 2]), size)
    reads = ([*frames], random_pieces(b"".join(frames), size))
    fast = [ask(Server(Pieces([*pieces]))) for pieces in reads]
    monkeypatch.setattr(FrameLane, "open_after", lambda *_: None)
    slow = [ask(Server(Pieces([*pieces]))) for pieces in reads]
    assert fast[0] == slow[0]
    assert [calls_in("openai-chat", one) for one in fast] == [calls_in("openai-chat", one) for one in slow]
    assert (fast[0] == b"".join(frames)) == (damage == "{text}")


def test_nearly_all_frames_of_a_call_take_the_fast_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[bytes] = []
    feed = HealedDecoding.feed

    def count(self: HealedDecoding, data: bytes) -> Any:
        fed.append(data)
        return feed(self, data)

    monkeypatch.setattr(HealedDecoding, "feed", count)
    frames = call_frames(json.dumps({"text": "words \n" * 200, "rows": [1, 2, 3] * 50}), 4)
    assert ask(Server(Pieces([*frames]))) == b"".join(frames)
    assert len(fed) < len(frames) / 10


HERMES = '<tool_call>\n{"name": "look", "arguments": {"command": "ls"}}\n</tool_call>'


def test_a_healed_response_keeps_its_id_and_headers() -> None:
    packed = gzip.compress(sse(delta(content="Hi. "), delta(content=HERMES), delta("stop")))
    headers = {
        **SSE,
        "content-encoding": "gzip",
        "content-length": "1",
        "x-request-id": "r",
        "openai-processing-ms": "3",
    }
    reports: list[HealReport] = []
    with client(Server(packed, headers), reports) as http:
        response = http.post(URL, json={**ASKED, "stream": True})
    assert {"x-request-id", "openai-processing-ms"} <= response.headers.keys()
    assert not {"content-length", "content-encoding"} & response.headers.keys()
    assert response.extensions["http_version"] == b"HTTP/1.1"
    ids = {json.loads(line[6:])["id"] for line in response.text.splitlines() if line.startswith("data: {")}
    assert ids == {"gen-1"}
    [report] = reports
    assert [one.quirk for one in report.healed] == [86]
    assert (report.path, report.wire, report.problem) == ("/v1/chat/completions", "openai-chat", "")


def test_a_body_instead_of_a_stream_becomes_a_stream() -> None:
    entry = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None, "tool_calls": [entry]},
        "finish_reason": "stop",
    }
    server = Server(json.dumps({"id": "x", "choices": [choice]}).encode(), {"content-type": "application/json"})
    with client(server) as http:
        response = http.post(URL, json={**ASKED, "stream": True})
    assert response.headers["content-type"] == "text/event-stream"
    assert response.content.startswith(b"data: {")
    assert b'"tool_calls"' in response.content


def test_a_quoted_call_stays_text() -> None:
    asked = {**ASKED, "stream": True, "messages": [{"role": "user", "content": f"What is {HERMES}?"}]}
    body = sse(delta(content=HERMES), delta("stop"))
    with client(Server(body)) as http:
        assert penstock.collect(penstock.decode(http.post(URL, json=asked).content, "openai-chat")).text == HERMES


@pytest.mark.parametrize("at", range(5, 400, 13))
def test_a_cut_response_never_looks_whole(at: int) -> None:
    body = sse(delta(content="Hi. "), delta(content=HERMES), delta("stop"))[:at]
    turn = penstock.collect(penstock.decode(ask(Server(body)), "openai-chat"))
    assert turn.finish_reason in ("cut", "error")
    assert not turn.tool_calls


def test_what_arrived_before_a_broken_connection_is_passed_on() -> None:
    first = b"data: %b\n\n" % json.dumps(delta(content="Hi <")).encode()
    server = Server(Pieces([first, httpx2.ReadError("broken")]))
    received: list[bytes] = []
    with client(server) as http, http.stream("POST", URL, json={**ASKED, "stream": True}) as response:
        data = response.iter_bytes()
        received.append(next(data))
        with pytest.raises(httpx2.ReadError):
            next(data)
    assert received == [first]
    assert server.body.is_closed


def test_the_upstream_is_closed_when_the_client_leaves() -> None:
    server = Server(Pieces([sse(delta(content="Hi."))] * 50))
    with client(server) as http, http.stream("POST", URL, json={**ASKED, "stream": True}) as response:
        next(response.iter_bytes())
    assert server.body.is_closed
    assert server.body.read < 3


def test_the_upstream_is_closed_when_a_task_is_cancelled() -> None:
    server = Server(Pieces([sse(delta(content="Hi."))] * 10_000))

    async def read() -> None:
        http = httpx2.AsyncClient(transport=penstock.heal.transport(AsyncServer(server)))
        async with http, http.stream("POST", URL, json={**ASKED, "stream": True}) as response:
            async for _ in response.aiter_bytes():
                asyncio.current_task().cancel()  # type: ignore[union-attr]

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(read())
    assert server.body.is_closed


class AsyncServer(httpx2.AsyncBaseTransport):
    def __init__(self, server: Server) -> None:
        self.server = server

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.server.handle_request(request)


# Bad input.


@pytest.mark.parametrize("kind", ["text/html", "text/event-stream", "application/json"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_page_is_passed_on(kind: str, stream: bool) -> None:
    page = b"<!doctype html><html><body>Sign in</body></html>\n\n"
    received = ask(Server(page, {"content-type": kind}), stream=stream)
    assert page in received or b"error" in received
    assert penstock.collect(penstock.decode(received, "openai-chat")).finish_reason in ("cut", "error", "other", None)


def test_a_gzip_bomb_is_read_as_without_healing() -> None:
    bomb = gzip.compress(b"x" * 40_000_000)
    received = ask(Server(bomb, {"content-type": "application/json", "content-encoding": "gzip"}), stream=False)
    assert len(received) == 40_000_000


def test_an_endless_line_is_passed_on_after_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.heal.stream.MAX_KEPT", 10_000)
    reports: list[HealReport] = []
    for path in ("/v1/chat/completions", "/v1/messages"):
        line: list[bytes | Exception] = [b"data: " + b"x" * 1000] * 50
        with client(Server(Pieces(line)), reports) as http:
            asked = {**ASKED, "stream": True, "max_tokens": 1, "tools": []}
            assert http.post(f"http://server{path}", json=asked).content == b"".join(line)  # type: ignore[arg-type]
    assert [bool(report.problem) for report in reports] == [True, True]


def test_a_large_body_is_passed_on_after_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.heal.response.MAX_KEPT", 10_000)
    body = json.dumps({"choices": [{"message": {"content": "x" * 20_000, "tool_calls": {}}}]}).encode()
    assert ask(Server(body, {"content-type": "application/json"}), stream=False) == body


@pytest.mark.parametrize("stream", [True, False])
def test_an_encoding_that_the_library_cannot_decode_passes_unchanged(stream: bool) -> None:
    body = b"\x00\x01 not text"
    server = Server(body, {**SSE, "content-encoding": "gzip, of-the-future"})
    with client(server) as http, http.stream("POST", URL, json={**ASKED, "stream": stream}) as response:
        assert b"".join(response.iter_raw()) == body
    assert response.headers["content-encoding"] == "gzip, of-the-future"


class Redirecting(Server):
    """A server that redirects once."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path.startswith("/old"):
            return httpx2.Response(307, headers={"location": URL})
        return super().handle_request(request)


def test_a_redirected_request_is_healed() -> None:
    server = Redirecting(sse(delta(content=HERMES), delta("stop")))
    with client(server) as http:
        url = "http://server/old/v1/chat/completions"
        received = http.post(url, json={**ASKED, "stream": True}, follow_redirects=True).content
    assert calls_in("openai-chat", received)[2:] == [("look", {"command": "ls"})]


def test_a_transport_for_sync_and_async_code_heals_in_both() -> None:
    async def ask_async() -> bytes:
        server = Server(sse(delta(content=HERMES), delta("stop")))
        async with httpx2.AsyncClient(transport=penstock.heal.transport(server)) as http:
            return (await http.post(URL, json={**ASKED, "stream": True})).content

    assert asyncio.run(ask_async()) == ask(Server(sse(delta(content=HERMES), delta("stop"))))


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("stream", [True, False])
def test_if_healing_fails_the_original_bytes_go_on(after: int, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def fail(self: object, data: bytes) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            raise ZeroDivisionError("a fault of ours")
        return real(self, data)  # type: ignore[arg-type]

    real = HealedDecoding.feed
    monkeypatch.setattr(HealedDecoding, "feed", fail)
    reports: list[HealReport] = []
    words = ("one", "two", "<tool_call>")
    pieces = [b"data: %b\n\n" % json.dumps(delta(content=f"{word} ")).encode() for word in words]
    body = b"".join(pieces)
    received = ask(Server(Pieces([*pieces]), SSE), stream=stream, reports=reports)
    if stream or not after:
        assert received == body
        assert ["ZeroDivisionError" in report.problem for report in reports] == [True]


def test_a_fault_while_the_request_is_read_is_reported_and_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("penstock.heal.exchange.read_request", fail)
    reports: list[HealReport] = []
    body = sse(delta(content="Hi."))
    assert ask(Server(body), reports=reports) == body
    assert len(reports) == 1


def test_a_callback_that_fails_does_not_end_the_response() -> None:
    def fail(report: HealReport) -> None:
        raise ValueError(report)

    server = Server(sse(delta(content=HERMES), delta("stop")))
    with httpx2.Client(transport=penstock.heal.transport(server, on_healed=fail)) as http:
        assert b"tool_calls" in http.post(URL, json={**ASKED, "stream": True}).content


def test_an_upload_is_not_read() -> None:
    server = Server(b"{}", {"content-type": "application/json"})

    def upload() -> Iterator[bytes]:
        yield b"a"

    with client(server) as http:
        assert http.post(URL, content=upload()).content == b"{}"


def test_healing_is_linear() -> None:
    def work(size: int) -> Callable[[], object]:
        chunk = b"data: %b\n\n" % json.dumps(delta(content="some <text> {that} ")).encode()
        exchange = Healer().begin(
            "POST", URL, "", json.dumps({**ASKED, "stream": True}).encode(), 200, "text/event-stream"
        )
        assert exchange is not None
        return lambda: [exchange.stage.feed(chunk) for _ in range(size)]

    assert_linear(work, 2_000)


def test_frames_are_cut_at_their_ends() -> None:
    body = b"event: a\ndata: 1\n\n\r\n\r\ndata: 2\r\n\r\ndata: 3\n\nrest"
    for size in range(1, len(body)):
        cuts = FrameCuts()
        frames = [frame for piece in pieces_of(body, size) for frame in cuts.feed(piece)]
        assert b"".join(frames) + (rest := cuts.close()) == body
        assert rest == b"rest"


# Clients and sessions.


@pytest.mark.parametrize("library", [httpx2, httpx])
def test_a_client_of_either_library_keeps_its_mounts(library: Any) -> None:
    http = penstock.heal.Client(library=library.__name__, mounts={"all://other": library.HTTPTransport()})
    with http:
        assert isinstance(http, library.Client)
        names = {type(one).__name__ for one in (http._transport, *http._mounts.values()) if one is not None}
        assert names == {"HealingTransport"}
        once = http._transport.inner
        penstock.heal.attach(http)
        assert http._transport.inner is once, "attached again, it heals once"


def test_an_object_without_a_client_is_refused() -> None:
    with pytest.raises(UsageError, match="has no HTTP client"):
        penstock.heal.attach(object())
    with pytest.raises(UsageError, match="not a transport"):
        penstock.heal.transport(object())


@pytest.mark.parametrize("stream", [True, False])
def test_a_session_of_aiohttp_heals(stream: bool) -> None:
    text = sse(delta(content="Hi. "), delta(content=HERMES), delta("stop"))
    message = {"role": "assistant", "content": HERMES}
    whole = json.dumps({"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    reports: list[HealReport] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/other":
            return web.Response(body=await request.read(), content_type="text/event-stream")
        if not stream:
            return web.Response(body=whole, content_type="application/json")
        response = web.StreamResponse(headers=SSE)
        await response.prepare(request)
        for piece in pieces_of(text, 40):
            await response.write(piece)
        return response

    async def run() -> bytes:
        app = web.Application()
        app.router.add_post("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = site.name.replace("0.0.0.0", "127.0.0.1")
        port = runner.addresses[0][1]
        url = f"http://127.0.0.1:{port}"
        middleware = penstock.heal.aiohttp_middleware(on_healed=reports.append)
        try:
            async with aiohttp.ClientSession(middlewares=(middleware,)) as session:
                async with session.post(f"{url}/other", data=b"\x00\xff") as response:
                    assert await response.read() == b"\x00\xff"
                asked = {**ASKED, "stream": stream}
                async with session.post(f"{url}/v1/chat/completions", json=asked) as response:
                    lines = [line async for line in response.content]
                    return b"".join(lines)
        finally:
            await runner.cleanup()

    turn = penstock.collect(penstock.decode(asyncio.run(run()), "openai-chat"))
    assert [call.arguments for call in turn.tool_calls] == [{"command": "ls"}]
    assert [one.quirk for report in reports for one in report.healed] == [86]


def test_a_stage_without_io_has_feed_and_close() -> None:
    from penstock.heal.requests import read_request

    request = read_request("POST", URL, "", json.dumps({**ASKED, "stream": True}).encode())
    assert request is not None
    stage = HealedStream(ResponseHealing(request, Healing()))
    assert stage.feed(b"") == b""
    assert b"error" in stage.close(), "a response without an end"


def test_a_larger_request_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.heal.requests.MAX_REQUEST", 10)
    body = sse(delta(content=HERMES), delta("stop"))
    assert ask(Server(body)) == body


def test_the_id_is_looked_for_in_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.heal.frame_lane.MAX_HEAD", 1)
    body = sse(b"data: {}\n\n", delta(content="Hi. "), delta(content=HERMES), delta("stop"))
    assert b'"gen-1"' not in ask(Server(body)).split(b"tool_calls")[-1]


def test_text_that_is_held_for_long_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the text before it would be delayed."""
    monkeypatch.setattr("penstock.heal.frame_lane.MAX_HELD_READS", 1)
    exchange = Healer().begin("POST", URL, "", json.dumps({**ASKED, "stream": True}).encode(), 200, "text/event-stream")
    assert exchange is not None
    first, *others = (
        b"data: %b\n\n" % json.dumps(delta(content=text)).encode() for text in ("Hi <tool", "_call>", "{")
    )
    assert exchange.stage.feed(first) == b""
    assert b'"Hi "' in b"".join(map(exchange.stage.feed, others))
