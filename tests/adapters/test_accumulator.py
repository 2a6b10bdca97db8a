"""StreamingToolCallAccumulator: raw deltas in, complete calls out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

import penstock
from penstock import StreamingToolCallAccumulator, UsageError

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
    assert calls.tool_calls == {}
    calls.add_chunk(DELTAS[1])
    assert calls.tool_calls == {}
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


def head(arguments: str | None, index: int = 0) -> dict[str, Any]:
    return {"index": index, "id": f"c{index}", "type": "function", "function": {"name": "now", "arguments": arguments}}


def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


@pytest.mark.parametrize("arguments", ["", None, "null", " ", '"null"'], ids=repr)
@pytest.mark.parametrize("reason", ["tool_calls", "stop"])
def test_a_call_without_arguments_is_complete_when_the_finish_reason_has_come(
    arguments: str | None, reason: str
) -> None:
    calls = StreamingToolCallAccumulator()
    calls.add_chunk(chunk({"tool_calls": [head(arguments)]}))
    assert not calls.has_complete_tool_calls()
    calls.add_chunk(chunk({}, reason))
    assert [(call.id, call.arguments) for call in calls.get_complete_tool_calls()] == [("c0", {})]


@pytest.mark.parametrize("reason", ["length", "content_filter", "error"])
def test_a_call_without_arguments_is_not_complete_if_the_response_was_interrupted(reason: str) -> None:
    calls = StreamingToolCallAccumulator()
    calls.add_chunk(chunk({"tool_calls": [head("")]}, reason))
    assert not calls.has_complete_tool_calls()


def test_the_finish_reason_does_not_complete_arguments_that_are_cut() -> None:
    calls = StreamingToolCallAccumulator()
    calls.add_chunk(chunk({"tool_calls": [head('{"a": 1')]}, "tool_calls"))
    assert not calls.has_complete_tool_calls()


def test_a_legacy_function_call_is_accumulated() -> None:
    calls = StreamingToolCallAccumulator()
    for function_call in ({"name": "now", "arguments": '{"zone":'}, {"arguments": ' "UTC"}'}):
        assert not calls.has_complete_tool_calls()
        calls.add_chunk(chunk({"function_call": function_call}))
    [call] = calls.get_complete_tool_calls()
    assert (call.name, call.arguments) == ("now", {"zone": "UTC"})
    assert call.id
    calls = StreamingToolCallAccumulator()
    calls.add_chunk({"function_call": {"name": "now", "arguments": "{}"}})
    assert calls.has_complete_tool_calls(), "a delta without its chunk"


def test_a_whole_message_is_accumulated() -> None:
    calls = StreamingToolCallAccumulator()
    calls.add_chunk({"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [head('{"a":1}')]},
                                  "finish_reason": "tool_calls"}]})  # fmt: skip
    assert [call.arguments for call in calls.get_complete_tool_calls()] == [{"a": 1}]


def test_the_calls_so_far_are_listed_by_index_with_what_they_lack() -> None:
    calls = StreamingToolCallAccumulator()
    calls.add_chunk([head("{}", 1), {"index": 0, "function": {"name": "chart", "arguments": '{"a'}}])
    assert calls.tool_calls == {
        1: {"id": "c1", "name": "now", "arguments": "{}", "missing": []},
        0: {"id": "", "name": "chart", "arguments": '{"a', "missing": ["id", "arguments"]},
    }


def test_calls_that_share_an_index_or_have_none_are_listed_apart() -> None:
    calls = StreamingToolCallAccumulator()
    for id in ("a", "b"):
        calls.add_chunk([{"index": 0, "id": id, "function": {"name": id, "arguments": "{}"}}])
    calls.add_chunk([{"id": "c", "function": {"name": "c", "arguments": "{}"}}])
    assert {index: call["id"] for index, call in calls.tool_calls.items()} == {0: "a", 1: "b", 2: "c"}


def test_clear_can_keep_calls_that_are_still_written() -> None:
    calls = StreamingToolCallAccumulator()
    ready: list[str] = []
    for delta in [head("{}", 0)], [head('{"a":', 1)], [{"index": 1, "function": {"arguments": "1}"}}], [head("{}", 0)]:
        calls.add_chunk(delta)
        if calls.has_complete_tool_calls():
            ready += [call.id for call in calls.get_complete_tool_calls()]
            calls.clear(only_complete=True)
    assert ready == ["c0", "c1"], "each once, also the one that is sent again"


OTHER_WIRES: dict[str, Any] = {
    "anthropic": {"type": "content_block_start", "index": 0,
                  "content_block": {"type": "tool_use", "id": "t", "name": "now", "input": {}}},
    "bedrock": {"contentBlockStart": {"start": {"toolUse": {"toolUseId": "t", "name": "now"}}, "contentBlockIndex": 0}},
    "cohere": {"type": "tool-call-start", "index": 0,
               "delta": {"message": {"tool_calls": {"id": "c", "function": {"name": "now", "arguments": ""}}}}},
    "gemini": {"candidates": [{"content": {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}}]},
    "ollama": {"model": "m", "message": {"role": "assistant", "content": "",
                                         "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, "done": False},
    "openai-responses": {"type": "response.output_item.added", "output_index": 0,
                         "item": {"type": "function_call", "id": "i", "call_id": "c", "name": "now", "arguments": ""}},
}  # fmt: skip


@pytest.mark.parametrize("wire", OTHER_WIRES)
@pytest.mark.parametrize("shape", [lambda value: value, lambda value: [value]], ids=["chunk", "list"])
def test_a_chunk_of_another_wire_is_refused_with_the_function_to_use(wire: str, shape: Any) -> None:
    calls = StreamingToolCallAccumulator()
    with pytest.raises(UsageError, match=rf'decode\(stream, wire="{wire}"\)'):
        calls.add_chunk(shape(OTHER_WIRES[wire]))


@pytest.mark.parametrize(
    "part",
    [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{"}},
        {"type": "response.output_text.delta", "delta": "x"},
        {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]},
        {"id": "r", "object": "response", "output": []},
        {"something": "else"},
    ],
    ids=["delta-alone", "text-delta", "whole-message", "whole-response", "unknown"],
)
def test_a_chunk_of_no_known_shape_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"penstock\.decode"):
        StreamingToolCallAccumulator().add_chunk(part)


@pytest.mark.parametrize(
    "part",
    [{"content": "x"}, {"role": "assistant"}, {"usage": {"prompt_tokens": 1}}, chunk({"content": "x"}, "stop"),
     {"choices": [], "usage": {"prompt_tokens": 1}}, {"data": chunk({"content": "x"})}],
    ids=repr,
)  # fmt: skip
def test_parts_of_chunks_without_calls_are_accepted(part: dict[str, Any]) -> None:
    calls = StreamingToolCallAccumulator()
    calls.add_chunk(part)
    assert calls.tool_calls == {}


def test_a_wrapper_call_is_replaced_by_the_calls_inside_it_as_in_decode() -> None:
    uses = [{"recipient_name": f"functions.{name}", "parameters": {"n": number}} for number, name in enumerate("ab")]
    entry = {"index": 0, "id": "w", "function": {"name": "multi_tool_use.parallel", "arguments": ""}}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [entry]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {
            "arguments": json.dumps({"tool_uses": uses})}}]}, "finish_reason": "tool_calls"}]},
    ]  # fmt: skip
    for tools, names in ((["a", "b"], ["a", "b"]), (["a"], ["multi_tool_use.parallel"]), (None, ["a", "b"])):
        calls = penstock.StreamingToolCallAccumulator(tools)
        for chunk in chunks:
            calls.add_chunk(chunk)
        complete = calls.get_complete_tool_calls()
        decoded = penstock.extract(penstock.decode([*chunks, b"data: [DONE]\n\n"], "openai-chat", tools))
        assert [call.name for call in complete] == names
        assert [(call.id, call.name, call.arguments) for call in complete] == [
            (call.id, call.name, call.arguments) for call in decoded
        ]
        assert complete == calls.get_complete_tool_calls(), "asked again, it says the same"
        calls.clear(only_complete=True)
        assert not calls.get_complete_tool_calls()
