"""Deferred tools of a client of Messages: left out for other servers until a reference loads them."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest.mock import patch

import pytest

from penstock.history import client_request
from penstock.history.client_request import decode_request
from penstock.testing import Reply, Scripted, call
from tests.asgi_client import serving
from tests.gateways import anthropic_client, gateway, upstream

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SEARCH: Any = {"name": "ToolSearch", "description": "Loads tools.", "input_schema": {"type": "object"}}
PLACEHOLDER: Any = {"name": "DeferredToolPlaceholder", "input_schema": {"type": "object"}, "defer_loading": True}
STEPS: Any = [Reply(call("ToolSearch", {})), Reply(call("forecast", {"city": "Rome"})), "Sunny."]
PROVIDERS = [("llamacpp", "qwen"), ("openai", "gpt-5"), ("google", "gemini-3-pro"), ("ollama", "qwen")]


def tool(name: str, *, deferred: bool = True) -> Any:
    return {"name": name, "description": f"Does {name}.", "input_schema": SCHEMA, "defer_loading": deferred}


def turns(id: str, name: str, result: Any) -> list[Any]:
    """A call and its result."""
    used = {"type": "tool_use", "id": id, "name": name, "input": {}}
    return [
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]},
    ]


def loads(id: str, *names: str) -> list[Any]:
    """A search whose result refers to these tools."""
    return turns(id, "ToolSearch", [{"type": "tool_reference", "tool_name": name} for name in names])


def body(messages: list[Any], *tools: Any, **fields: Any) -> dict[str, Any]:
    first = {"role": "user", "content": "Go."}
    return {"model": "m", "max_tokens": 99, "messages": [first, *messages], "tools": list(tools), **fields}


def sent(messages: list[Any], *tools: Any, wire: str = "openai-chat", **fields: Any) -> Any:
    """The request for another wire, and what was dropped."""
    return decode_request(body(messages, *tools, **fields), "anthropic").request_for(wire)


def names(*arguments: Any, **fields: Any) -> list[str]:
    return [one.name for one in sent(*arguments, **fields)[0].tools]


@pytest.mark.parametrize(("provider", "model"), PROVIDERS)
def test_a_search_loads_a_tool_that_the_model_then_calls(provider: str, model: str) -> None:
    server = Scripted(STEPS, strict=True)

    async def converse() -> Any:
        async with serving(gateway(upstream("", provider=provider, via=server, key="client"))) as browser:
            client = anthropic_client(browser)
            messages: list[Any] = [{"role": "user", "content": "Go."}]
            tools = [tool("mail"), SEARCH, PLACEHOLDER, tool("forecast")]
            results: list[Any] = [[{"type": "tool_reference", "tool_name": "forecast"}], "25 degrees"]
            while True:
                reply: Any = await client.messages.create(model=model, max_tokens=99, messages=messages, tools=tools)
                if reply.stop_reason != "tool_use":
                    return reply.content[-1].text
                content = reply.content[-1]
                answer = {"type": "tool_result", "tool_use_id": content.id, "content": results.pop(0)}
                messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": [answer]}]

    assert asyncio.run(converse()) == "Sunny."
    assert [[one.name for one in request.tools] for request in server.requests] == [
        ["ToolSearch"], ["ToolSearch", "forecast"], ["ToolSearch", "forecast"],
    ]  # fmt: skip
    found = server.requests[1].results[0].text
    assert json.loads(found.split("<function>")[1].split("</function>")[0]) == {
        "description": "Does forecast.", "name": "forecast", "parameters": SCHEMA,
    }  # fmt: skip


def test_loaded_tools_are_appended_in_the_order_of_loading() -> None:
    tools = [tool("a"), tool("b"), SEARCH, tool("c"), tool("d", deferred=False)]
    assert names([], *tools) == ["ToolSearch", "d"]
    assert names(loads("1", "c"), *tools) == ["ToolSearch", "d", "c"]
    assert names([*loads("1", "c"), *loads("2", "a", "c")], *tools) == ["ToolSearch", "d", "c", "a"]


def test_the_history_of_earlier_requests_stays_the_same_when_more_is_loaded() -> None:
    tools = [tool("a"), tool("b"), SEARCH]
    first = sent(loads("1", "b"), *tools)[0].messages
    second = sent([*loads("1", "b"), *loads("2", "a")], *tools)[0].messages
    assert second[: len(first)] == first


def test_a_called_tool_and_a_chosen_tool_are_loaded() -> None:
    tools = [tool("a"), tool("b"), SEARCH]
    assert names(turns("1", "b", "done"), *tools) == ["ToolSearch", "b"]
    assert names([], *tools, tool_choice={"type": "tool", "name": "a"}) == ["ToolSearch", "a"]


def test_a_required_call_without_a_loaded_tool_is_not_demanded_of_the_server() -> None:
    server = Scripted(["Which tool?"], strict=True)

    async def main() -> Any:
        async with serving(gateway(upstream("", via=server, key=""))) as browser:
            asked = body([], tool("a"), tool("b"), tool_choice={"type": "any"})
            reply = await browser.post("/v1/messages", asked)
            assert reply.status == 200
            return (await browser.get("/healed")).json["requests"][0]["notes"]

    assert asyncio.run(main()) == ["the tool choice 'required' was not sent: none of the tools could be sent"]
    assert "tool_choice" not in server.requests[0].body


def test_the_report_says_which_tools_are_not_loaded() -> None:
    tools = [tool(f"t{number}") for number in range(8)]
    with patch.object(client_request, "MAX_NAMED", 3):
        dropped = sent(loads("1", "t0"), SEARCH, *tools)[1]
    assert [(one.place, one.why) for one in dropped] == [
        ("tools", "t1, t2, t3 and 4 more: deferred, and not loaded yet")
    ]


def test_a_reference_to_an_unknown_tool_says_so() -> None:
    messages = sent([*loads("1", "gone", "a")], SEARCH, tool("a"))[0].messages
    text = messages[-1].results[0].text
    assert text.endswith("</functions>\nThe tool gone is not declared.")


def test_all_tools_are_declared_if_the_provider_was_to_search() -> None:
    hosted = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    request, dropped = sent([], hosted, tool("a"), tool("b"))
    assert [one.name for one in request.tools] == ["a", "b"]
    assert [one.why for one in dropped] == ["tool_search_tool_bm25 runs at its provider; there is no such tool here"]


def test_a_server_of_the_same_protocol_without_deferral_gets_plain_tools() -> None:
    request = decode_request(body(loads("1", "a"), SEARCH, tool("a"), tool("b")), "anthropic")
    local, _ = request.request_for("anthropic", has_hosted=False)
    assert [(one.name, "defer_loading" in one.extra) for one in local.tools] == [("ToolSearch", False), ("a", False)]
    assert "<function>" in local.messages[-1].results[0].text
    assert not local.messages[-1].results[0].state


def test_the_provider_of_the_protocol_gets_everything_as_it_came() -> None:
    change = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "b"}}
    asked = body(
        [*loads("1", "a"), {"role": "system", "content": [{"type": "text", "text": "New."}, change]}],
        SEARCH, tool("a"), tool("b"), PLACEHOLDER,
    )  # fmt: skip
    server = Scripted(["Done."])

    async def converse() -> None:
        async with serving(gateway(upstream("", provider="anthropic", via=server, key="client"))) as browser:
            await anthropic_client(browser).messages.create(**asked)

    asyncio.run(converse())
    received = server.requests[0].body
    assert [one.get("defer_loading") for one in received["tools"]] == [None, True, True, True]
    assert received["messages"][-2:] == [
        {"role": "user", "content": asked["messages"][2]["content"]}, asked["messages"][-1],
    ]  # fmt: skip


def test_tools_that_a_system_message_adds_and_removes() -> None:
    def change(kind: str, reference: Any) -> Any:
        return {"role": "system", "content": [{"type": kind, "tool": reference}]}

    def named(name: str) -> Any:
        return {"type": "tool_reference", "name": name}

    definition = {"type": "tool_definition", "definition": {"name": "late", "input_schema": SCHEMA}}
    messages = [
        change("tool_addition", named("a")), change("tool_addition", definition), change("tool_removal", named("b")),
    ]  # fmt: skip
    request, dropped = sent(messages, SEARCH, tool("a"), tool("b", deferred=False))
    assert [one.name for one in request.tools] == ["ToolSearch", "a", "late"]
    assert [one.text for one in request.messages[1:]] == [
        "The tool a is now available.", "The tool late is now available.", "The tool b is no longer available.",
    ]  # fmt: skip
    assert not dropped
    again = [*messages, change("tool_addition", named("b"))]
    assert names(again, SEARCH, tool("a"), tool("b", deferred=False)) == ["ToolSearch", "b", "a", "late"]
