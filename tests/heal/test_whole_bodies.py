"""Responses under SDKs that are not streamed: rescued calls in a header, and responses that were read already."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import httpx2
import pytest

import penstock.heal
from penstock.heal import HealReport
from tests.heal.test_heal_transport import ASKED, URL, Server, client

TEXT = 'I look.\n<tool_call>\n{"name": "look", "arguments": {"place": "here"}}\n</tool_call>'


def body(content: str) -> bytes:
    message = {"role": "assistant", "content": content}
    return json.dumps(
        {"id": "r", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    ).encode()


def test_a_rescued_call_is_named_in_a_header_and_in_the_report() -> None:
    reports: list[HealReport] = []
    server = Server(body(TEXT), {"content-type": "application/json", "x-request-id": "1"})
    with client(server, reports) as http:
        response = http.post(URL, json={**ASKED, "stream": False})
    [call] = response.json()["choices"][0]["message"]["tool_calls"]
    assert response.headers["x-penstock-rescued"] == call["id"]
    assert response.headers["x-request-id"] == "1"
    assert [one.id for report in reports for one in report.rescued] == [call["id"]]


def test_a_response_without_rescued_calls_has_no_such_header() -> None:
    server = Server(body("Nothing to look at."), {"content-type": "application/json"})
    with client(server) as http:
        assert "x-penstock-rescued" not in http.post(URL, json={**ASKED, "stream": False}).headers


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_response_that_was_read_already_is_healed(library: Any) -> None:
    """A transport of a test, or of a cache, returns such responses."""
    inner = library.MockTransport(lambda _: library.Response(200, json=json.loads(body(TEXT))))
    transport = penstock.heal.transport(inner)
    with library.Client(transport=transport) as http:
        assert http.post(URL, json={**ASKED, "stream": False}).headers["x-penstock-rescued"]

    async def ask() -> str:
        async with library.AsyncClient(transport=transport) as http:
            response = await http.post(URL, json={**ASKED, "stream": False})
            return str(response.headers["x-penstock-rescued"])

    assert asyncio.run(ask())
