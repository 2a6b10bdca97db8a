"""Access is checked before routes: a client that may not use a server learns nothing about its paths."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import penstock
import penstock.inspector
import penstock.serve
from penstock import gateway
from penstock.inspector import Inspections
from penstock.testing import Scripted
from tests.asgi_client import Browser, serving

TOKEN = "t" * 20
PATHS = {
    "GET": (
        "/nothing",
        "/v1/nothing",
        "/api/pull",
        "/runs/x/nothing",
        "/v1/chat/completions",
        "/inspect/quirks",
        "/runs",
    ),
    "POST": ("/nothing", "/v1/models", "/metrics", "/openapi.json", "/v1/responses", "/v1/messages"),
    "DELETE": ("/inspect/quirks", "/runs", "/v1/models"),
    "PUT": ("/", "/nothing"),
    "OPTIONS": ("/nothing", "/v1/models"),
}


def serve_app(**options: Any) -> Any:
    model = penstock.Model("openai:gpt-5", via=Scripted(["Hi."]))
    return penstock.serve.app(penstock.Agent(model, name="a"), **options)


def gateway_app(**options: Any) -> Any:
    key = {"key": options["token"]} if "token" in options else {}
    return gateway.app(gateway.Upstream(name="a", via=Scripted(["Hi."])), inspections=Inspections(), **key)


def inspector_app(**options: Any) -> Any:
    return penstock.inspector.app(Inspections(), **options)


APPS = {"serve": serve_app, "gateway": gateway_app, "inspector": inspector_app}


async def statuses(browser: Browser, **headers: str) -> dict[str, int]:
    return {
        f"{method} {path}": (await browser.request(method, path, headers=headers)).status
        for method, paths in PATHS.items()
        for path in paths
        if path not in type(browser.app).public_paths
    }


@pytest.mark.parametrize("name", APPS)
def test_who_has_no_token_gets_401_whatever_the_path_and_the_method(name: str) -> None:
    async def main() -> None:
        async with serving(APPS[name](token=TOKEN)) as browser:
            assert set((await statuses(browser)).values()) == {401}
            assert set((await statuses(browser, authorization="Bearer wrong")).values()) == {401}
            right = await statuses(browser, authorization=f"Bearer {TOKEN}")
            assert not {401, 403, 421} & set(right.values())
            assert {404, 405} <= set(right.values())

    asyncio.run(main())


@pytest.mark.parametrize("name", APPS)
@pytest.mark.parametrize(
    ("headers", "client", "status"),
    [
        ({"host": "evil.example"}, "127.0.0.1", 421),
        ({"origin": "https://evil.example"}, "127.0.0.1", 403),
        ({}, "10.0.0.9", 403),
    ],
)
def test_a_wrong_place_is_refused_whatever_the_path_and_the_method(
    name: str, headers: dict[str, str], client: str, status: int
) -> None:
    async def main() -> None:
        async with serving(APPS[name]()) as browser:
            browser.client = client
            assert set((await statuses(browser, **headers)).values()) == {status}
            for path in type(browser.app).public_paths:
                assert (await browser.get(path, **headers)).status == status

    asyncio.run(main())


@pytest.mark.parametrize("name", ["serve", "gateway"])
def test_a_handshake_without_a_token_is_refused_too(name: str) -> None:
    async def main() -> None:
        async with serving(APPS[name](token=TOKEN)) as browser:
            upgrade = {"upgrade": "websocket", "connection": "upgrade"}
            assert (await browser.get("/v1/responses", **upgrade)).status == 401
            assert (await browser.get("/v1/responses", **upgrade, authorization=f"Bearer {TOKEN}")).status == 426

    asyncio.run(main())


@pytest.mark.parametrize("name", ["serve", "gateway"])
def test_the_health_check_needs_no_token(name: str) -> None:
    async def main() -> None:
        async with serving(APPS[name](token=TOKEN)) as browser:
            assert [(await browser.get(path)).status for path in ("/healthz", "/healthz/")] == [200, 200]
            assert (await browser.post("/healthz")).status == 405

    asyncio.run(main())


@pytest.mark.parametrize("name", APPS)
def test_no_response_can_be_embedded_by_pages_of_other_origins(name: str) -> None:
    async def main() -> None:
        async with serving(APPS[name](token=TOKEN), authorization=f"Bearer {TOKEN}") as browser:
            asked = {"model": "a", "messages": [{"role": "user", "content": "Hi"}]}
            replies = [
                await browser.request(method, path) for method, paths in PATHS.items() for path in paths
            ] + [
                await browser.get("/"), await browser.get("/inspect"), await browser.get("/healthz"),
                await browser.post("/v1/chat/completions", asked),
                await browser.post("/v1/chat/completions", {**asked, "stream": True}),
                await browser.get("/runs", authorization="wrong"),
            ]  # fmt: skip
            assert len({reply.status for reply in replies}) > 2
            assert {reply.headers.get("cross-origin-resource-policy") for reply in replies} == {"same-origin"}

    asyncio.run(main())
