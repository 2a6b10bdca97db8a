"""Reasoning of open models within a tool loop: it goes back in the field that the provider wants."""

from __future__ import annotations

import json
from typing import Any

import pytest

import penstock
from penstock import Model, UsageError
from penstock.testing import Raw, Reply, Scripted, call, think
from tests.scripted_runs import drive, streaming, sync_and_async


@penstock.tool
def tide() -> str:
    """The tide."""
    return "high"


def sent(name: str, mode: str = "sync", first: Any = None, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first request of a run with one call, and the assistant message of the second."""
    script = Scripted([first or Reply(think("Hm."), call("tide", {})), "High."], strict=True)
    _, run = drive(streaming(penstock.Agent(Model(name, via=script, api_key="-", **options), [tide])), mode)
    assert run.finish_reason == "answered"
    return dict(script.requests[0].body), dict(script.requests[1].body["messages"][1])


@sync_and_async
@pytest.mark.parametrize("name", ["moonshot:kimi-k2-thinking", "zai:glm-5", "dashscope:qwen3-max", "deepseek:x"])
def test_reasoning_goes_back_with_its_calls(name: str, mode: str) -> None:
    _, message = sent(name, mode)
    assert (message["reasoning_content"], len(message["tool_calls"])) == ("Hm.", 1)


@pytest.mark.parametrize("name", ["moonshot:kimi-k2-thinking", "zai:glm-5", "dashscope:qwen3-max"])
def test_a_call_without_reasoning_has_the_field_all_the_same(name: str) -> None:
    _, message = sent(name, first=Reply(call("tide", {})))
    assert message["reasoning_content"] == ""


DETAILS = [{"type": "reasoning.text", "id": "r1", "format": "MiniMax-response-v1", "index": 0, "text": "Hm."}]


def calling(*deltas: dict[str, Any]) -> Raw:
    """A stream with these deltas and a call of `tide`."""
    called = {"index": 0, "id": "c1", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
    frames: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta}]} for delta in (*deltas, {"tool_calls": [called]})
    ]
    frames.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    return Raw(("".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + "data: [DONE]\n\n").encode())


def test_minimax_is_asked_for_details_and_gets_them_back_as_they_came() -> None:
    body, message = sent("minimax:MiniMax-M2", first=calling({"reasoning_details": DETAILS}))
    assert body["reasoning_split"] is True
    assert message["reasoning_details"] == DETAILS
    assert "reasoning_content" not in message


@pytest.mark.parametrize(
    ("name", "reasoning", "fields"),
    [
        ("zai:glm-5", "high", {"thinking": {"type": "enabled"}}),
        ("zai:glm-5", False, {"thinking": {"type": "disabled"}}),
        ("moonshot:kimi-k2.5", "none", {"thinking": {"type": "disabled"}}),
        ("minimax:MiniMax-M3", True, {"thinking": {"type": "adaptive"}}),
        ("minimax:MiniMax-M3", "off", {"thinking": {"type": "disabled"}}),
        ("deepseek:deepseek-chat", "low", {"reasoning_effort": "low"}),
        ("deepseek:deepseek-chat", "none", {"thinking": {"type": "disabled"}}),
        ("dashscope:qwen3-max", "low", {"enable_thinking": True}),
        ("dashscope:qwen3-max", 4096, {"enable_thinking": True, "thinking_budget": 4096}),
        ("dashscope:qwen3-max", 0, {"enable_thinking": False}),
    ],
)
def test_reasoning_is_turned_on_and_off_in_the_providers_field(name: str, reasoning: Any, fields: Any) -> None:
    body, _ = sent(name, reasoning=reasoning)
    sent_fields = {
        key: body[key] for key in ("thinking", "enable_thinking", "thinking_budget", "reasoning_effort") if key in body
    }
    assert sent_fields == fields


@sync_and_async
def test_a_keyword_says_where_reasoning_goes_back(mode: str) -> None:
    fields = ("reasoning_content", "reasoning", "reasoning_text")

    def echoed(name: str, **options: Any) -> dict[str, Any]:
        _, message = sent(name, mode, base_url="http://localhost:1/v1", **options)
        return {field: message[field] for field in fields if field in message}

    assert echoed("openai-compatible:m") == {}
    assert echoed("openai-compatible:m", reasoning_back="reasoning_content") == {"reasoning_content": "Hm."}
    assert echoed("openai-compatible:m", reasoning_back="reasoning") == {"reasoning": "Hm."}
    assert echoed("openai-compatible:m", reasoning_back="reasoning_text") == {"reasoning_text": "Hm."}
    assert echoed("vllm:m", reasoning_back="reasoning") == {"reasoning": "Hm."}
    assert echoed("vllm:m", reasoning_back=False) == {}
    assert echoed("vllm:m", reasoning_back=True) == {"reasoning_content": "Hm.", "reasoning": "Hm."}


def test_a_wrong_field_for_reasoning_is_refused() -> None:
    with pytest.raises(UsageError, match="reasoning_back must be"):
        Model("openai-compatible:m", reasoning_back="thoughts")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is for Chat Completions"):
        Model("anthropic:claude", reasoning_back="reasoning")


@pytest.mark.parametrize("name", ["openai-compatible:m", "openrouter:m", "anthropic:claude", "openai:gpt-5"])
def test_true_is_refused_where_it_has_no_effect(name: str) -> None:
    with pytest.raises(UsageError, match="reasoning_back"):
        Model(name, base_url="http://localhost:1/v1", api_key="k", reasoning_back=True)


STATES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "reasoning_opaque": ({"reasoning_text": "Hm."}, {"reasoning_opaque": "tok=="}),
    "cot_id": ({"cot_summary": "Hm."}, {"cot_id": "c1"}),
    "thinking_blocks": ({}, {"thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}),
}


@pytest.mark.parametrize("kind", STATES)
@sync_and_async
def test_state_on_reasoning_goes_back_with_its_text(kind: str, mode: str) -> None:
    text, state = STATES[kind]
    _, message = sent("openai-compatible:m", mode, calling(text | state), base_url="http://localhost:1/v1")
    assert {key: message[key] for key in message if key in text | state} == text | state
    _, message = sent("deepseek:m", mode, calling(text | state))
    assert not message.keys() & state.keys()  # it refuses fields that it does not know
