"""Token counts of a gateway: those of the upstream where it has an endpoint for them, and estimates elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from penstock import Timeouts
from penstock.gateway import counting
from penstock.gateway.fallbacks import FAILURES
from penstock.gateway.routing import find_candidates
from tests.asgi_client import Browser, Reply, serving
from tests.gateways import ASK, SHELL, gateway, upstream, web_server
from tests.servers import faces
from tests.servers.faces import Face, serving_face

CLAUDE = {"model": "claude-x", "messages": ASK, "tools": [{"name": "shell", "input_schema": SHELL["parameters"]}]}
GEMINI = {"contents": [{"role": "user", "parts": [{"text": "Say what echo prints."}]}]}
PATHS = {"/v1/messages/count_tokens": CLAUDE, "/v1beta/models/gemini-x:countTokens": GEMINI}
FIELDS = {"/v1/messages/count_tokens": "input_tokens", "/v1beta/models/gemini-x:countTokens": "totalTokens"}
COUNTS = {"anthropic": {"input_tokens": 4711}, "google": {"totalTokens": 4711, "promptTokensDetails": []}}


class Upstream:
    """A server that answers requests for counts."""

    def __init__(self, answer: Any, provider: str = "anthropic", path: str = "/v1", status: int = 200) -> None:
        self._answer = answer  # JSON, bytes, or None if there is none
        self._provider = provider
        self._path = path
        self._status = status
        self.paths: list[str] = []
        self.bodies: list[Any] = []
        self.is_asked = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        self.bodies.append(await request.json())
        self.is_asked.set()
        if self._answer is None:
            await asyncio.sleep(60)
        body = self._answer if isinstance(self._answer, bytes) else json.dumps(self._answer).encode()
        return web.Response(body=body, status=self._status, content_type="application/json")

    @asynccontextmanager
    async def served(self) -> AsyncGenerator[Browser]:
        """A client of a gateway in front of this server."""
        async with web_server(self.answer) as url:
            settings: dict[str, Any] = {
                "provider": self._provider,
                "via": None,
                "url": url + self._path,
                "key": "client",
            }
            async with serving(gateway(upstream([], **settings)), authorization="Bearer none") as browser:
                yield browser

    def count(self, path: str, body: Any = None) -> Reply:
        """The reply to a request for a count."""

        async def main() -> Reply:
            async with self.served() as browser:
                return await browser.post(path, PATHS[path] if body is None else body)

        return asyncio.run(main())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("provider", COUNTS)
def test_the_upstream_is_asked_for_a_count_where_it_has_an_endpoint(
    provider: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Upstream(COUNTS[provider], provider)
    with caplog.at_level("INFO", "penstock.gateway"):
        reply = server.count(path)
    assert reply.json == {FIELDS[path]: 4711}
    assert "x-penstock-estimated" not in reply.headers
    assert "tokens=4711" in caplog.text
    assert "estimated" not in caplog.text
    [asked], [body] = server.paths, server.bodies
    if provider == "anthropic":
        assert asked.endswith("/messages/count_tokens")
        assert body.keys() <= {"model", "messages", "system", "tools", "tool_choice", "thinking"}
    else:
        assert asked.endswith(":countTokens")
        assert body["generateContentRequest"]["model"] in ("models/claude-x", "models/gemini-x")
        assert body["generateContentRequest"]["contents"]


def test_vertex_takes_the_fields_of_the_request() -> None:
    server = Upstream(COUNTS["google"], "vertex", "/v1/projects/p/locations/x/publishers/google")
    assert server.count("/v1beta/models/gemini-x:countTokens").json == {"totalTokens": 4711}
    assert server.paths[0].endswith("/publishers/google/models/gemini-x:countTokens")
    assert server.bodies[0].keys() <= {"contents", "tools", "systemInstruction", "generationConfig"}


FAILED_COUNTS = {
    "an error": Upstream({"error": "no such endpoint"}, status=404),
    "a page": Upstream(b"<html>Welcome</html>"),
    "no number": Upstream({"input_tokens": "many"}),
    "an empty body": Upstream(b""),
    "silence": Upstream(None),
}


@pytest.mark.parametrize("failure", FAILED_COUNTS)
def test_a_count_that_fails_is_replaced_by_an_estimate_that_is_marked(
    failure: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(counting, "TIMEOUTS", Timeouts(first_event=0.5, idle=0.5))
    server = FAILED_COUNTS[failure]
    with caplog.at_level("INFO", "penstock.gateway"):
        reply = server.count("/v1/messages/count_tokens")
    assert reply.status == 200
    assert 20 < reply.json["input_tokens"] < 200
    assert reply.headers["x-penstock-estimated"] == "true"
    assert "| estimated: " in caplog.text
    assert len(server.paths) == 1, "it is asked once"


def counted(face: Face, model: str, body: Any = CLAUDE, path: str = "/v1", **settings: Any) -> Reply:
    """The reply to a client of Messages in front of a simulated server."""

    async def main() -> Reply:
        async with serving_face(face) as url:
            served = gateway(upstream([], provider="llamacpp", via=None, url=f"{url}{path}", **settings))
            async with serving(served) as browser:
                return await browser.post("/v1/messages/count_tokens", {**body, "model": model})

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("face", "model", "path"),
    [
        (faces.llamacpp(), "qwen3-8b", "/v1/chat/completions/input_tokens"),
        (faces.llamacpp(counts=False), "qwen3-8b", "/tokenize"),
        (faces.vllm(), "Qwen/Qwen3-8B", "/tokenize"),
    ],
)
def test_a_server_with_its_own_counter_is_asked(face: Face, model: str, path: str) -> None:
    reply = counted(face, model)
    assert reply.json["input_tokens"] > 0
    assert "x-penstock-estimated" not in reply.headers
    assert path in face.paths


@pytest.mark.parametrize(
    ("face", "model"),
    [
        (faces.ollama(), "qwen3"),
        (faces.vllm(refused={"/tokenize": (500, {"detail": "no"})}), "Qwen/Qwen3-8B"),
        (Face(pages={}), "any"),
    ],
)
def test_a_server_without_a_counter_gets_an_estimate_that_is_marked(face: Face, model: str) -> None:
    reply = counted(face, model)
    assert 20 < reply.json["input_tokens"] < 200
    assert reply.headers["x-penstock-estimated"] == "true"


def test_a_server_is_not_asked_to_count_a_request_of_another_protocol() -> None:
    face = faces.llamacpp()
    reply = counted(face, "qwen3-8b", path="/", wire="ollama")
    assert reply.headers["x-penstock-estimated"] == "true"
    assert "/v1/chat/completions/input_tokens" not in face.paths


def test_responses_has_an_endpoint_for_counts() -> None:
    server = Upstream({"object": "response.input_tokens", "input_tokens": 4711}, "openai")
    assert server.count("/v1/messages/count_tokens").json == {"input_tokens": 4711}
    assert server.paths[0].endswith("/responses/input_tokens")
    assert not server.bodies[0].keys() & {"stream", "store", "max_output_tokens", "include"}


def test_an_upstream_that_is_down_is_not_asked(caplog: pytest.LogCaptureFixture) -> None:
    server = Upstream(COUNTS["anthropic"])

    async def main() -> None:
        async with server.served() as browser:
            context = browser.app.context
            [candidate] = find_candidates(context.source.current, "claude-x")
            for _ in range(FAILURES):
                context.circuits.of(candidate).failed()
            await browser.post("/v1/messages/count_tokens", CLAUDE)

    with caplog.at_level("INFO", "penstock.gateway"):
        asyncio.run(main())
    assert server.paths == []
    assert "estimated: the upstream is down" in caplog.text


@pytest.mark.parametrize("body", [7, [], {"generateContentRequest": 7}, {"contents": 7}])
def test_a_bad_request_for_a_count_is_refused(body: Any) -> None:
    for path in PATHS:
        reply = Upstream({}).count(path, body)
        assert reply.status == 400
        assert reply.json["error"]["message"]


def test_a_count_is_read_up_to_its_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MAX_COUNT", 10)
    reply = Upstream(COUNTS["anthropic"]).count("/v1/messages/count_tokens")
    assert reply.headers["x-penstock-estimated"] == "true"


def test_a_client_that_leaves_ends_the_count() -> None:
    async def main() -> None:
        server = Upstream(None)
        async with server.served() as browser:
            connection = browser.connect("POST", "/v1/messages/count_tokens", CLAUDE)
            await server.is_asked.wait()
            connection.leave()
            async with asyncio.timeout(20):
                await connection.task
            assert connection.reply.status == 0

    asyncio.run(main())
