"""Lists of models of a gateway: those of its routes and of its upstreams, also while an upstream is down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

import pytest
from aiohttp import web

from penstock.gateway import GatewaySettings, ModelRoute, Target, Upstream, app, upstream_models
from tests.asgi_client import Reply, serving
from tests.gateways import web_server

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
LISTS = {"/v1/models": "data", "/v1beta/models": "models", "/api/tags": "models"}
NOBODY = "http://127.0.0.1:1/v1"
ROUTE = ModelRoute(pattern="fast", target=Target("first", "q"))


async def qwen(_: web.Request) -> web.StreamResponse:
    return web.json_response({"object": "list", "data": [{"id": "qwen3"}, {"id": 7}, "x"]})


async def silent(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


def answering(status: int = 200, text: str = "") -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text)

    return answer


def ask(
    second: Answer | None,
    path: str = "/v1/models",
    routes: tuple[ModelRoute, ...] = (),
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """The list of a gateway whose first upstream is down, and whose second is this one."""

    async def main() -> Reply:
        async with web_server(second or silent) as url:
            urls = {"first": NOBODY, "second": f"{url}/v1"} if second else {"first": NOBODY}
            upstreams = {name: Upstream(name=name, url=url, provider="llamacpp") for name, url in urls.items()}
            async with serving(app(settings=GatewaySettings(upstreams=upstreams, routes=routes))) as browser:
                return await browser.get(path, **(headers or {}))

    return asyncio.run(main())


def test_a_server_gets_the_key_of_the_client_to_list_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_models, "MAX_LISTS", 1)

    async def guarded(request: web.Request) -> web.StreamResponse:
        is_known = request.headers.get("authorization") == "Bearer secret-of-the-server"
        return await qwen(request) if is_known else web.Response(status=401)

    async def main() -> list[int]:
        async with web_server(guarded) as url:
            upstream = Upstream(name="first", url=f"{url}/v1", provider="llamacpp")
            gateway = app(settings=GatewaySettings(upstreams={"first": upstream}))
            async with serving(gateway) as browser:
                keys = ("secret-of-the-server", "another", "secret-of-the-server")
                replies = [await browser.get("/v1/models", authorization=f"Bearer {key}") for key in keys]
                assert len(gateway.context.models._kept) == 1
                return [reply.status for reply in replies]

    assert asyncio.run(main()) == [200, 502, 200]


@pytest.mark.parametrize("path", LISTS)
def test_the_models_of_upstreams_that_answer_are_listed(path: str, caplog: pytest.LogCaptureFixture) -> None:
    reply = ask(qwen, path)
    assert reply.status == 200
    [row] = reply.json[LISTS[path]]
    assert row.get("id", row.get("name")) in ("second/qwen3", "models/second/qwen3")
    [warning] = [record for record in caplog.records if "gets no key" not in record.getMessage()]
    assert warning.levelname == "WARNING"
    assert "the models of first cannot be listed: " in warning.getMessage()


CLAUDE = {"anthropic-version": "2023-06-01"}
ERRORS: list[tuple[str, dict[str, str], set[str]]] = [
    ("/v1/models", {}, {"message", "type", "param", "code"}),
    ("/v1/models", CLAUDE, {"message", "type"}),
    ("/v1beta/models", {}, {"message", "status", "code"}),
    ("/api/tags", {}, set()),
]


@pytest.mark.parametrize(("path", "headers", "fields"), ERRORS)
def test_if_no_upstream_answers_the_error_has_the_shape_of_the_protocol(
    path: str, headers: dict[str, str], fields: set[str]
) -> None:
    reply = ask(None, path, headers=headers)
    assert reply.status == 502
    assert (reply.json.get("type") == "error") == bool(headers)
    error = reply.json["error"]
    assert "no upstream lists its models (first: " in (error["message"] if fields else error)
    assert set(error) == fields or not fields


def test_a_list_may_come_in_pieces() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (b'{"data": [{"id": "a"}', b', {"id": "b"}]}'):
            await response.write(piece)
            await asyncio.sleep(0.05)
        return response

    assert [row["id"] for row in ask(answer).json["data"]] == ["second/a", "second/b"]


FAILURES = {
    "an error": (answering(500), "it answered with the status 500"),
    "a page": (answering(text="<html>"), "it sent no list of models"),
    "another object": (answering(text='{"models": []}'), "it sent no list of models"),
    "silence": (silent, "no answer within 0.3 seconds"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_list_that_fails_is_reported_with_the_reason(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_models, "WAIT_SECONDS", 0.3)
    answer, words = FAILURES[failure]
    reply = ask(answer)
    assert reply.status == 502
    assert f"second: {words}" in reply.json["error"]["message"]


def test_a_server_without_a_list_is_not_a_failure() -> None:
    async def main() -> Reply:
        async with (
            web_server(answering(404)) as url,
            serving(app(f"http://{url.removeprefix('http://')}/v1")) as browser,
        ):
            return await browser.get("/v1/models")

    reply = asyncio.run(main())
    assert (reply.status, reply.json["data"]) == (200, [])


def test_the_names_of_routes_are_listed_whatever_upstreams_do() -> None:
    reply = ask(None, routes=(ROUTE,))
    assert [row["id"] for row in reply.json["data"]] == ["fast"]


def test_a_failure_is_soon_forgotten() -> None:
    is_down = True

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=503) if is_down else await qwen(request)

    async def main() -> None:
        nonlocal is_down
        async with web_server(answer) as url, serving(app(f"{url}/v1")) as browser:
            assert (await browser.get("/v1/models")).status == 502
            is_down = False
            assert (await browser.get("/v1/models")).status == 502, "the failure is kept for a moment"
            now = time.monotonic() + upstream_models.FAILURE_SECONDS
            browser.app.context.models.clock = lambda: now
            assert len((await browser.get("/v1/models")).json["data"]) == 1

    asyncio.run(main())
