"""A response that is not streamed names the calls that were found in its text."""

from __future__ import annotations

import json

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
