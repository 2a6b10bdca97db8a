"""Rescued calls are marked for the client, and can be limited to tools without side effects."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

import penstock.heal
from penstock import Agent, Healing, Model, ToolCall, tool
from penstock.gateway.config.file import settings_from
from penstock.healing import report
from penstock.testing import Raw, Scripted
from tests.asgi_client import serving
from tests.gateways import ASK, TOOLS, chat, delta, events, gateway, sse, upstream

CALL = '<tool_call>{"name": "shell", "arguments": {"command": "make"}}</tool_call>'
INNER = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
NESTED = CALL.replace('"make"', json.dumps(INNER))
STREAM = sse(delta(content="So: "), delta(content=CALL), delta("stop"))
LOOK = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}


def body_of(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({"id": "x", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()


def whole(text: str) -> Raw:
    return Raw(body_of(text), "application/json")


async def ask(healing: Healing, body: Raw, stream: bool, tools: Any = TOOLS) -> tuple[Any, Any]:
    app = gateway(upstream([body], streaming=stream), healing=healing)
    async with serving(app) as browser:
        reply = await browser.post("/v1/chat/completions", chat(stream, tools=tools))
        found = await browser.get(f"/healed/{reply.headers['x-request-id']}")
    return reply, json.loads(found.body)


def test_a_rescued_call_of_a_whole_response_is_in_a_header() -> None:
    reply, healed = asyncio.run(ask(Healing(), whole(CALL), stream=False))
    [call] = json.loads(reply.body)["choices"][0]["message"]["tool_calls"]
    assert reply.headers["x-penstock-rescued"] == call["id"]
    assert healed["rescued"] == [{"id": call["id"], "name": "shell"}]


def test_a_rescued_call_of_a_stream_has_a_comment_before_it() -> None:
    reply, healed = asyncio.run(ask(Healing(), Raw(STREAM), stream=True))
    [id] = [call["id"] for event in events(reply.body) for choice in event["choices"]
            for call in choice["delta"].get("tool_calls", ()) if "id" in call]  # fmt: skip
    assert "x-penstock-rescued" not in reply.headers
    before, mark, after = reply.body.partition(f": x-penstock-rescued: {id}\n\n".encode())
    assert mark
    assert b"tool_calls" not in before
    assert id.encode() in after
    assert healed["rescued"] == [{"id": id, "name": "shell"}]


def test_a_response_without_rescued_calls_has_no_mark() -> None:
    reply, healed = asyncio.run(ask(Healing(), whole("Hi"), stream=False))
    assert "x-penstock-rescued" not in reply.headers
    assert not healed["rescued"]


@pytest.mark.parametrize("healing", [Healing(rescue="read_only"), Healing(rescue="read_only", read_only=("l*",))])
def test_calls_of_tools_with_side_effects_stay_text_if_rescue_is_read_only(healing: Healing) -> None:
    reply, healed = asyncio.run(ask(healing, whole(CALL), stream=False))
    assert json.loads(reply.body)["choices"][0]["message"]["content"] == CALL
    assert "x-penstock-rescued" not in reply.headers
    assert "the call of 'shell' stays text: only read-only tools are rescued" in healed["notes"][0]


@pytest.mark.parametrize("read_only", [("shell",), ("look", "sh*")])
def test_read_only_names_tools_by_name_or_pattern(read_only: tuple[str, ...]) -> None:
    healing = Healing(rescue="read_only", read_only=read_only)
    reply, _ = asyncio.run(ask(healing, whole(CALL), stream=False))
    assert "x-penstock-rescued" in reply.headers


def test_a_declaration_may_say_that_its_tool_is_read_only() -> None:
    for hint in (True, False):
        function = {**TOOLS[0]["function"], "annotations": {"readOnlyHint": hint}}
        tools = [{"type": "function", "function": function}]
        reply, _ = asyncio.run(ask(Healing(rescue="read_only"), whole(CALL), stream=False, tools=tools))
        assert ("x-penstock-rescued" in reply.headers) is hint


def test_a_call_inside_a_call_that_is_not_rescued_is_not_rescued() -> None:
    tools = [*TOOLS, {"type": "function", "function": LOOK}]
    healing = Healing(rescue="read_only", read_only=("look",))
    reply, _ = asyncio.run(ask(healing, whole(NESTED), stream=False, tools=tools))
    assert json.loads(reply.body)["choices"][0]["message"]["content"] == NESTED


def test_the_file_of_a_gateway_has_the_limit() -> None:
    table = {
        "upstreams": {"a": {"url": "http://127.0.0.1/v1"}},
        "healing": {"rescue": "read_only", "read_only": ["x*"]},
    }
    healing = settings_from(table).healing
    assert (healing.rescue, healing.read_only) == ("read_only", ("x*",))
    with pytest.raises(penstock.UsageError, match='rescue must be true or false, "read_only" or a list of texts'):
        settings_from({**table, "healing": {"rescue": "never"}})


@pytest.mark.parametrize("stream", [True, False])
def test_transports_report_rescued_calls(stream: bool) -> None:
    def answer(request: Any) -> Any:
        kind = "text/event-stream" if stream else "application/json"
        body = STREAM if stream else body_of(CALL)
        return httpx2.Response(200, headers={"content-type": kind}, stream=httpx2.ByteStream(body))

    reports: list[penstock.heal.HealReport] = []
    inner = httpx2.MockTransport(answer)
    with httpx2.Client(transport=penstock.heal.transport(inner, on_healed=reports.append)) as http:
        request = {"model": "m", "messages": ASK, "tools": TOOLS, "stream": stream}
        reply = http.post("http://server/v1/chat/completions", json=request)
    [call] = reports[0].rescued
    assert call.name == "shell"
    assert call.id.encode() in reply.content


@pytest.mark.parametrize("read_only", [True, False])
def test_a_model_knows_which_tools_are_read_only(read_only: bool) -> None:
    @tool(read_only=read_only)
    def shell(command: str) -> str:
        """Run."""
        return command

    script: list[Any] = [Raw(STREAM), "Done."]
    model = Model("vllm:m", "http://server/v1", via=Scripted([Raw(STREAM)]))
    turn = model.complete("Go.", tools=[shell], healing=Healing(rescue="read_only"))
    assert [call.name for call in turn.tool_calls] == (["shell"] if read_only else [])
    agent = Agent(
        Model("vllm:m", "http://server/v1", via=Scripted(script)), tools=[shell], healing=Healing(rescue="read_only")
    )
    messages = agent.run("Go.").messages
    assert any(isinstance(part, ToolCall) for message in messages for part in message.parts) is read_only


def test_the_number_of_rescued_calls_in_a_report_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MAX_RESCUED", 2)
    healing = report.HealingReport()
    for number in range(3):
        healing.rescue(ToolCall(f"c{number}", "shell", {}))
    assert [call.id for call in healing.rescued] == ["c0", "c1"]
