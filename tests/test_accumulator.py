"""StreamingToolCallAccumulator: raw deltas in, complete calls out."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

from penstock import StreamingToolCallAccumulator

DELTAS: list[list[dict[str, Any]]] = [
    [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "redis", "arguments": ""}}],
    [{"index": 0, "function": {"arguments": '{"command":'}}],
    [{"index": 1, "id": "call_2", "type": "function", "function": {"name": "clock", "arguments": "{}"}}],
    [{"index": 0, "function": {"arguments": ' "KEYS *'}}],
    [{"index": 0, "function": {"arguments": '"}'}}],
]


def as_sdk_objects(deltas: list[dict[str, Any]]) -> Any:
    return [ChoiceDeltaToolCall.model_validate(delta) for delta in deltas]


def as_chunk(deltas: list[dict[str, Any]]) -> Any:
    return ChatCompletionChunk.model_validate({
        "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": {"tool_calls": deltas}, "finish_reason": None}],
    })  # fmt: skip


@pytest.mark.parametrize("shape", [list, as_sdk_objects, as_chunk], ids=["dicts", "sdk-objects", "whole-chunks"])
def test_deltas_in_any_form_are_accumulated(shape: Any) -> None:
    calls = StreamingToolCallAccumulator()
    for deltas in DELTAS[:2]:
        calls.add_chunk(shape(deltas))
    assert not calls.has_complete_tool_calls()
    for deltas in DELTAS[2:]:
        calls.add_chunk(shape(deltas))
    assert calls.has_complete_tool_calls()
    complete = calls.get_complete_tool_calls()
    assert [(call.id, call.name, call.arguments) for call in complete] == [
        ("call_1", "redis", {"command": "KEYS *"}),
        ("call_2", "clock", {}),
    ]
    assert complete[0].arguments_raw == '{"command": "KEYS *"}'


@pytest.mark.parametrize(
    "delta",
    [
        {"index": 0, "function": {"name": "f", "arguments": "{}"}},
        {"index": 0, "id": "c", "function": {"arguments": "{}"}},
        {"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}},
        {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a": 1'}},
        {"index": 0, "id": "c", "function": {"name": "f", "arguments": "[1]"}},
    ],
    ids=["no-id", "no-name", "no-arguments", "cut", "no-object"],
)
def test_a_call_without_id_name_or_whole_arguments_is_not_complete(delta: dict[str, Any]) -> None:
    calls = StreamingToolCallAccumulator()
    calls.add_chunk([delta])
    assert not calls.has_complete_tool_calls()
    assert calls.get_complete_tool_calls() == []
    assert len(calls.tool_calls) == 1


def test_clear_forgets_everything_and_ignores_late_pieces() -> None:
    calls = StreamingToolCallAccumulator()
    calls.add_chunk(DELTAS[0])
    calls.clear()
    assert calls.tool_calls == []
    calls.add_chunk(DELTAS[1])
    assert calls.tool_calls == []
    calls.add_chunk(DELTAS[2])
    assert [call.name for call in calls.get_complete_tool_calls()] == ["clock"]


@pytest.mark.parametrize("nothing", [None, [], {}, {"choices": []}, {"choices": None}], ids=repr)
def test_chunks_without_deltas_are_accepted(nothing: Any) -> None:
    calls = StreamingToolCallAccumulator()
    calls.add_chunk(nothing)
    assert not calls.has_complete_tool_calls()


def test_only_the_first_choice_is_accumulated() -> None:
    calls = StreamingToolCallAccumulator()
    for choice in (0, 1):
        delta = {"tool_calls": [{"index": 0, "id": f"c{choice}", "function": {"name": "f", "arguments": "{}"}}]}
        calls.add_chunk({"choices": [{"index": choice, "delta": delta}]})
    assert [call.id for call in calls.get_complete_tool_calls()] == ["c0"]


def test_the_same_call_again_is_one_call() -> None:
    def entry(index: int, arguments: str, id: str = "x1") -> dict[str, Any]:
        return {"index": index, "id": id, "type": "function", "function": {"name": "pay", "arguments": arguments}}

    calls = StreamingToolCallAccumulator()
    calls.add_chunk([entry(0, '{"n":1}'), entry(1, '{"n": 1}')])
    assert [call.id for call in calls.get_complete_tool_calls()] == ["x1"]
    calls.add_chunk([entry(2, '{"n":2}')])
    assert len(calls.get_complete_tool_calls()) == 3, "the id identifies nothing"
