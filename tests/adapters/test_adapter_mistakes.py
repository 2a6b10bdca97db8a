"""Mistakes of people who use an adapter: each error says what to pass instead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Any

import pytest

import penstock
from penstock.adapters import aisuite, go_client, langchain_dart, msgflux, reqllm
from penstock.adapters.wire_detector import WireDetector
from penstock.testing import Reply, Scripted, call, frames
from penstock.wires import WIRES

BROKEN = Reply("Hm.", call("look", '{"x": '))
MIXED = Reply(call("look", '{"x": '), call("look", {"x": 1}))
MESSAGE = "the JSON of the arguments is incomplete"


def model(reply: Reply) -> penstock.Model:
    return penstock.Model("openai-compatible:m", via=Scripted(reply))


def send(callback: Any) -> Any:
    return go_client.AIClient(model(BROKEN)).SendMessageStreamWithCallback("?", callback)


def test_a_response_with_nothing_but_invalid_calls_is_an_error_in_every_shape() -> None:
    seen: list[Any] = []
    callback = go_client.StreamResponseCallback(OnComplete=seen.append, OnError=seen.append)
    assert MESSAGE in send(callback).message
    assert [type(one) for one in seen] == [penstock.Error]
    assert reqllm.stream_text_and_classify(model(BROKEN), "?")["type"] == "error"
    with pytest.raises(penstock.ProviderError, match=MESSAGE):
        list(aisuite.chunks(model(BROKEN).stream("?")))
    with pytest.raises(penstock.ProviderError, match=MESSAGE):
        list(msgflux.ChatCompletionModel(model(BROKEN)).stream("?"))
    with pytest.raises(penstock.ProviderError, match=MESSAGE):
        asyncio.run(read(msgflux.ChatCompletionModel(model(BROKEN)).astream("?")))
    with pytest.raises(penstock.ProviderError, match=MESSAGE):
        asyncio.run(read(aisuite.achunks(model(BROKEN).astream("?"))))


def test_a_call_beside_an_invalid_one_can_run() -> None:
    calls = [chunk.tool_call for chunk in msgflux.ChatCompletionModel(model(MIXED)).stream("?") if chunk.tool_call]
    assert [one.get_params() for one in calls] == [{"x": 1}]
    assert sum(bool(chunk.choices[0].delta.tool_calls) for chunk in aisuite.chunks(model(MIXED).stream("?"))) == 1


async def read(chunks: AsyncIterable[Any]) -> list[Any]:
    return [chunk async for chunk in chunks]


def test_the_objects_of_adapters_say_what_they_are() -> None:
    assert repr(msgflux.ChatCompletionModel("sim:fast")) == "ChatCompletionModel('sim:fast')"
    assert repr(msgflux.AgentStreamer("guide", "sim:fast")) == "AgentStreamer('sim:fast', tools=[], name='guide')"
    assert repr(reqllm.stream_text("sim:fast", "Hi.")).startswith("StreamResponse(<Stream from")
    part = langchain_dart.ToolPart.call(id="1", name="look", arguments={"x": 1}, argumentsRawString='{"x": 1}')
    assert repr(part) == """ToolPart.call(id='1', name='look', arguments={'x': 1}, argumentsRawString='{"x": 1}')"""
    result = langchain_dart.ToolPart.result(id="1", name="look", result="seen")
    assert repr(result) == "ToolPart.result(id='1', name='look', result='seen')"


@pytest.mark.parametrize("wire", WIRES)
def test_the_wire_of_chunks_is_detected(wire: Any) -> None:
    body = list(frames(wire, Reply("Hm.", call("look", {"x": 1}))))
    detector = WireDetector()
    assert next(filter(None, map(detector.feed, body)), None) == wire
    assert [(one.name, one.arguments) for one in reqllm.extract(body)] == [("look", {"x": 1})]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: reqllm.classify([{"foo": 1}]), "no wire understands these chunks; pass wire=, one of: anthropic, "),
        (lambda: reqllm.classify(b"hello"), "no wire understands these chunks"),
        (lambda: go_client.AIClient(3), "the model must be a Model, or its name as 'provider:model', not 3"),  # type: ignore[arg-type]
        (lambda: go_client.StreamResponseCallback(OnMessage=3), "OnMessage must be a function, not 3"),  # type: ignore[arg-type]
        (lambda: send(print), "the callback must be a StreamResponseCallback"),
        (lambda: msgflux.AgentStreamer(3), "must be the name of the agent, or a tool_executor, not 3"),  # type: ignore[arg-type]
        (lambda: list(msgflux.ChatCompletionModel("sim:fast").stream("Hi.", tools=[])), "passed as tool_schemas="),  # type: ignore[call-arg]
        (lambda: list(aisuite.chunks(penstock.Model("sim:fast").astream("Hi."))), "AsyncStream is not iterable"),  # type: ignore[arg-type]
        (lambda: reqllm.classify(3), "expected events, not an int"),  # type: ignore[arg-type]
        (lambda: reqllm.extract(None), "expected events, not None"),  # type: ignore[arg-type]
        (lambda: reqllm.classify(penstock.Model("sim:fast").astream("Hi.")), "AsyncStream is not iterable"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_what_to_pass(wrong: Any, message: str) -> None:
    with pytest.raises(penstock.UsageError, match=message):
        wrong()
