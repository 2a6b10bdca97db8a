"""`TextCalls` and `Rescue`: calls in the text of an event stream, in one dialect or in many."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

import penstock
from penstock import (
    Finish,
    Opaque,
    Reasoning,
    Rescue,
    Retry,
    StreamChunk,
    Text,
    TextCalls,
    ToolCall,
    ToolCallInvalid,
    ToolCallStart,
    UsageError,
)
from penstock.dialects.registry import dialects
from penstock.dialects.rescue import LEAKS
from tests.cases import each
from tests.support import joined

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
}
LEAKED = {
    "hermes": '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function></tool_call>",
    "glm45": "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>",
    "anthropic_xml": '<invoke name="get_weather">\n<parameter name="city">Rome</parameter>\n</invoke>',
    "mistral_v11": '[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}',
    "kimi_k2": '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city":"Rome"}<|tool_call_end|>',
    "functionary_v31": '<function=get_weather>{"city": "Rome"}</function>',
    "gemma4": '<|tool_call>call:get_weather{city:<|"|>Rome<|"|>}<tool_call|>',
    "lfm2": '<|tool_call_start|>[get_weather(city="Rome")]<|tool_call_end|>',
    "olmo3": '<function_calls>get_weather(city="Rome")</function_calls>',
}


def run(stage: Any, events: Iterable[StreamChunk]) -> list[StreamChunk]:
    outputs = [out for event in events for out in stage.feed(event)]
    return joined(outputs + stage.close())


def chunks(text: str, size: int, block: int = 0) -> list[StreamChunk]:
    return [Text(block, text[at : at + size]) for at in range(0, len(text), size)]


@each("size", [1, 5, 10_000])
@each("dialect", LEAKED)
def test_a_leaked_call_is_found_among_all_dialects(dialect: str, size: int) -> None:
    events = run(Rescue([WEATHER]), [*chunks(f"Let me look. {LEAKED[dialect]}", size), Finish("stop", "stop")])
    [call] = [event for event in events if isinstance(event, ToolCall)]
    assert (call.name, call.arguments, call.origin) == ("get_weather", {"city": "Rome"}, f"text:{dialect}")
    assert penstock.collect(events).text == "Let me look. "
    assert penstock.collect(events).finish_reason == "tool_calls"


@each("size", [1, 3, 10_000])
@each("leaked", LEAKED.values(), ids=list(LEAKED))
@each("frame", ["Use it like this:\n```\n{}\n```\nthat is all.", "Write `{}` to call it.",
                                   "<think>maybe {} or not</think> no."])  # fmt: skip
def test_calls_in_code_and_reasoning_stay_text(frame: str, leaked: str, size: int) -> None:
    text = frame.format(leaked.replace("`", "'"))
    events = run(Rescue([WEATHER]), chunks(text, size))
    assert events == [Text(0, text)]


@pytest.mark.parametrize("leaked", LEAKED.values(), ids=list(LEAKED))
def test_a_call_to_an_undeclared_tool_stays_text(leaked: str) -> None:
    other = {"type": "function", "function": {"name": "search", "parameters": {}}}
    events = run(Rescue([other]), chunks(leaked, 4))
    assert not [event for event in events if isinstance(event, ToolCallStart | ToolCall | ToolCallInvalid)]
    assert "".join(event.text for event in events if isinstance(event, Text)) == leaked


def test_other_events_pass_through_in_order() -> None:
    native = ToolCall("toolu_1", "get_weather", {"city": "Oslo"}, block=2)
    events: list[StreamChunk] = [
        Reasoning(0, "hm"), Text(1, "Two. " + LEAKED["hermes"] + " and"), Opaque(1, "gemini", "thoughtSignature", "s"),
        ToolCallStart(2, "toolu_1", "get_weather"), native, Text(3, " done"), Finish("tool_calls"),
    ]  # fmt: skip
    out = run(Rescue([WEATHER]), events)
    assert [type(event).__name__ for event in out] == [
        "Reasoning", "Text", "ToolCallStart", "ToolCallDelta", "ToolCall", "Text", "Opaque", "ToolCallStart",
        "ToolCall", "Text", "Finish",
    ]  # fmt: skip
    turn = penstock.collect(out)
    assert [call.arguments["city"] for call in turn.tool_calls] == ["Rome", "Oslo"]
    assert len({part.block for part in turn.parts if not isinstance(part, Opaque)}) == len(turn.parts) - 1
    [state] = [part for part in turn.parts if isinstance(part, Opaque)]
    assert state.block == [part for part in turn.parts if isinstance(part, Text)][1].block


def test_choices_are_read_independently() -> None:
    call = LEAKED["hermes"]
    half = len(call) // 2
    events: list[StreamChunk] = [
        Text(0, call[:half], 0), Text(1, call[:half], 1), Text(0, call[half:], 0), Text(1, call[half:], 1),
        Finish("stop", choice=0), Finish("stop", choice=1),
    ]  # fmt: skip
    out = run(Rescue([WEATHER]), events)
    assert [event.choice for event in out if isinstance(event, ToolCall)] == [0, 1]


def test_every_choice_and_every_attempt_may_start_inside_reasoning() -> None:
    stage = TextCalls("plain", reasoning=True, inside_reasoning=True)
    events: list[StreamChunk] = [
        Text(0, "hm</think>a", 0),
        Text(1, "hm</think>b", 1),
        Retry("again"),
        Text(0, "hm</think>c", 0),
    ]
    out = [(event.type, event.text) for event in run(stage, events) if isinstance(event, Text | Reasoning)]
    assert out == [
        ("reasoning", "hm"),
        ("text", "a"),
        ("reasoning", "hm"),
        ("text", "b"),
        ("reasoning", "hm"),
        ("text", "c"),
    ]


def test_a_rescue_needs_tools() -> None:
    with pytest.raises(UsageError, match="declared tools"):
        Rescue([])


def test_the_finish_reason_length_stays() -> None:
    out = run(Rescue([WEATHER]), [*chunks(LEAKED["hermes"], 9), Finish("length", "length")])
    assert penstock.collect(out).finish_reason == "length"


def test_text_calls_read_the_events_of_a_decoder() -> None:
    frames = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in ("Ok ", *LEAKED["anthropic_xml"])]
    frames.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    stage = TextCalls("xml", [WEATHER])
    turn = penstock.collect(run(stage, penstock.decode(frames, wire="openai-chat")))
    assert (turn.text, turn.tool_calls[0].arguments) == ("Ok ", {"city": "Rome"})


def test_the_leaks_are_dialects() -> None:
    assert set(LEAKS) <= set(dialects())
    assert json.dumps(sorted(LEAKED)) == json.dumps(sorted(set(LEAKED) & set(LEAKS)))


def test_a_header_in_a_message_of_harmony_is_not_rescued() -> None:
    call = '<|start|>assistant<|channel|>commentary to=functions.get_weather<|message|>{"city": "Rome"}<|call|>'
    text = f"<|channel|>final<|message|>The raw format is: {call}"
    assert run(Rescue([WEATHER]), chunks(text, 7)) == [Text(0, text)]
    events = run(Rescue([WEATHER]), chunks(f"<|channel|>final<|message|>Hm.<|end|>{call}", 7))
    assert [event.name for event in events if isinstance(event, ToolCall)] == ["get_weather"]
