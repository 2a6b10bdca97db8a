"""Clients that refer to items of earlier responses, as the AI SDK does, and clients that send back a part of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Message, Opaque, Reasoning, Text, ToolCall
from penstock.declarations import ToolDeclaration
from penstock.gateway.memory import KeptResponse, with_items
from penstock.history.client_request import decode_request
from penstock.testing import ReceivedRequest, Reply, Scripted, call, think
from tests.asgi_client import Browser, serving
from tests.gateways import SHELL, TOOLS, gateway, upstream

RESPONSES_TOOLS: Any = [{"type": "function", **SHELL}]


def answer(request: ReceivedRequest) -> Any:
    if request.results:
        return f"It printed {request.results[0].text}."
    return Reply(think("A command."), "I look.", call("shell", {"command": "echo 42"}))


async def refer(browser: Browser, **fields: Any) -> Any:
    """Asks twice: the second request refers to every item of the first response."""
    base = {"model": "m", "tools": RESPONSES_TOOLS, **fields}
    question = {"role": "user", "content": "Say."}
    first = (await browser.post("/v1/responses", {**base, "input": [question]})).json
    one = next(item for item in first["output"] if item["type"] == "function_call")
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    result = {"type": "function_call_output", "call_id": one["call_id"], "output": "42"}
    return await browser.post("/v1/responses", {**base, "input": [question, *references, result]})


@pytest.mark.parametrize(
    ("provider", "model"),
    [("llamacpp", "qwen"), ("openai", "gpt-5"), ("anthropic", "claude-sonnet-5"), ("google", "gemini-3-pro")],
)
def test_items_that_a_client_refers_to_are_sent_upstream_with_their_vendor_state(provider: str, model: str) -> None:
    server = Scripted(answer, strict=True)

    async def converse() -> Any:
        app = gateway(upstream("", provider=provider, via=server, key="client"))
        async with serving(app) as browser:
            return (await refer(browser, model=model, reasoning={"effort": "low"})).json

    last = asyncio.run(converse())
    assert last["output"][-1]["content"][0]["text"] == "It printed 42."
    assert "item_reference" not in str(server.requests[1].body)
    assert [one.name for one in server.requests[1].results] == ["shell"]


def test_items_that_are_not_kept_are_an_error_that_says_what_to_send() -> None:
    async def converse() -> Any:
        async with serving(gateway(upstream(answer))) as browser:
            return await refer(browser, store=False)

    reply = asyncio.run(converse())
    assert reply.status == 400
    assert "another provider keeps; send the content itself" in reply.json["error"]["message"]


REPLY = Message(
    "assistant",
    (
        Reasoning(0, "Hm."), Opaque(0, "anthropic", "signature", "abc"), Text(1, "One."),
        ToolCall("a", "f", {}, block=2), ToolCall("b", "p", {}, "x", kind="custom", block=3), Text(4, "Two."),
    ),
)  # fmt: skip
KEPT = KeptResponse(reply=REPLY, tools=(ToolDeclaration("f"), ToolDeclaration("p", is_custom=True)))


def parts(*ids: str) -> list[Any]:
    items: list[Any] = [{"role": "user", "content": "Say."}, *({"type": "item_reference", "id": id} for id in ids)]
    request = decode_request({"model": "m", "input": items}, "openai-responses")
    found = with_items(request, {"77": KEPT}.get)[1:]
    return [part for message in found for part in message.parts]


def test_only_what_is_referred_to_is_sent() -> None:
    assert [getattr(part, "text", part.type) for part in parts("rs_77_0")] == ["Hm.", "opaque"]
    assert [part.text for part in parts("msg_77_1", "msg_77_4")] == ["One.", "Two."]
    assert [part.id for part in parts("fc_77_0", "ctc_77_1")] == ["a", "b"]
    assert len(parts("rs_77_0", "msg_77_1", "fc_77_0", "ctc_77_1", "msg_77_4")) == len(REPLY.parts)
    assert len({part.block for part in parts("msg_77_1", "msg_77_4", "fc_77_0")}) == 3, "blocks are numbered again"


@pytest.mark.parametrize("id", ["msg_78_1", "msg_77_9", "x", ""])
def test_references_to_unknown_items_stay(id: str) -> None:
    assert [part.kind for part in parts(id)] == ["item_reference"]


def test_a_client_that_sends_reasoning_back_loses_no_signature() -> None:
    """The signature of reasoning has no place in its protocol, although the text of it has one."""
    server = Scripted(answer, strict=True)

    async def converse() -> None:
        app = gateway(upstream("", provider="anthropic", via=server, key="client"))
        async with serving(app) as browser:
            base = {"model": "claude-sonnet-4-5", "tools": TOOLS, "max_tokens": 4000, "reasoning_effort": "low"}
            messages: list[Any] = [{"role": "user", "content": "Say."}]
            first = (await browser.post("/v1/chat/completions", {**base, "messages": messages})).json
            reply = first["choices"][0]["message"]
            assert reply["reasoning_content"]
            result = {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "42"}
            last = await browser.post("/v1/chat/completions", {**base, "messages": [*messages, reply, result]})
            assert last.status == 200, last.body

    asyncio.run(converse())
    [thinking] = [
        block
        for message in server.requests[1].body["messages"]
        for block in message["content"]
        if block["type"] == "thinking"
    ]
    assert thinking["signature"]
