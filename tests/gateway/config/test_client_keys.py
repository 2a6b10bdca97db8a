"""The key of a client: of several upstreams, only those that are meant get it, whatever the request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from penstock.gateway import GatewayApp, GatewaySettings, ModelRoute, Target, Upstream, app
from penstock.gateway.config.settings_file import FileSettings
from penstock.gateway.servers.check import check_upstreams
from tests.asgi_client import Browser, serving
from tests.gateways import chat, web_server

KEY = "sk-of-the-client-4711"
BEARER = {"authorization": f"Bearer {KEY}"}
COUNT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
POSTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": chat(),
    "/v1/responses": {"model": "m", "input": "x"},
    "/v1/messages": {**COUNT, "max_tokens": 9},
    "/v1/messages/count_tokens": COUNT,
    "/v1beta/models/m:generateContent": {"contents": [{"parts": [{"text": "x"}]}]},
    "/v1beta/models/m:countTokens": {"contents": [{"parts": [{"text": "x"}]}]},
    "/api/chat": {**COUNT, "stream": False},
    "/api/generate": {"model": "m", "prompt": "x"},
    "/api/embed": {"model": "m", "input": "x"},
    "/api/embeddings": {"model": "m", "prompt": "x"},
    "/api/show": {"model": "m"},
    "/v1/completions": {"model": "m", "prompt": "x"},
    "/v1/embeddings": {"model": "m", "input": "x"},
}
GETS = ("/v1/models", "/v1beta/models", "/api/tags", "/api/ps")


class Server:
    """A server that notes the keys it gets; it lists a model, and fails everything else."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.asked = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        self.keys |= {value for value in request.headers.values() if KEY in value}
        if KEY in f"{request.path_qs} {await request.text()}":
            self.keys.add("elsewhere")
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "m"}]})
        return web.json_response({"error": {"message": "down"}}, status=503)


@asynccontextmanager
async def two_servers() -> AsyncGenerator[tuple[Server, Server, list[str]]]:
    first, second = Server(), Server()
    async with web_server(first.answer) as one, web_server(second.answer) as two:
        yield first, second, [f"{one}/v1", f"{two}/v1"]


def both(urls: list[str], keys: Mapping[str, str]) -> GatewayApp:
    """A gateway whose second upstream is the fallback of the first."""
    upstreams = {
        name: Upstream(name=name, url=url, provider="llamacpp", key=keys.get(name, ""), retries=0)
        for name, url in zip(("first", "second"), urls, strict=True)
    }
    route = ModelRoute(pattern="*", target=Target("first"), fallbacks=(Target("second"),))
    return app(settings=GatewaySettings(upstreams=upstreams, routes=(route,)))


async def ask_everything(browser: Browser) -> None:
    for path in GETS:
        await browser.get(path, **BEARER)
    for path, body in POSTS.items():
        await browser.post(path, body, **BEARER)


CASES = {
    "no line": ({}, True, False),
    "the first": ({"first": "client"}, True, False),
    "the second": ({"second": "client"}, False, True),
    "both": ({"first": "client", "second": "client"}, True, True),
    "none": ({"first": "provider", "second": "provider"}, False, False),
    "the first has its own": ({"first": "env:GATEWAY_TEST_KEY"}, False, False),
}


