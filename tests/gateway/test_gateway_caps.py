"""The caps of the gateway: what it keeps, looks at and logs."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from penstock import Finish, Reasoning, Text, ToolCall, ToolCallInvalid, Unknown
from penstock.declarations import read_declarations
from penstock.events import StreamChunk
from penstock.gateway import GatewaySettings, ModelRoute, Target, app, endpoints, healed
from penstock.gateway.answer import joined
from penstock.gateway.healed import HealedResponse, HealedResponses
from penstock.healing import habits, report
from penstock.healing import repairs as repair
from penstock.healing.habits import Habits
from penstock.healing.reasoning_tail import ReasoningTail
from penstock.healing.report import HealingReport
from penstock.jsontext import shown_text
from penstock.servers import asking
from penstock.testing import Raw, Reply, fail
from tests.asgi_client import serving
from tests.gateways import HABITS, TOOLS, chat, gateway, upstream, web_server


def test_the_last_requests_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healed, "MAX_KEPT", 2)
    kept = HealedResponses()
    for id in "abc":
        kept.add(HealedResponse(id=id, path="/", model="m"))
    assert kept.find("a") is None
    assert [one.id for one in kept.last(10)] == ["c", "b"]


def test_a_list_of_requests_is_not_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "MAX_LISTED", 1)

    async def main() -> None:
        async with serving(gateway(upstream(["Hi."] * 2))) as browser:
            for _ in range(2):
                await browser.post("/v1/chat/completions", chat())
            assert len((await browser.get("/healed")).json["requests"]) == 1

    asyncio.run(main())


def test_long_names_are_shortened_in_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(shown_text, "MAX_LINE", 20)
    caplog.set_level(logging.INFO, "penstock.gateway")

    async def main() -> None:
        async with serving(gateway(upstream(["Hi."]))) as browser:
            await browser.post("/v1/chat/completions", chat(model="m\n" * 100))

    asyncio.run(main())
    [line] = [record.getMessage() for record in caplog.records if "model=" in record.getMessage()]
    assert "m\\nm" in line
    assert "\n" not in line
    assert len(line) < 250


def test_what_an_upstream_says_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bad, good = upstream([Reply(fail("server_error", "boom\n14:00 a line of its own\x1b[2J"))]), upstream(["Hi."])
    route = ModelRoute(pattern="m", target=Target("bad"), fallbacks=(Target("good"),))

    async def main() -> None:
        upstreams = {"bad": replace(bad, name="bad", retries=0), "good": replace(good, name="good")}
        async with serving(app(settings=GatewaySettings(upstreams=upstreams, routes=(route,)))) as browser:
            await browser.post("/v1/chat/completions", chat(model="m"))

    asyncio.run(main())
    lines = [record.getMessage() for record in caplog.records if "another is asked" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].isprintable()


def test_a_report_has_a_few_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MAX_NOTES", 2)
    notes = HealingReport()
    for number in range(5):
        notes.note(str(number))
    assert notes.notes == ["0", "1"]


def test_a_note_names_a_few_unknown_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MAX_FIELDS", 2)
    notes = HealingReport()
    notes.note_unknown(Unknown({"a": 1, "b": 2, "c": 3}, "unknown fields"))
    assert notes.notes == ["left out of the response: unknown fields ('a', 'b')"]


def test_only_the_end_of_reasoning_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.healing.reasoning_tail.MAX_TAIL", 50)
    kept = HealingReport()
    tail = ReasoningTail(("hermes",), read_declarations(TOOLS), kept)
    call = '<tool_call>{"name": "shell", "arguments": {}}</tool_call>'
    for piece in (call, "x" * 200, "y" * 200):
        tail.feed([Reasoning(0, piece)])
        assert tail.is_open
    assert sum(map(len, tail._pieces)) <= 100 + 200
    tail.feed([Finish("stop")])
    assert not tail.is_open
    assert not kept.notes, "the call is not in the end"


@pytest.mark.parametrize(("cap", "notes"), [(1000, 1), (20, 0)])
def test_of_reasoning_with_many_marks_little_is_read(cap: int, notes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.healing.reasoning_tail.MAX_MARKS", cap)
    kept = HealingReport()
    tail = ReasoningTail(("hermes",), read_declarations(TOOLS), kept)
    tail.feed([Reasoning(0, "<" * 50 + '\n<tool_call>{"name": "shell", "arguments": {}}</tool_call>')])
    tail.feed([Finish("stop")])
    assert len(kept.notes) == notes


def test_a_long_name_of_a_tool_is_cut_in_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MAX_NAME", 4)
    notes = HealingReport()
    notes.note_text("a" * 1000, None)
    assert notes.notes == ["the call of 'aaaa' stays text: no such tool is declared"]


@pytest.mark.parametrize(("cap", "expected"), [(10**6, [19]), (10, [])])
def test_the_habits_are_looked_for_in_the_beginning_of_the_calls(
    cap: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(habits, "MAX_EXAMINED", cap)
    found = HealingReport()
    seen = Habits("openai-chat", found)
    seen.feed(b'data: {"choices": [{"delta": {"tool_calls": null}}]}\n\n')
    seen.feed(HABITS["no id"])
    seen.close()
    assert [one.quirk for one in found.build()] == expected


@pytest.mark.parametrize(("cap", "is_repaired"), [(100, True), (5, False)])
def test_long_arguments_are_not_repaired(cap: int, is_repaired: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "MAX_REPAIRED", cap)
    call = ToolCallInvalid(0, "c", "shell", '{"a": 1,}', "malformed")
    assert (repair.repair_arguments(call, "safe") is not None) == is_repaired


def test_a_list_of_models_is_read_up_to_its_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "qwen3"}]})

    async def names(cap: int) -> Any:
        monkeypatch.setattr(asking, "MAX_REPLY", cap)
        async with web_server(models) as url, serving(gateway(upstream([], via=None, url=f"{url}/v1"))) as browser:
            return (await browser.get("/v1/models")).json

    assert [row["id"] for row in asyncio.run(names(10_000))["data"]] == ["qwen3"]
    assert "its reply is larger than 5 bytes" in asyncio.run(names(5))["error"]["message"]


def test_a_healed_response_is_json() -> None:
    async def main() -> None:
        async with serving(gateway(upstream([Raw(HABITS["code fence"])]))) as browser:
            await browser.post("/v1/chat/completions", chat(tools=TOOLS))
            [row] = (await browser.get("/healed")).json["requests"]
            assert json.dumps(row)

    asyncio.run(main())


def test_pieces_of_one_text_are_joined_in_a_whole_response() -> None:
    call = ToolCall("a", "shell", {}, "{}", block=2)
    chunks: list[StreamChunk] = [
        Text(0, "a"),
        Text(0, "b"),
        Text(0, "c", 1),
        Reasoning(1, "d"),
        Reasoning(1, "e"),
        call,
        Text(0, "f"),
    ]
    whole = [Text(0, "ab"), Text(0, "c", 1), Reasoning(1, "de"), call, Text(0, "f")]
    assert joined(chunks) == whole
    assert joined([]) == []
