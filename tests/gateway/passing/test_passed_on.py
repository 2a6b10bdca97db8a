"""Completions and embeddings through a gateway: passed on to the upstream as they are, with its keys and fallbacks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from aiohttp import web

from penstock.gateway import GatewayApp, GatewaySettings, ModelRoute, Target, Upstream, app
from penstock.gateway.fallbacks import FAILURES
from tests.asgi_client import Browser, Reply, serving
from tests.gateways import events, openai_client, web_server

NOBODY = "http://127.0.0.1:1/v1"
FRAMES = [
    b'data: {"id": "c", "object": "text_completion", "created": 1, "model": "m", ',
    b'"choices": [{"index": 0, ',
    b'"text": "def \\u00e9\xc3", "finish_reason": null, "logprobs": null}]}\n\n: odd\r\n',
    b"\ndata: [DO",
    b"NE]\n\n",
]
COMPLETION = {
    "id": "c", "object": "text_completion", "created": 1, "model": "q",
    "choices": [{"index": 0, "text": "  return", "finish_reason": "stop", "logprobs": None}],
}  # fmt: skip
VECTORS = {
    "object": "list", "model": "q", "usage": {"prompt_tokens": 3, "total_tokens": 3},
    "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -1.0]}],
}  # fmt: skip


class Server:
    """A server with completions and embeddings; it keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None, Any]] = []
        self.is_left = asyncio.Event()
        self.frames: list[bytes] = FRAMES

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body: Any = await request.json() if request.can_read_body else None
        if request.method == "POST":
            self.asked.append((request.path_qs, request.headers.get("authorization"), body))
        if request.path == "/v1/embeddings":
            return web.json_response(VECTORS)
        if request.path != "/v1/completions":
            return web.json_response({"error": {"message": "no such page"}}, status=404)
        if body["prompt"] == "long":
            message = "This model's maximum context length is 100 tokens. However, you requested 120 tokens."
            return web.json_response({"error": {"message": message}}, status=400)
        if body["prompt"] == "busy":
            return web.json_response({"error": {"message": "later"}}, status=429, headers={"retry-after": "7"})
        if not body.get("stream"):
            return web.json_response(COMPLETION)
        return await self._stream(request, body)

    async def _stream(self, request: web.Request, body: Any) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for frame in self.frames[:3] if body["prompt"] in ("cut", "endless") else self.frames:
            await response.write(frame)
        if body["prompt"] == "cut" and request.transport is not None:
            request.transport.abort()
        while body["prompt"] == "endless":
            try:
                await response.write(b": more\n\n")
                await asyncio.sleep(0.01)
            except (OSError, asyncio.CancelledError):
                self.is_left.set()
                raise
        return response


@asynccontextmanager
async def behind(server: Server, provider: str = "vllm", **options: Any) -> AsyncGenerator[Browser]:
    """A client of a gateway in front of a server."""
    async with web_server(server.answer) as url:
        upstream = Upstream(name="local", url=f"{url}/v1", provider=provider, retries=0)
        async with serving(app(upstream, **options)) as browser:
            yield browser


