"""The description of our own protocol: every path is in it, and what the server sends is as it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import jsonschema_rs
import msgspec

import penstock.serve
from penstock import Agent, Context, Model, tool
from penstock.serve.app import ROUTES
from penstock.serve.public_events import PUBLIC_FIELDS, public_event
from penstock.serve.runs.openapi import OPERATIONS, event_types
from penstock.testing import Reply, Scripted, call
from tests.asgi_client import Browser, serving
from tests.serve_events import EXAMPLES

ELSEWHERE = ("/", "/api/", "/agui", "/v1/chat", "/v1/responses", "/v1/messages")
"""Paths of the page, and of protocols that are described by those who define them."""


@tool(read_only=True)
def look(context: Context[Any], city: str) -> str:
    """Look."""
    context.report({"percent": 50})
    return f"{city} is sunny"


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def run(test: Callable[[Browser, dict[str, Any]], Awaitable[None]]) -> None:
    answers: list[Any] = [Reply("Looking.", call("look", {"city": "Rome"}), call("pay", {"amount": 7})), "Done."]
    agent = Agent(Model("openai:gpt-5", via=Scripted(answers)), tools=[look, pay], name="support")

    async def go() -> None:
        async with serving(penstock.serve.app(agent, shutdown_seconds=0.1)) as browser:
            reply = await browser.get("/openapi.json")
            assert reply.status == 200
            await test(browser, reply.json)

    asyncio.run(go())


class Description:
    """Checks values against the schemas of a description."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def check(self, schema: dict[str, Any], value: Any) -> None:
        jsonschema_rs.Draft202012Validator({**schema, "components": self.document["components"]}).validate(value)

    def check_reply(self, method: str, path: str, reply: Any) -> None:
        responses = self.document["paths"][path][method.lower()]["responses"]
        response = responses.get(str(reply.status)) or responses[f"{reply.status // 100}XX"]
        self.check(response["content"]["application/json"]["schema"], reply.json)


def test_every_path_is_described_or_belongs_to_another_protocol() -> None:
    ours = {
        (route.method, route.path)
        for route in ROUTES.routes
        if route.path != "/" and not route.path.startswith(ELSEWHERE[1:])
    }
    assert ours == {*OPERATIONS}


def test_replies_and_errors_are_as_described() -> None:
    async def test(browser: Browser, document: dict[str, Any]) -> None:
        described = Description(document)
        started = await browser.post("/runs", {"prompt": "Hi", "thread": "t"})
        described.check_reply("POST", "/runs", started)
        run_id = started.json["id"]
        connection = browser.connect("GET", f"/runs/{run_id}/events")
        await connection.reply.until('"type":"waiting"')
        waiting = await browser.get(f"/runs/{run_id}")
        described.check_reply("GET", "/runs/{id}", waiting)
        [request] = waiting.json["waiting"]
        body = {"call_id": request["call_id"], "approved": True, "shown": request["shown"]}
        described.check_reply("POST", "/runs/{id}/decide", await browser.post(f"/runs/{run_id}/decide", body))
        await connection.reply.until('"type":"done"')
        for _, event in connection.reply.frames:
            described.check({"$ref": "#/components/schemas/Event"}, event)
            described.check({"$ref": f"#/components/schemas/{event_types()[event['type']].__name__}"}, event)
        for path in ("/runs", "/runs/{id}", "/threads/{id}", "/v1/models", "/healthz", "/openapi.json"):
            reply = await browser.get(path.replace("{id}", "t" if "threads" in path else run_id))
            assert reply.status == 200
            described.check_reply("GET", path, reply)
        described.check_reply("POST", "/runs/{id}/cancel", await browser.post(f"/runs/{run_id}/cancel"))
        for refused in (await browser.post("/runs", {}), await browser.post("/runs", b"no")):
            assert refused.status == 400
            described.check_reply("POST", "/runs", refused)

    run(test)


def test_every_event_is_as_described() -> None:
    async def test(browser: Browser, document: dict[str, Any]) -> None:
        described = Description(document)
        for kind in PUBLIC_FIELDS:
            public = msgspec.json.decode(msgspec.json.encode(public_event(EXAMPLES[kind])))
            schema = event_types()[public["type"]].__name__
            described.check({"$ref": f"#/components/schemas/{schema}"}, public)
            assert {*public} - {*document["components"]["schemas"][schema]["properties"]} == set()

    run(test)


def test_the_description_has_words_for_every_request() -> None:
    async def test(browser: Browser, document: dict[str, Any]) -> None:
        summaries = [operation["summary"] for path in document["paths"].values() for operation in path.values()]
        assert all(len(summary) > 8 and "`GET" not in summary for summary in summaries)
        assert document["openapi"] == "3.1.0"

    run(test)
