"""A real server: llama.cpp with a tiny model, on its three endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
import pytest

from penstock import (
    Agent,
    BadRequestError,
    ContextLengthError,
    Model,
    OutputDelta,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    Turn,
    collect,
)
from penstock.gateway import app
from penstock.messages import result, tool_results, user
from penstock.wires import wire_name
from tests.asgi_client import serving
from tests.gateways import events
from tests.llamacpp.model import CONTEXT, SENTENCE, WORDS, write_model
from tests.llamacpp.process import running

PROMPT = "What will the weather be?"
ENDPOINTS = {
    "Chat Completions": ("llamacpp:tiny", "openai-chat"),
    "Messages": ("anthropic:tiny", "anthropic"),
    "Responses": ("openai:tiny", "openai-responses"),
}


class Forecast(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments that the schema of the tool allows."""

    city: str
    days: int
    unit: Literal["C", "F"]
    tags: list[str]


TOOL = {
    "name": "forecast",
    "description": "The weather of the coming days.",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"enum": ["C", "F"]},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        },
        "required": ["city", "days", "unit", "tags"],
        "additionalProperties": False,
    },
}
REQUIRED: Any = {"tools": [TOOL], "tool_choice": "required"}

Read = Callable[..., list[StreamChunk]]


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server, which is a process of its own."""
    pytest.importorskip("xllamacpp", reason="there is no wheel of llama.cpp for this platform", exc_type=ImportError)
    model = tmp_path_factory.mktemp("llamacpp") / "tiny.gguf"
    write_model(model)
    with running(model) as found:
        yield found


@pytest.fixture(params=ENDPOINTS)
def model(request: pytest.FixtureRequest, address: str) -> Model:
    """The model, on one of the endpoints."""
    return on(request.param, address)


def on(endpoint: str, address: str) -> Model:
    name, wire = ENDPOINTS[endpoint]
    return Model(name, address, "none", wire=wire_name(wire), temperature=0, max_tokens=250)


def read_sync(model: Model, messages: Any = PROMPT, **options: Any) -> list[StreamChunk]:
    with model.stream(messages, **options) as stream:
        return list(stream)


def read_async(model: Model, messages: Any = PROMPT, **options: Any) -> list[StreamChunk]:
    async def run() -> list[StreamChunk]:
        async with model.astream(messages, **options) as stream:
            return [chunk async for chunk in stream]

    return asyncio.run(run())


@pytest.fixture(params=[read_sync, read_async], ids=["sync", "async"])
def read(request: pytest.FixtureRequest) -> Read:
    return request.param


def content(turn: Turn) -> Any:
    """The content of a turn without ids and usage, which differ each time."""
    calls = [(call.name, call.arguments) for call in turn.tool_calls]
    return turn.text, calls, turn.finish_reason, len(turn.invalid_calls), turn.error


def test_a_call_is_complete(model: Model, read: Read) -> None:
    chunks = read(model, **REQUIRED)
    turn = collect(chunks)
    assert turn.text == SENTENCE
    assert (turn.type, turn.finish_reason, turn.error) == ("tool_calls", "tool_calls", None)
    (call,) = turn.tool_calls
    assert call.name == "forecast"
    assert call.id
    msgspec.convert(call.arguments, Forecast)  # raises if they are invalid
    assert msgspec.json.decode(call.arguments_raw) == call.arguments


def test_a_call_arrives_in_pieces(model: Model, read: Read) -> None:
    chunks = read(model, **REQUIRED)
    (call,) = [chunk for chunk in chunks if isinstance(chunk, ToolCall)]
    (start,) = [chunk for chunk in chunks if isinstance(chunk, ToolCallStart)]
    pieces = [chunk.piece for chunk in chunks if isinstance(chunk, ToolCallDelta)]
    assert (start.id, start.name, start.block) == (call.id, call.name, call.block)
    assert "".join(pieces) == call.arguments_raw
    assert len(pieces) > 20


def test_text_arrives_word_by_word(model: Model, read: Read) -> None:
    chunks = read(model)
    turn = collect(chunks)
    assert [chunk.text for chunk in chunks if isinstance(chunk, Text)] == [*WORDS, "."]
    assert (turn.text, turn.type, turn.finish_reason) == (SENTENCE, "final_answer", "stop")
    assert turn.usage is not None
    assert turn.usage.output_tokens == len(WORDS) + 2  # the full stop, and the end


@pytest.mark.parametrize("options", [{}, REQUIRED], ids=["text", "call"])
def test_streamed_equals_whole(model: Model, options: Any) -> None:
    streamed, whole = (model.stream_text_and_classify(PROMPT, **options, streaming=way) for way in (True, False))
    assert content(streamed) == content(whole)


@pytest.mark.parametrize("endpoint", ["Chat Completions", "Responses"])  # the third endpoint has no seed
def test_parallel_calls_stay_separate(endpoint: str, address: str) -> None:
    model = on(endpoint, address)
    asked = ({**REQUIRED, "temperature": 1, "extra": {"seed": seed}} for seed in range(50))
    answers = ((options, model.stream_text_and_classify(PROMPT, **options)) for options in asked)
    options, turn = next((options, turn) for options, turn in answers if len(turn.tool_calls) > 1)
    assert content(turn) == content(model.stream_text_and_classify(PROMPT, **options, streaming=False))
    assert len({call.id for call in turn.tool_calls}) == len(turn.tool_calls)
    for call in turn.tool_calls:
        msgspec.convert(call.arguments, Forecast)


def test_a_call_that_was_cut_never_runs(model: Model) -> None:
    turn = model.stream_text_and_classify(PROMPT, **REQUIRED, max_tokens=len(WORDS) + 50)
    assert turn.text == SENTENCE
    assert turn.tool_calls == []
    assert [(call.name, call.why) for call in turn.invalid_calls] == [("forecast", "cut")]


def test_results_are_sent_back(model: Model) -> None:
    turn = model.stream_text_and_classify(PROMPT, **REQUIRED)
    history = [user(PROMPT), turn, tool_results(*(result(call, "Rain.") for call in turn.tool_calls))]
    assert model.stream_text_and_classify(history, tools=[TOOL]).text == SENTENCE


def test_streams_do_not_mix(model: Model) -> None:
    async def run() -> list[Turn]:
        asked = [model.astream_text_and_classify(PROMPT, **(REQUIRED if number % 2 else {})) for number in range(8)]
        return await asyncio.gather(*asked)

    turns = asyncio.run(run())
    assert [turn.text for turn in turns] == [SENTENCE] * 8
    assert [len(turn.tool_calls) for turn in turns] == [0, 1] * 4


def test_a_bad_request_has_the_message_of_the_server(model: Model, read: Read) -> None:
    with pytest.raises(BadRequestError, match=r"'temperature'.*must be number") as caught:
        read(model, extra={"temperature": "warm"})
    assert caught.value.status == 400


def test_a_prompt_that_is_too_long_is_a_context_length_error(model: Model) -> None:
    with pytest.raises(ContextLengthError, match="exceeds the available context size"):
        model.stream_text_and_classify("a" * CONTEXT)


def test_structured_output_follows_its_grammar(address: str) -> None:
    """The other endpoints of the server have no response formats."""
    with on("Chat Completions", address).stream(PROMPT, output=Forecast) as stream:
        pieces = [chunk for chunk in stream if isinstance(chunk, OutputDelta)]
    assert isinstance(stream.output, Forecast)
    assert "".join(piece.piece for piece in pieces if piece.path == ("city",)) == stream.output.city
    assert stream.partial == msgspec.to_builtins(stream.output)


def test_structured_output_by_the_final_tool(address: str) -> None:
    """A call that is required follows the grammar of its tool."""
    agent = Agent(on("Messages", address), output=Forecast)
    assert isinstance(agent.run(PROMPT).output, Forecast)


HARD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "mail": {"type": "string", "pattern": r"^(?!\.)[a-z.]+@[a-z.]+$"},
        "name": {"type": "string", "pattern": "[a-z]"},
        "body": {"type": "object", "properties": {"text": {"type": "string", "minLength": 3000}}},
    },
    "required": ["body"],
}
"""A schema that has no grammar: some versions of the server refuse the patterns, all refuse so many repetitions."""


def test_a_tool_whose_schema_has_no_grammar_does_not_make_the_request_fail(address: str) -> None:
    model = on("Chat Completions", address)
    raw = {"type": "function", "function": {"name": "send", "parameters": HARD}}
    with pytest.raises(BadRequestError, match="failed to parse grammar"):
        model.complete(PROMPT, extra={"tools": [raw], "tool_choice": "required"})
    alternatives = {**HARD, "anyOf": [{"required": ["mail"]}, {"required": ["name"]}]}
    turn = model.complete(PROMPT, tools=[{"name": "send", "parameters": alternatives}], tool_choice="required")
    assert [call.name for call in turn.tool_calls] == ["send"]


def test_structured_output_whose_schema_has_no_grammar_is_asked_for(address: str) -> None:
    turn = on("Chat Completions", address).complete(PROMPT, output=HARD)
    assert turn.text.startswith('{"body"')


def test_completions_are_passed_on_and_a_client_of_ollama_finds_the_model(address: str) -> None:
    async def main() -> None:
        async with serving(app(f"llamacpp={address}/v1")) as browser:
            body = {"model": "tiny", "prompt": "a", "max_tokens": 3}
            whole = await browser.post("/v1/completions", body)
            assert (whole.json["object"], whole.json["usage"]["completion_tokens"]) == ("text_completion", 3)
            stream = await browser.post("/v1/completions", {**body, "stream": True})
            assert stream.body.endswith(b"data: [DONE]\n\n")
            assert len(events(stream.body)) >= 3
            refused = await browser.post("/v1/embeddings", {"model": "tiny", "input": "a"})
            assert refused.status == 501
            assert "--embeddings" in refused.json["error"]["message"], "the words of the server"
            [listed] = (await browser.get("/api/tags")).json["models"]
            page = (await browser.post("/api/show", {"model": listed["model"]})).json
            architecture = page["model_info"]["general.architecture"]
            assert page["model_info"][f"{architecture}.context_length"] == CONTEXT
            prompt = {"model": "tiny", "prompt": "a", "stream": False, "options": {"num_predict": 3}}
            generated = (await browser.post("/api/generate", prompt)).json
            assert (bool(generated["response"]), generated["eval_count"]) == (True, 3)

    asyncio.run(main())


def test_a_gateway_counts_the_tokens_that_the_server_reads(address: str) -> None:
    tools = [{"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]}]
    asked = {"model": "tiny", "messages": [{"role": "user", "content": PROMPT}], "tools": tools, "system": "Be brief."}

    async def main() -> tuple[Any, Any]:
        async with serving(app(f"llamacpp={address}/v1")) as browser:
            counted = await browser.post("/v1/messages/count_tokens", asked)
            answered = await browser.post("/v1/messages", {**asked, "max_tokens": 8})
            return counted, answered

    counted, answered = asyncio.run(main())
    assert "x-penstock-estimated" not in counted.headers
    usage = answered.json["usage"]
    assert counted.json["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"]
