"""AISuite: the accumulator of raw deltas, row by row."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

import penstock
from penstock.adapters import aisuite
from penstock.testing import Reply, Scripted, call, fail, frames, say
from penstock.wires import WIRES, wire_name
from tests.seeds.documents import document, fenced, needs_documents, row, run_sample

IMPORTS = "from penstock.adapters.aisuite import StreamingToolCallAccumulator"


def piece(index: int | None, arguments: str | None, id: str | None = None, name: str | None = None) -> dict[str, Any]:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chunk(*pieces: dict[str, Any], content: str | None = None, finish: str | None = None) -> ChatCompletionChunk:
    choice = {"index": 0, "delta": {"content": content, "tool_calls": list(pieces) or None}, "finish_reason": finish}
    return ChatCompletionChunk.model_validate(
        {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    )


CHUNKS = [
    chunk(content="Let me look."),
    chunk(piece(0, "", "call_1", "weather"), piece(1, "", "call_2", "trains")),
    chunk(piece(1, '{"to": "Ro')),
    chunk(piece(0, '{"city": ')),
    chunk(piece(0, '"Rome"}')),
    chunk(piece(1, 'me"}')),
    chunk(finish="tool_calls"),
]
CALLS = [("call_1", "weather", {"city": "Rome"}), ("call_2", "trains", {"to": "Rome"})]


async def as_async(items: Iterable[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


def accumulated(*deltas: Any) -> aisuite.StreamingToolCallAccumulator:
    calls = aisuite.StreamingToolCallAccumulator()
    for delta in deltas:
        calls.add_chunk(delta)
    return calls


def read(calls: Iterable[aisuite.ChatCompletionMessageToolCall]) -> list[tuple[str, str, Any]]:
    return [(call.id, call.function.name, json.loads(call.function.arguments)) for call in calls]


class Collecting(aisuite.StreamingToolCallAccumulator):
    """Keeps what a loop has seen as complete before it clears the accumulator."""

    def __init__(self) -> None:
        super().__init__()
        self.processed: list[aisuite.ChatCompletionMessageToolCall] = []

    def get_complete_tool_calls(self) -> list[aisuite.ChatCompletionMessageToolCall]:
        complete = super().get_complete_tool_calls()
        self.processed += complete
        return complete


# -- the samples -------------------------------------------------------------------------------------------------------


def sample_loop(words: str, stream: Any, *, asynchronous: bool = False) -> dict[str, Any]:
    """Runs the only sample with these words over a stream; `accumulator` is in the names that it returns."""
    [code] = [block for block in fenced(2, "python") if words in block]
    imports = "from tests.seeds.test_aisuite import Collecting as StreamingToolCallAccumulator"
    names = {"stream": as_async(stream) if asynchronous else stream}
    return asyncio.run(run_sample(code, names, imports))


@needs_documents
@row(78)
def test_the_basic_pattern_runs_as_it_is_over_the_objects_of_the_sdk(capsys: pytest.CaptureFixture[str]) -> None:
    names = sample_loop("async for chunk in stream", CHUNKS, asynchronous=True)
    assert read(names["accumulator"].processed) == CALLS  # `clear` kept the call that was half written
    assert capsys.readouterr().out == "Let me look."
    assert asyncio.run(run_sample(IMPORTS, {}, IMPORTS))["StreamingToolCallAccumulator"]


@needs_documents
@row(79)
def test_the_loop_of_the_migration_guide_runs_as_it_is() -> None:
    names = sample_loop("# Process complete tool calls\n", CHUNKS)
    assert read(names["accumulator"].processed) == CALLS


@needs_documents
def test_the_loop_that_the_guide_calls_incorrect_fails_with_partial_data() -> None:
    [code] = [block for block in fenced(2, "python") if "convert_tool_calls(" in block]

    def convert_tool_calls(deltas: Any) -> Any:
        return [json.loads(delta.function.arguments) for delta in deltas]

    names = {"stream": CHUNKS, "convert_tool_calls": convert_tool_calls}
    with pytest.raises(json.JSONDecodeError):
        asyncio.run(run_sample(code, names))


@needs_documents
def test_the_debug_tips_print_the_state_of_each_call(capsys: pytest.CaptureFixture[str]) -> None:
    sample_loop("# Add debug logging", CHUNKS)
    states = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Current state: ")]
    assert len(states) == 5
    assert "{0: {'id': 'call_1', 'name': 'weather'" in states[-1]


@needs_documents
def test_the_accumulator_has_every_method_of_the_document() -> None:
    listed = [line.split("`")[1].partition("(")[0] for line in document(2).splitlines() if line.startswith("- `")]
    methods = [name for name in listed if name.endswith(("chunk", "calls", "clear"))]
    assert methods == ["add_chunk", "has_complete_tool_calls", "get_complete_tool_calls", "clear"]
    assert all(callable(getattr(aisuite.StreamingToolCallAccumulator, name)) for name in methods)


# -- the rows ----------------------------------------------------------------------------------------------------------


@row(80)
def test_add_chunk_takes_deltas_of_the_sdk_dicts_whole_chunks_and_nothing() -> None:
    forms: list[Any] = [
        [chunk.choices[0].delta.tool_calls for chunk in CHUNKS],
        [chunk.model_dump()["choices"][0]["delta"]["tool_calls"] for chunk in CHUNKS],
        CHUNKS,
        [chunk.model_dump() for chunk in CHUNKS],
        [None, [], *CHUNKS, None, []],
    ]
    assert [read(accumulated(*form).get_complete_tool_calls()) for form in forms] == [CALLS] * 5


@row(81)
def test_has_complete_tool_calls_is_true_when_the_first_call_is_complete() -> None:
    calls = aisuite.StreamingToolCallAccumulator()
    states = []
    for part in CHUNKS:
        calls.add_chunk(part.choices[0].delta.tool_calls)
        states.append(calls.has_complete_tool_calls())
    assert states == [False, False, False, False, True, True, True]


@row(82)
def test_a_complete_call_has_function_name_and_function_arguments() -> None:
    first, second = accumulated(*CHUNKS).get_complete_tool_calls()
    assert first.function.name == "weather"
    assert first.function.arguments == '{"city": "Rome"}'
    assert second.id == "call_2"


@row(83)
def test_the_type_of_a_complete_call_is_function() -> None:
    assert [call.type for call in accumulated(*CHUNKS).get_complete_tool_calls()] == ["function", "function"]


@row(84)
def test_clear_forgets_complete_calls_and_keeps_the_one_that_is_being_written() -> None:
    calls = accumulated(*CHUNKS[:5])
    assert [call.id for call in calls.get_complete_tool_calls()] == ["call_1"]
    calls.clear()
    assert not calls.has_complete_tool_calls()
    calls.add_chunk(CHUNKS[5])
    assert read(calls.get_complete_tool_calls()) == CALLS[1:]
    core = penstock.StreamingToolCallAccumulator()
    core.add_chunk(CHUNKS[1])
    core.clear()  # all of them, unless `only_complete`
    assert core.tool_calls == {}


@row(85)
def test_a_call_is_complete_with_an_id_a_name_and_a_json_object() -> None:
    incomplete = [
        piece(0, "{}", None, "f"),
        piece(0, "{}", "c", None),
        piece(0, "{", "c", "f"),
        piece(0, "[1]", "c", "f"),
        piece(0, '"x"', "c", "f"),
    ]
    assert [accumulated([delta]).has_complete_tool_calls() for delta in incomplete] == [False] * 5
    assert accumulated([piece(0, "{}", "c", "f")]).has_complete_tool_calls()


@row(86)
@pytest.mark.parametrize("nothing", ["", None, "null"], ids=repr)
def test_a_call_without_arguments_is_complete_when_the_finish_was_fed(nothing: str | None) -> None:
    calls = accumulated(chunk(piece(0, nothing, "c", "now")))
    if nothing != "null":  # which is complete JSON
        assert not calls.has_complete_tool_calls()
    calls.add_chunk(chunk(finish="tool_calls"))
    [complete] = calls.get_complete_tool_calls()
    assert json.loads(complete.function.arguments) == {}


@row(87)
def test_tool_calls_shows_each_call_by_its_index_with_what_is_missing() -> None:
    calls = accumulated([piece(0, '{"a"', "call_1", "f")], [piece(2, "{}", None, "g")])
    assert list(calls.tool_calls) == [0, 2]
    assert calls.tool_calls[0]["arguments"] == '{"a"'
    assert calls.tool_calls[0]["missing"] == ["arguments"]
    assert calls.tool_calls[2]["missing"] == ["id"]


@row(88)
def test_parallel_calls_are_kept_apart_by_their_index() -> None:
    assert read(accumulated(*CHUNKS).get_complete_tool_calls()) == CALLS


@row(89)
@pytest.mark.parametrize("name", ["deepseek:deepseek-chat", "anthropic:claude-sonnet-5", "google:gemini-2.5-pro"])
def test_the_stream_of_any_provider_has_deltas_with_tool_calls(name: str) -> None:
    reply = Reply(say("Let me look."), call("weather", {"city": "Rome"}), call("trains", {"to": "Rome"}))

    def loop(chunks: Iterable[aisuite.ChatCompletionChunk]) -> tuple[str, list[Any]]:
        calls, text = Collecting(), ""
        for part in chunks:
            text += part.choices[0].delta.content or ""
            if part.choices[0].delta.tool_calls:
                calls.add_chunk(part.choices[0].delta.tool_calls)
            if calls.has_complete_tool_calls():
                calls.get_complete_tool_calls()
                calls.clear()
        return text, [call[1:] for call in read(calls.processed)]

    async def asynchronous() -> list[aisuite.ChatCompletionChunk]:
        model = penstock.Model(name, via=Scripted(reply))
        async with model.astream("?", tools=["weather", "trains"]) as stream:
            return [part async for part in aisuite.achunks(stream)]

    expected = "Let me look.", [call[1:] for call in CALLS]
    with penstock.Model(name, via=Scripted(reply)).stream("?", tools=["weather", "trains"]) as stream:
        parts = list(aisuite.chunks(stream))
    assert loop(parts) == loop(asyncio.run(asynchronous())) == expected
    assert parts[-1].choices[0].finish_reason == "tool_calls"


@row(90)
@pytest.mark.parametrize("provider", ["deepseek", "openai", "anthropic", "google", "groq", "mistral"])
def test_every_provider_streams_tool_calls(provider: str) -> None:
    model = penstock.Model(f"{provider}:m", via=Scripted(Reply(call("f", {"a": 1}))))
    turn = model.complete("?", tools=["f"])
    assert turn.finish_reason == "tool_calls"
    assert turn.tool_calls[0].arguments == {"a": 1}


@row(91)
@pytest.mark.parametrize("wire", ["anthropic", "gemini", "openai-responses"])
def test_a_chunk_of_another_protocol_is_refused(wire: str) -> None:
    body = b"".join(frames(wire_name(wire), Reply(call("f", {"a": 1}))))
    data = [json.loads(line[5:]) for line in body.decode().splitlines() if line.startswith("data:")]
    with pytest.raises(penstock.UsageError, match="decode"):
        accumulated(*data)


@row(92, decision="where-the-documents-are-not-followed")
def test_arguments_that_follow_an_empty_object_make_the_call_incomplete_again() -> None:
    first, second = chunk(piece(0, "{}", "c", "f")), chunk(piece(0, '{"a": 1}'))
    calls = accumulated(first)
    assert read(calls.get_complete_tool_calls()) == [("c", "f", {})]  # it is complete JSON, as the document has it
    calls.add_chunk(second)
    assert not calls.has_complete_tool_calls()
    turn = penstock.collect(penstock.decode([first, second, chunk(finish="tool_calls")], wire="openai-chat"))
    assert turn.tool_calls == []  # `decode` waits for the end, and never had the empty call


@row(93)
def test_legacy_function_call_deltas_are_accumulated() -> None:
    deltas: list[dict[str, Any]] = [
        {"function_call": {"name": "weather", "arguments": ""}},
        {"function_call": {"arguments": '{"city": '}},
        {"function_call": {"arguments": '"Rome"}'}},
    ]
    legacy = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    [complete] = accumulated(*legacy).get_complete_tool_calls()
    assert (complete.function.name, complete.function.arguments) == ("weather", '{"city": "Rome"}')


@row(94)
def test_complete_calls_become_a_message_for_the_history() -> None:
    core = penstock.StreamingToolCallAccumulator()
    for part in CHUNKS:
        core.add_chunk(part)
    turn = penstock.Turn((*core.get_complete_tool_calls(),), "tool_calls")
    exported: Any = penstock.export_messages([turn], "openai-chat")
    [message] = exported if isinstance(exported, list) else exported["messages"]
    assert [entry["function"]["name"] for entry in message["tool_calls"]] == ["weather", "trains"]
    assert message["tool_calls"][0]["id"] == "call_1"


@row(95)
def test_incomplete_json_never_raises_and_a_wrong_argument_is_explained() -> None:
    calls = aisuite.StreamingToolCallAccumulator()
    for text in ["{", '"a', '":', " 1", ", }"]:
        calls.add_chunk([piece(0, text, "c", "f")])
        assert not calls.has_complete_tool_calls()
    wrong: Any = "x"
    with pytest.raises(penstock.UsageError, match="list of dicts or SDK objects"):
        calls.add_chunk(wrong)


def test_every_wire_reads_as_chunks() -> None:
    for wire in map(wire_name, WIRES):
        data = b"".join(frames(wire, Reply(call("f", {"a": 1}))))
        calls = accumulated(*aisuite.chunks(penstock.decode(data, wire)))
        assert [call[1:] for call in read(calls.get_complete_tool_calls())] == [("f", {"a": 1})], wire


def test_an_error_in_a_stream_of_chunks_is_raised() -> None:
    with (
        penstock.Model("anthropic:m", via=Scripted([Reply("Hm.", fail("api_error", "broken"))])).stream("?") as stream,
        pytest.raises(penstock.ProviderError, match="broken"),
    ):
        list(aisuite.chunks(stream))