def run(test: Callable[[Server, Browser], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        server = Server()
        async with behind(server, **options) as browser:
            await test(server, browser)

    asyncio.run(main())


def ask(prompt: str = "def f", *, is_streaming: bool = False) -> dict[str, Any]:
    return {"model": "m", "prompt": prompt, "suffix": "\n", "max_tokens": 9, "odd": {"a": [1]}, "stream": is_streaming}


def test_a_completion_is_passed_on_as_it_is() -> None:
    async def test(server: Server, browser: Browser) -> None:
        reply = await browser.post("/v1/completions", ask(), authorization="Bearer mine")
        assert (reply.status, reply.json) == (200, COMPLETION)
        assert reply.headers["x-penstock-upstream"] == "local"
        assert server.asked == [("/v1/completions", "Bearer mine", ask())]
        [row] = (await browser.get("/healed")).json["requests"]
        assert (row["path"], row["upstream"], row["status"], row["problem"]) == ("/v1/completions", "local", 200, "")

    run(test)


def test_the_bytes_of_a_stream_stay_as_they_are() -> None:
    async def test(server: Server, browser: Browser) -> None:
        reply = await browser.post("/v1/completions", ask(is_streaming=True))
        assert reply.body == b"".join(FRAMES)
        assert reply.headers["content-type"].startswith("text/event-stream")

    run(test)


SECRET = "sk-local-4711-4711"
SPLIT = [
    b'data: {"choices": [{"index": 0, "text": "sk-local"}]}\n\n',
    b'data: {"message": "wrong key sk-lo',
    b'cal-4711-4711", "object": "error"}\n\ndata: {"error": {"message": "Bearer sk-local-4711\\u002d4711"}}\n\n',
]
"""A stream that repeats the key of its request, the first time in two reads and the second time with an escape."""


@pytest.mark.parametrize("is_streaming", [False, True])
@pytest.mark.parametrize("frames", [SPLIT, [b'{"error": "wrong key sk-local-4711-4711"}']])
def test_the_key_in_an_error_is_masked(
    frames: list[bytes], is_streaming: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KEY", SECRET)

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.headers["authorization"] == f"Bearer {SECRET}"
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for frame in frames:
            await response.write(frame)
            await asyncio.sleep(0.02)
        return response

    async def main() -> None:
        async with web_server(answer) as url:
            upstream = Upstream(name="local", url=f"{url}/v1", provider="vllm", key="env:LOCAL_KEY", retries=0)
            async with serving(app(upstream)) as browser:
                reply = await browser.post("/v1/completions", ask(is_streaming=is_streaming))
                assert reply.status == 200
                assert b"4711" not in reply.body
                assert b"wrong key ***" in reply.body
                if frames is SPLIT:
                    assert reply.body.startswith(SPLIT[0])
                    assert reply.body.endswith(b'"}}\n\n')

    asyncio.run(main())


def test_a_server_that_does_not_stream_sends_json() -> None:
    async def test(server: Server, browser: Browser) -> None:
        server.frames = [json.dumps(COMPLETION).encode()]
        reply = await browser.post("/v1/completions", ask(is_streaming=True))
        assert (reply.json, reply.headers["content-type"]) == (COMPLETION, "application/json")

    run(test)


def test_the_sdk_of_openai_reads_completions_and_embeddings() -> None:
    async def test(server: Server, browser: Browser) -> None:
        client = openai_client(browser)
        completion = await client.completions.create(model="m", prompt="def f")
        assert completion.choices[0].text == "  return"
        server.frames = [b'data: {"choices": [{"index": 0, "text": "a"}]}\n\n', b"data: [DONE]\n\n"]
        stream = await client.completions.create(model="m", prompt="def f", stream=True)
        assert [part.choices[0].text async for part in stream] == ["a"]
        embeddings = await client.embeddings.create(model="m", input=["x"], encoding_format="float")
        assert embeddings.data[0].embedding == [0.25, -1.0]
        with pytest.raises(openai.RateLimitError, match="later"):
            await client.completions.create(model="m", prompt="busy")

    run(test)


def test_an_error_keeps_its_status_and_the_pause() -> None:
    async def test(server: Server, browser: Browser) -> None:
        for is_streaming in (False, True):
            reply = await browser.post("/v1/completions", ask("busy", is_streaming=is_streaming))
            assert (reply.status, reply.headers["retry-after"]) == (429, "7")
            assert "later" in reply.json["error"]["message"]

    run(test)


def test_a_prompt_that_is_too_long_has_the_code_that_clients_look_for() -> None:
    async def test(server: Server, browser: Browser) -> None:
        for is_streaming in (False, True):
            reply = await browser.post("/v1/completions", ask("long", is_streaming=is_streaming))
            assert (reply.status, reply.json["error"]["code"]) == (400, "context_length_exceeded")
        assert (await browser.post("/v1/completions", [])).json["error"]["code"] != "context_length_exceeded"

    run(test)


@pytest.mark.parametrize("body", [[], {"prompt": "x"}, {"model": 3}])
def test_a_body_without_a_model_is_refused(body: Any) -> None:
    async def test(server: Server, browser: Browser) -> None:
        reply = await browser.post("/v1/embeddings", body)
        assert reply.status == 400
        assert server.asked == []

    run(test)


def test_the_key_of_the_gateway_is_needed_and_not_passed_on() -> None:
    key = "k" * 20

    async def test(server: Server, browser: Browser) -> None:
        assert (await browser.post("/v1/completions", ask())).status == 401
        assert (await browser.post("/v1/completions", ask(), authorization=f"Bearer {key}")).status == 200
        assert [authorization for _, authorization, _ in server.asked] == [None]

    run(test, key=key)


def test_an_upstream_of_another_protocol_has_no_completions() -> None:
    async def test(server: Server, browser: Browser) -> None:
        reply = await browser.post("/v1/completions", ask(), authorization="Bearer mine")
        assert reply.status == 400
        assert "local speaks anthropic, which has no /completions" in reply.json["error"]["message"]

    run(test, provider="anthropic")


def test_an_ollama_server_gets_them_at_its_other_protocol() -> None:
    async def main() -> None:
        server = Server()
        async with web_server(server.answer) as url, serving(app(f"ollama={url}")) as browser:
            assert (await browser.post("/v1/embeddings", {"model": "m", "input": "x"})).json == VECTORS
            assert [path for path, _, _ in server.asked] == ["/v1/embeddings"]

    asyncio.run(main())


def routed(url: str) -> GatewayApp:
    """A gateway whose first upstream is down."""
    upstreams = {
        name: Upstream(name=name, url=url, provider="vllm", retries=0) for name, url in (("a", NOBODY), ("b", url))
    }
    route = ModelRoute(pattern="code-*", target=Target("a", "x"), fallbacks=(Target("b", "q"),))
    return app(settings=GatewaySettings(upstreams=upstreams, routes=(route,)))


@pytest.mark.parametrize("is_streaming", [False, True])
def test_routes_and_fallbacks_are_those_of_other_requests(is_streaming: bool) -> None:
    async def main() -> None:
        server = Server()
        async with web_server(server.answer) as url, serving(routed(f"{url}/v1")) as browser:
            body = {**ask(is_streaming=is_streaming), "model": "code-1"}
            reply = await browser.post("/v1/completions", body)
            assert (reply.status, reply.headers["x-penstock-upstream"]) == (200, "b")
            assert server.asked[0][2] == {**body, "model": "q"}
            [row] = (await browser.get("/healed")).json["requests"]
            assert [one["upstream"] for one in row["asked"]] == ["a", "b"]
            assert row["asked"][0]["failure"]

    asyncio.run(main())


def test_an_upstream_that_failed_several_times_is_noted_as_skipped() -> None:
    async def main() -> None:
        server = Server()
        async with web_server(server.answer) as url, serving(routed(f"{url}/v1")) as browser:
            for _ in range(FAILURES + 1):
                await browser.post("/v1/completions", {**ask(), "model": "code-1"})
            row = (await browser.get("/healed")).json["requests"][0]
            assert row["asked"][0] == {
                "upstream": "a", "model": "x", "failure": "not asked: it failed several times in a row"
            }  # fmt: skip
            assert row["asked"][1]["upstream"] == "b"

    asyncio.run(main())


def test_a_whole_response_that_breaks_off_is_that_of_a_fallback() -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        await response.write(b'{"object": "text_')
        await asyncio.sleep(0.05)
        request.transport.abort()  # type: ignore[union-attr]
        return response

    async def main() -> None:
        server = Server()
        async with web_server(cut) as broken, web_server(server.answer) as url:
            upstreams = {
                name: Upstream(name=name, url=f"{at}/v1", retries=0) for name, at in (("a", broken), ("b", url))
            }
            route = ModelRoute(pattern="*", target=Target("a"), fallbacks=(Target("b"),))
            async with serving(app(settings=GatewaySettings(upstreams=upstreams, routes=(route,)))) as browser:
                reply = await browser.post("/v1/completions", ask())
                assert (reply.status, reply.json, reply.headers["x-penstock-upstream"]) == (200, COMPLETION, "b")
                [row] = (await browser.get("/healed")).json["requests"]
                assert [bool(one.get("failure")) for one in row["asked"]] == [True, False]

    asyncio.run(main())

    asyncio.run(main())


def test_the_words_of_a_server_stay_on_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no\n12:00:00 all is well\x1b[2J"}}, status=400)

    async def main() -> None:
        async with web_server(refuse) as url, serving(app(f"{url}/v1")) as browser:
            assert (await browser.post("/v1/completions", ask())).status == 400

    with caplog.at_level("INFO", logger="penstock.gateway"):
        asyncio.run(main())
    assert any("all is well" in line for line in caplog.messages)
    assert all(line.isprintable() for line in caplog.messages)


def test_a_stream_that_breaks_off_ends_with_an_error() -> None:
    async def test(server: Server, browser: Browser) -> None:
        reply: Reply = await browser.post("/v1/completions", ask("cut", is_streaming=True))
        assert reply.body.startswith(b"".join(FRAMES[:3]))
        assert "error" in events(reply.body.removeprefix(b"".join(FRAMES[:3])))[0]
        assert b"[DONE]" not in reply.body
        [row] = (await browser.get("/healed")).json["requests"]
        assert "broke off" in row["problem"]

    run(test)


def test_a_client_that_leaves_stops_the_upstream() -> None:
    async def test(server: Server, browser: Browser) -> None:
        connection = browser.connect("POST", "/v1/completions", ask("endless", is_streaming=True))
        await connection.reply.until("more")
        connection.leave()
        async with asyncio.timeout(20):
            await server.is_left.wait()
            await connection.task

    run(test)