@pytest.mark.parametrize("case", CASES)
def test_no_request_takes_the_key_of_a_client_to_an_upstream_that_is_not_meant(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_TEST_KEY", "theirs")
    keys, is_first, is_second = CASES[case]

    async def main() -> None:
        async with two_servers() as (first, second, urls), serving(both(urls, keys)) as browser:
            await ask_everything(browser)
        assert min(first.asked, second.asked) > len(GETS), "each is asked, also as a fallback"
        assert first.keys == ({f"Bearer {KEY}"} if is_first else set())
        assert second.keys == ({f"Bearer {KEY}"} if is_second else set())

    asyncio.run(main())


def test_every_path_of_the_gateway_that_asks_upstreams_is_tried() -> None:
    from penstock.gateway.app import ROUTES, VERSIONS

    asks = {route.path for route in ROUTES.routes} - {
        "/healed", "/healed/{id}", "/healthz", "/readyz", "/metrics", "/api/version",
    }  # fmt: skip
    tried = {*POSTS, *GETS}
    same = {path.replace("/v1beta/", f"/{version}/") for path in tried for version in VERSIONS}
    untried = {
        path for path in asks - same
        if not any(path.startswith(f"/{version}/models/{{") for version in VERSIONS)
    }  # fmt: skip
    assert not untried


def test_one_upstream_gets_the_key_as_before() -> None:
    async def main() -> set[str]:
        server = Server()
        async with web_server(server.answer) as url:
            behind = Upstream(name="only", url=f"{url}/v1", provider="llamacpp", retries=0)
            async with serving(app(behind)) as browser:
                await ask_everything(browser)
        return server.keys

    assert asyncio.run(main()) == {f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("keys", "warned"),
    [
        ({}, ["second"]),
        ({"second": "client"}, ["first"]),
        ({"first": "client", "second": "client"}, []),
        ({"second": "provider"}, []),
    ],
)
def test_the_start_warns_about_each_upstream_that_gets_no_key(
    keys: dict[str, str], warned: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving(both(["http://127.0.0.1:1/v1"] * 2, keys)) as browser:
            await browser.get("/healthz")
            await browser.get("/healthz")

    asyncio.run(main())
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.split()[0] for line in lines] == warned
    assert all(f'add key = "client" to [upstreams.{name}]' in line for name, line in zip(warned, lines, strict=True))


def test_an_upstream_with_its_own_key_or_a_gateway_with_one_needs_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    upstreams = {
        name: Upstream(name=name, url="http://127.0.0.1:1/v1", provider="vllm") for name in ("first", "10.0.0.1:80")
    }
    settings = GatewaySettings(upstreams=upstreams)

    async def start(gateway: GatewayApp) -> list[str]:
        caplog.clear()
        async with serving(gateway):
            return [record.getMessage() for record in caplog.records]

    [warning] = asyncio.run(start(app(settings=settings)))
    assert 'to [upstreams."10.0.0.1:80"]' in warning
    assert not asyncio.run(start(app(settings=settings, key="k" * 20)))
    monkeypatch.setenv("VLLM_API_KEY", "theirs")
    assert not asyncio.run(start(app(settings=settings)))


def test_a_change_of_the_file_counts_for_keys_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "gateway.toml"

    async def main() -> None:
        async with two_servers() as (first, second, urls):
            table = f'[upstreams.first]\nurl = "{urls[0]}"\nretries = 0\n'
            other = f'[upstreams.second]\nurl = "{urls[1]}"\nretries = 0\n'
            path.write_text(table)
            gateway = app(settings=FileSettings(path))
            async with serving(gateway) as browser:
                path.write_text(f"{table}{other}")
                gateway.reload()
                await browser.get("/v1/models", **BEARER)
                assert (len(first.keys), len(second.keys)) == (1, 0)
                gateway.reload()
                path.write_text(f'{table}{other}key = "client"\n')
                gateway.reload()
                first.keys.clear()
                await browser.post("/v1/chat/completions", chat(model="second/m"), **BEARER)
                await browser.post("/v1/chat/completions", chat(model="first/m"), **BEARER)
                assert (len(first.keys), len(second.keys)) == (0, 1)

    asyncio.run(main())
    warnings = [record.getMessage() for record in caplog.records if "gets no key" in record.getMessage()]
    assert [line.split()[0] for line in warnings] == ["second", "first"]


def test_the_check_names_upstreams_that_get_no_key() -> None:
    upstreams = {name: Upstream(name=name, url="http://127.0.0.1:1/v1") for name in ("first", "second")}
    checked = asyncio.run(check_upstreams(GatewaySettings(upstreams=upstreams)))
    notes = {one.upstream.name: [advice.what for advice in one.advice if "no key" in advice.what] for one in checked}
    assert [*notes] == ["first", "second"]
    assert not notes["first"]
    assert 'add key = "client" to [upstreams.second]' in notes["second"][0]
