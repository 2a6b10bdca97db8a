"""ReqLLM: classify, extract and the finish reason, row by row."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import json
from typing import Any, cast

import pydantic
import pytest

import penstock
from penstock.adapters import reqllm
from penstock.messages import result, tool_results
from penstock.testing import Reply, Scripted, Status, Step, call, fail, frames, say
from penstock.wires import WIRES, wire_name
from tests.seeds.documents import document, fenced, needs_documents, row
from tests.seeds.shapes import chunk, piece

ANSWER = Reply("It is 2.")
ASKS = Reply(say("Let me see."), call("calculator", {"a": 1}, id="call_123"))
CHUNKS = [
    chunk(content="Let me see."),
    chunk(piece(0, "", "call_123", "calculator")),
    chunk(piece(0, '{"')),
    chunk(piece(0, 'a": 1}')),
    chunk(finish="tool_calls"),
]


def model(*steps: Step | str, name: str = "anthropic:claude-sonnet-5") -> penstock.Model:
    return penstock.Model(name, via=Scripted(steps), retries=penstock.Retries(attempts=1))


def events(*chunks: Any) -> list[penstock.StreamChunk]:
    return list(penstock.decode(chunks, wire="openai-chat"))


def calls_of(calls: list[penstock.ToolCall]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(call.id, call.name, call.arguments) for call in calls]


EXPECTED = [("call_123", "calculator", {"a": 1})]


# -- the samples -------------------------------------------------------------------------------------------------------


def leaky_chunks() -> list[dict[str, Any]]:
    """The chunks of the sample that the document calls leaky, with its maps written as JSON."""
    block = next(block for block in fenced(1, "elixir") if "# Chunk 1: Tool call header" in block)
    chunks = []
    for line in block.splitlines():
        if line.startswith("%{"):
            text = line.replace("%{", "{")
            for atom in ("tool_call_args", "metadata", "fragment", "index", "type", "name", "id"):
                text = text.replace(f"{atom}: ", f'"{atom}": ')
            chunks.append(json.loads(text.replace(": :tool_call", ': "tool_call"').replace(": :meta", ': "meta"')))
    return chunks


@needs_documents
def test_the_leaky_chunks_of_the_document_are_one_call() -> None:
    chunks = leaky_chunks()
    assert len(chunks) == 3
    assert calls_of(reqllm.extract(chunks)) == EXPECTED


@needs_documents
def test_the_clean_chunk_of_the_document_is_the_same_call() -> None:
    assert ":tool_call_complete" in document(1)
    clean = {"type": "tool_call_complete", "tool_call": penstock.ToolCall("call_123", "calculator", {"a": 1})}
    assert calls_of(reqllm.extract([clean])) == EXPECTED


def test_the_extraction_of_jido_line_by_line_is_one_function() -> None:
    """The forty lines of the problem statement in Python, over its chunks, and `extract` over the same chunks."""
    chunks: list[dict[str, Any]] = [
        {"type": "content", "text": "Hm."},
        {"type": "tool_call", "name": "a", "metadata": {"id": "c0", "index": 0}},
        {"type": "tool_call", "name": "b", "arguments": {}, "metadata": {"id": "c1", "index": 1}},
        {"type": "meta", "metadata": {"tool_call_args": {"index": 0, "fragment": '{"x": '}}},
        {"type": "meta", "metadata": {"tool_call_args": {"index": 1, "fragment": '{"y": 2}'}}},
        {"type": "meta", "metadata": {"tool_call_args": {"index": 0, "fragment": "1}"}}},
        {"type": "meta", "metadata": {"finish_reason": "tool_calls"}},
    ]
    tool_calls = [
        {
            "id": (chunk.get("metadata") or {}).get("id"),
            "name": chunk["name"],
            "arguments": chunk.get("arguments") or {},
            "index": (chunk.get("metadata") or {}).get("index", 0),
        }
        for chunk in chunks
        if chunk["type"] == "tool_call"
    ]
    arg_fragments: dict[int, str] = {}
    for meta in chunks:
        if meta["type"] == "meta" and "tool_call_args" in meta["metadata"]:
            args = meta["metadata"]["tool_call_args"]
            arg_fragments[args["index"]] = arg_fragments.get(args["index"], "") + args["fragment"]
    for tool_call in tool_calls:
        text = arg_fragments.get(tool_call.pop("index"))
        if text is not None:
            tool_call["arguments"] = json.loads(text)

    extracted = reqllm.extract(chunks)
    assert [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in extracted] == tool_calls
    assert reqllm.classify(chunks)["text"] == "Hm."


def handle(messages: Any, tools: list[Any], model: penstock.Model) -> Any:
    """The example of `stream_text_and_classify`, line by line: one `match` with the three cases of the document."""
    match reqllm.stream_text_and_classify(model, messages, tools=tools):
        case {"type": "tool_calls", "tool_calls": calls}:
            return "execute", calls_of(calls)
        case {"type": "final_answer", "text": answer}:
            return "answer", answer
        case {"type": "error", "error": reason}:
            return "error", reason
    return None


def test_the_three_cases_of_the_document_line_by_line() -> None:
    assert handle("?", ["calculator"], model(ASKS)) == ("execute", EXPECTED)
    assert handle("?", [], model(ANSWER)) == ("answer", "It is 2.")
    kind, reason = handle("?", [], model(Status(401, "wrong key")))
    assert (kind, type(reason)) == ("error", penstock.AuthenticationError)


def test_the_backend_of_jido_after_the_change_line_by_line() -> None:
    def stream(model: penstock.Model, context: list[Any], tools: list[Any]) -> reqllm.StreamResult:
        opts = {"tools": tools} if tools != [] else {}
        messages = penstock.as_messages(context)
        return reqllm.stream_text_and_classify(model, messages, **opts)  # type: ignore[arg-type]

    context = [{"role": "user", "content": "?"}]
    assert stream(model(ASKS), context, ["calculator"])["type"] == "tool_calls"
    assert stream(model(ANSWER), context, [])["text"] == "It is 2."


def test_streaming_and_classifying_in_two_steps_line_by_line() -> None:
    """The example of `classify`: `stream_text`, all chunks of the stream as a list, then the two cases."""
    response = reqllm.stream_text(model(ASKS), "?", tools=["calculator"])
    chunks = list(response.stream)
    match reqllm.classify(chunks):
        case {"type": "tool_calls", "tool_calls": calls}:
            assert calls_of(calls) == EXPECTED
        case other:
            pytest.fail(str(other))
    assert response.finish_reason == "tool_calls"


# -- the rows ----------------------------------------------------------------------------------------------------------


@row(56)
def test_classify_returns_the_type_the_text_and_the_calls() -> None:
    turn = penstock.classify(events(*CHUNKS))
    assert (turn.type, turn.text, calls_of(turn.tool_calls)) == ("tool_calls", "Let me see.", EXPECTED)
    assert reqllm.classify(events(*CHUNKS))["type"] == "tool_calls"


@row(57)
def test_a_response_without_calls_is_a_final_answer() -> None:
    answer = events(chunk(content="It is 2."), chunk(finish="stop"))
    assert penstock.classify(answer).type == "final_answer"
    expected: Any = {
        "type": "final_answer",
        "text": "It is 2.",
        "tool_calls": [],
        "finish_reason": "stop",
        "error": None,
    }
    assert reqllm.classify(answer) == expected


@row(58)
@pytest.mark.parametrize("wire", WIRES)
def test_classify_takes_the_raw_chunks_of_a_provider(wire: str) -> None:
    reply = Reply(say("Let me see."), call("calculator", {"a": 1}))
    data = list(frames(wire_name(wire), reply))
    for classified in (reqllm.classify(data), reqllm.classify(b"".join(data)), reqllm.classify(data, wire_name(wire))):
        assert (classified["type"], classified["text"]) == ("tool_calls", "Let me see.")
        assert [call[1:] for call in calls_of(classified["tool_calls"])] == [("calculator", {"a": 1})]


@row(59)
def test_the_result_is_a_mapping_that_can_be_matched() -> None:
    classified = reqllm.classify(events(*CHUNKS))
    assert classified["type"] == "tool_calls"
    match classified:
        case {"type": "tool_calls", "tool_calls": [first]}:
            assert first.arguments == {"a": 1}
        case _:
            pytest.fail("no case matched")
    match penstock.classify(events(*CHUNKS)):
        case penstock.Turn(type="tool_calls", tool_calls=[first]):
            assert first.id == "call_123"
        case _:
            pytest.fail("no case matched")


@row(60)
def test_extract_returns_only_the_calls() -> None:
    assert calls_of(penstock.extract(events(*CHUNKS))) == EXPECTED
    assert calls_of(reqllm.extract(CHUNKS)) == EXPECTED


@row(61)
def test_a_missing_id_is_generated() -> None:
    calls = reqllm.extract([chunk(piece(0, "{}", None, "f"), piece(1, "{}", None, "g")), chunk(finish="tool_calls")])
    assert [call.id for call in calls] == ["call_0", "call_1"]


@row(62)
def test_fragments_are_joined_by_index_also_if_they_are_interleaved() -> None:
    pieces = [(0, '{"a"'), (1, '{"b"'), (1, ": 2"), (0, ": 1"), (0, "}"), (1, "}")]
    heads = [chunk(piece(0, "", "c0", "f")), chunk(piece(1, "", "c1", "g"))]
    calls = reqllm.extract([*heads, *(chunk(piece(*one)) for one in pieces), chunk(finish="tool_calls")])
    assert [call.arguments for call in calls] == [{"a": 1}, {"b": 2}]


@row(63)
def test_arguments_that_cannot_be_decoded_are_not_a_call_without_arguments() -> None:
    turn = penstock.classify(events(chunk(piece(0, '{"x": oops}', "c", "f")), chunk(finish="tool_calls")))
    assert turn.tool_calls == []
    assert (turn.invalid_calls[0].why, turn.invalid_calls[0].arguments_raw) == ("malformed", '{"x": oops}')


REASONS = {
    "openai-chat": {"tool_calls": "tool_calls", "function_call": "tool_calls", "stop": "stop", "length": "length",
                    "content_filter": "content_filter"},
    "anthropic": {"tool_use": "tool_calls", "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length",
                  "model_context_window_exceeded": "length", "refusal": "content_filter"},
}  # fmt: skip


@row(64)
@pytest.mark.parametrize(("wire", "raw", "reason"), [(w, *pair) for w, of in REASONS.items() for pair in of.items()])
def test_finish_reasons_of_all_providers_have_the_same_names(wire: str, raw: str, reason: str) -> None:
    reply = Reply(call("f", {}), finish=raw) if reason == "tool_calls" else Reply("Hm.", finish=raw)
    turn = penstock.collect(penstock.decode(b"".join(frames(wire_name(wire), reply)), wire_name(wire)))
    assert (turn.finish_reason, turn.raw_finish_reason) == (reason, raw)


@row(65)
def test_the_finish_reason_is_none_while_the_response_is_streamed() -> None:
    response = reqllm.stream_text(model(Reply("It is 2. " * 20)), "?")
    reasons = [response.finish_reason for _ in response.stream]
    assert set(reasons[:-1]) == {None}
    assert response.finish_reason == "stop"


@row(66)
def test_the_response_names_the_model_that_answered() -> None:
    response = reqllm.stream_text(model(ANSWER, name="openai:gpt-5"), "?")
    list(response.stream)
    assert response.model
    assert response.model == response.stream.model == response.stream.turn.model


@row(67)
def test_the_response_has_its_usage() -> None:
    response = reqllm.stream_text(model(Reply("It is 2.", usage=penstock.Usage(5, 7))), "?")
    assert response.usage is None
    list(response.stream)
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (5, 7)


@row(68)
def test_stream_text_and_classify_is_a_function_of_model_messages_and_tools() -> None:
    classified = reqllm.stream_text_and_classify(model(ASKS), [{"role": "user", "content": "?"}], tools=["calculator"])
    assert (classified["type"], calls_of(classified["tool_calls"])) == ("tool_calls", EXPECTED)
    assert model(ANSWER).stream_text_and_classify("?").type == "final_answer"


@row(69)
def test_a_failure_before_the_answer_is_an_error_with_its_reason() -> None:
    classified = reqllm.stream_text_and_classify(model(Status(401, "wrong key")), "?")
    assert (classified["type"], classified["text"]) == ("error", "")
    assert isinstance(classified["error"], penstock.AuthenticationError)
    assert classified["error"].status == 401
    with pytest.raises(penstock.AuthenticationError):
        model(Status(401, "wrong key")).stream_text_and_classify("?")


@row(70)
def test_an_error_in_the_stream_is_not_a_final_answer() -> None:
    step = Reply("It is", fail("overloaded_error", "busy"))
    classified = reqllm.stream_text_and_classify(model(step), "?")
    assert (classified["type"], classified["text"]) == ("error", "It is")
    assert isinstance(classified["error"], penstock.Error)
    assert classified["error"].message == "busy"
    turn = model(step).complete("?")
    assert turn.error is not None
    assert turn.type not in ("final_answer", "tool_calls")


@row(71)
def test_a_complete_call_arrives_as_one_chunk() -> None:
    [whole] = [event for event in events(*CHUNKS) if event.type == "tool_call"]
    assert calls_of([whole]) == EXPECTED


@row(72)
def test_a_call_is_made_of_a_dict_or_of_json_text() -> None:
    wrong: Any = "{bad"
    text: Any = '{"a": 1}'
    assert penstock.ToolCall("i", "n", text).arguments == penstock.ToolCall("i", "n", {"a": 1}).arguments
    assert penstock.ToolCall("i", "n", {"a": 1}).arguments_raw == '{"a":1}'
    with pytest.raises(penstock.PenstockError):
        penstock.ToolCall("i", "n", wrong)


@dataclasses.dataclass
class Point:
    x: int


class Place(pydantic.BaseModel):
    name: str


VALUES: list[tuple[Any, str]] = [
    ({"a": 1}, '{"a":1}'), ([1, 2], "[1,2]"), (None, "null"), ("text", "text"), (1, "1"), (1.5, "1.5"), (True, "true"),
    (Point(1), '{"x":1}'), (Place(name="Rome"), '{"name":"Rome"}'), (datetime.date(2026, 1, 2), "2026-01-02"),
    ((1, 2), "[1,2]"), ({1}, "[1]"), ([], "[]"),
]  # fmt: skip


@row(73)
@pytest.mark.parametrize(("value", "text"), VALUES, ids=lambda value: repr(value)[:30])
def test_a_tool_returns_plain_values(value: Any, text: str) -> None:
    def look() -> Any:
        """Looks."""
        return value

    script = Scripted([Reply(call("look", {})), "Done."])
    penstock.Agent(penstock.Model("openai:gpt-5", via=script), tools=[look]).run("?")
    assert script.requests[1].results[0].text.replace(": ", ":").replace(", ", ",") == text


@row(74)
def test_a_result_in_a_loop_of_ones_own_takes_plain_values() -> None:
    script = Scripted([ASKS, "Done."])
    claude, plain = penstock.Model("openai:gpt-5", via=script), cast("Any", {"a": 1})
    turn = claude.complete("?", tools=["calculator"])
    claude.complete(["?", turn, tool_results(result(turn.tool_calls[0], plain))])
    assert json.loads(script.requests[1].results[0].text) == {"a": 1}


@row(75)
def test_an_agent_runs_until_the_final_answer() -> None:
    def calculator(a: int) -> int:
        """Adds one."""
        return a + 1

    answer = penstock.Agent(model(ASKS, ASKS, ANSWER), tools=[calculator]).run("?")
    assert (answer.output, answer.reason) == ("It is 2.", "answered")


@row(76)
def test_a_react_loop_is_a_few_lines() -> None:
    def calculator(a: int) -> Any:
        """Adds one."""
        return {"sum": a + 1}

    script = Scripted([ASKS, ANSWER])
    claude = penstock.Model("anthropic:claude-sonnet-5", via=script)
    history: list[Any] = ["What is 1 + 1?"]
    turn = claude.complete(history, tools=[calculator])
    while turn.type == "tool_calls":
        history += [turn, tool_results(*(result(call, calculator(**call.arguments)) for call in turn.tool_calls))]
        turn = claude.complete(history, tools=[calculator])
    assert (turn.type, turn.text) == ("final_answer", "It is 2.")
    assert json.loads(script.requests[1].results[0].text) == {"sum": 2}


@row(77)
def test_a_second_reading_is_an_error() -> None:
    stream = model(ANSWER).stream("?")
    list(stream)
    with pytest.raises(penstock.AlreadyReadError):
        list(stream)
    decoded = penstock.decode(CHUNKS, wire="openai-chat")
    list(decoded)
    with pytest.raises(penstock.AlreadyReadError):
        list(decoded)

    async def twice() -> None:
        async def pieces() -> Any:
            for one in CHUNKS:
                yield one

        read = penstock.decode(pieces(), wire="openai-chat")
        assert [event async for event in read]
        with pytest.raises(penstock.AlreadyReadError):
            assert [event async for event in read]

    asyncio.run(twice())
