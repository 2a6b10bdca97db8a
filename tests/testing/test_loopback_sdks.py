"""The vendors' SDKs read the scripted text and calls from the loopback server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.testing import Loopback, ReceivedRequest, Reply, Status, call, say, think

PROMPT = [{"role": "user", "content": "How do I get to Rome, and do I need an umbrella?"}]
TEXT = "Let me look: “Rome”, in a moment…"
THOUGHT = "They ask about Rome."
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("weather", {"city": "Rome", "days": 3}),
    ("trains", {"to": "Rome", "via": ["Pisa", "Orte 🚄"]}),
]
REPLY = Reply(think(THOUGHT), say(TEXT), *(call(name, arguments) for name, arguments in CALLS))
TOOL: dict[str, Any] = {
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def answer(request: ReceivedRequest) -> Reply | Status:
    """The reply, or an error for an unknown model."""
    return Status(404) if request.model == "nowhere" else REPLY


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback(answer) as listening:
        yield listening


def assert_calls(calls: Any) -> None:
    """Names and arguments, the latter as an object or as text."""
    assert [(name, json.loads(args) if isinstance(args, str) else args) for name, args in calls] == CALLS


@pytest.fixture
def openai(server: Loopback) -> Iterator[Any]:
    from openai import OpenAI

    with OpenAI(base_url=server.base_url("openai-chat"), api_key="-", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic(server: Loopback) -> Iterator[Any]:
    from anthropic import Anthropic

    with Anthropic(base_url=server.base_url("anthropic"), api_key="-", max_retries=0) as client:
        yield client


@pytest.fixture
def genai(server: Loopback) -> Iterator[Any]:
    from google import genai

    options = genai.types.HttpOptions(base_url=server.base_url("gemini"))
    client = genai.Client(api_key="-", http_options=options)
    yield client
    client.close()


@pytest.fixture
def ollama(server: Loopback) -> Iterator[Any]:
    from ollama import Client

    with Client(host=server.base_url("ollama")) as client:
        yield client


@pytest.fixture
def cohere(server: Loopback) -> Iterator[Any]:
    from cohere import ClientV2

    with ClientV2(api_key="-", base_url=server.base_url("cohere")) as client:
        yield client


@pytest.fixture
def mistral(server: Loopback) -> Iterator[Any]:
    from mistralai.client import Mistral

    with Mistral(api_key="-", server_url=server.base_url("mistral")) as client:
        yield client


@pytest.fixture
def boto3(server: Loopback) -> Iterator[Any]:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "bedrock-runtime", region_name="eu-west-1", endpoint_url=server.base_url("bedrock"),
        aws_access_key_id="-", aws_secret_access_key="-", config=Config(retries={"max_attempts": 1}),
    )  # fmt: skip
    yield client
    client.close()


# OpenAI


def test_the_openai_sdk_reads_a_chat_stream(openai: Any) -> None:
    options = {"include_usage": True}
    with openai.chat.completions.stream(model="m", messages=PROMPT, stream_options=options) as stream:
        completion = stream.get_final_completion()
    message = completion.choices[0].message
    assert message.content == TEXT
    assert_calls((made.function.name, made.function.arguments) for made in message.tool_calls)
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.usage.completion_tokens > 0


def test_openai_chat_sends_usage_only_on_request(openai: Any) -> None:
    chunks = list(openai.chat.completions.create(model="m", messages=PROMPT, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    thoughts = (getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks)
    assert "".join(thoughts) == THOUGHT


def test_the_openai_sdk_reads_a_whole_chat_completion(openai: Any) -> None:
    completion = openai.chat.completions.create(model="m", messages=PROMPT)
    message = completion.choices[0].message
    assert message.content == TEXT
    assert_calls((made.function.name, made.function.arguments) for made in message.tool_calls)
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens


def test_the_async_openai_sdk_reads_a_chat_stream(server: Loopback) -> None:
    from openai import AsyncOpenAI

    async def run() -> str:
        async with AsyncOpenAI(base_url=server.base_url("openai-chat"), api_key="-") as client:
            stream = await client.chat.completions.create(model="m", messages=PROMPT, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(run()) == TEXT


def assert_response(response: Any) -> None:
    assert response.output_text == TEXT
    assert_calls((item.name, item.arguments) for item in response.output if item.type == "function_call")
    assert response.output[0].summary[0].text == THOUGHT
    assert response.output[0].encrypted_content
    assert response.status == "completed"
    assert response.usage.output_tokens > 0


def test_the_openai_sdk_reads_a_responses_stream(openai: Any) -> None:
    tools = [{"type": "function", **TOOL}]
    with openai.responses.stream(model="m", input="?", tools=tools) as stream:
        kinds = [event.type for event in stream]
        assert_response(stream.get_final_response())
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"


def test_openai_responses_events_are_numbered(openai: Any) -> None:
    events = list(openai.responses.create(model="m", input="?", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_the_openai_sdk_reads_a_whole_response(openai: Any) -> None:
    assert_response(openai.responses.create(model="m", input="?"))


def test_the_openai_sdk_raises_its_error(openai: Any) -> None:
    from openai import NotFoundError

    with pytest.raises(NotFoundError) as caught:
        openai.chat.completions.create(model="nowhere", messages=PROMPT, stream=True)
    assert caught.value.code == "model_not_found"


def test_the_openai_sdk_lists_the_models(openai: Any) -> None:
    assert [model.id for model in openai.models.list()] == ["sim"]


# Anthropic


def assert_message(message: Any) -> None:
    thought, text, *tools = message.content
    assert (thought.type, thought.thinking) == ("thinking", THOUGHT)
    assert thought.signature
    assert text.text == TEXT
    assert_calls((block.name, block.input) for block in tools)
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens > 1


def test_the_anthropic_sdk_reads_a_stream(anthropic: Any) -> None:
    with anthropic.messages.stream(model="m", max_tokens=9, messages=PROMPT) as stream:
        assert "".join(stream.text_stream) == TEXT
        assert_message(stream.get_final_message())


def test_the_anthropic_sdk_reads_a_whole_message(anthropic: Any) -> None:
    assert_message(anthropic.messages.create(model="m", max_tokens=9, messages=PROMPT))


def test_the_anthropic_sdk_raises_its_error(anthropic: Any) -> None:
    from anthropic import NotFoundError

    with pytest.raises(NotFoundError, match="not_found_error"):
        anthropic.messages.create(model="nowhere", max_tokens=9, messages=PROMPT)


# Google


def assert_candidates(responses: list[Any]) -> None:
    parts = [part for response in responses for part in response.candidates[0].content.parts or ()]
    assert "".join(part.text for part in parts if part.text and not part.thought) == TEXT
    assert "".join(part.text for part in parts if part.text and part.thought) == THOUGHT
    made = [part for part in parts if part.function_call]
    assert_calls((part.function_call.name, part.function_call.args) for part in made)
    assert [bool(part.thought_signature) for part in made] == [True, False]
    assert responses[-1].candidates[0].finish_reason == "STOP"
    assert responses[-1].usage_metadata.candidates_token_count > 0


def test_the_google_sdk_reads_a_stream(genai: Any) -> None:
    assert_candidates(list(genai.models.generate_content_stream(model="m", contents="?")))


def test_the_google_sdk_reads_a_whole_response(genai: Any) -> None:
    assert_candidates([genai.models.generate_content(model="m", contents="?")])


def test_the_google_sdk_raises_its_error(genai: Any) -> None:
    from google.genai.errors import ClientError

    with pytest.raises(ClientError) as caught:
        genai.models.generate_content(model="nowhere", contents="?")
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")


def assert_steps(steps: list[Any], usage: Any) -> None:
    texts = [part.text for step in steps if step.type == "model_output" for part in step.content]
    thoughts = [step for step in steps if step.type == "thought"]
    assert "".join(texts) == TEXT
    assert "".join(part.text for step in thoughts for part in step.summary or ()) == THOUGHT
    assert_calls((step.name, step.arguments) for step in steps if step.type == "function_call")
    assert usage.total_output_tokens > 0


def test_the_google_sdk_reads_an_interaction(genai: Any) -> None:
    kinds: dict[int, str] = {}
    pieces: dict[str, str] = {"text": "", "thought_summary": ""}
    calls: dict[int, tuple[str, str]] = {}
    for event in genai.interactions.create(model="m", input="?", stream=True):
        match event.event_type:
            case "step.start":
                kinds[event.index] = event.step.type
                if event.step.type == "function_call":
                    calls[event.index] = event.step.name, ""
            case "step.delta" if event.delta.type == "arguments_delta":
                name, before = calls[event.index]
                calls[event.index] = name, before + event.delta.arguments
            case "step.delta" if event.delta.type in pieces:
                content = event.delta if event.delta.type == "text" else event.delta.content
                pieces[event.delta.type] += content.text
    assert pieces == {"text": TEXT, "thought_summary": THOUGHT}
    assert_calls(calls.values())
    assert list(kinds.values()) == ["thought", "model_output", "function_call", "function_call"]
    assert event.interaction.status == "requires_action"
    assert event.interaction.usage.total_output_tokens > 0


def test_the_google_sdk_reads_a_whole_interaction(genai: Any) -> None:
    interaction = genai.interactions.create(model="m", input="?")
    assert interaction.status == "requires_action"
    assert_steps(interaction.steps, interaction.usage)


def test_the_google_sdk_raises_the_error_of_an_interaction(genai: Any) -> None:
    with pytest.raises(Exception, match="404") as caught:
        genai.interactions.create(model="nowhere", input="?")
    assert getattr(caught.value, "status_code", None) == 404


# Ollama


def test_the_ollama_sdk_reads_a_stream(ollama: Any) -> None:
    lines = list(ollama.chat(model="m", messages=PROMPT, stream=True))
    assert "".join(line.message.content or "" for line in lines) == TEXT
    assert "".join(line.message.thinking or "" for line in lines) == THOUGHT
    made = [made for line in lines for made in line.message.tool_calls or ()]
    assert_calls((one.function.name, dict(one.function.arguments)) for one in made)
    assert lines[-1].done_reason == "stop"
    assert (lines[-1].eval_count or 0) > 0


def test_the_ollama_sdk_reads_a_whole_response(ollama: Any) -> None:
    message = ollama.chat(model="m", messages=PROMPT).message
    assert (message.content, message.thinking) == (TEXT, THOUGHT)
    assert_calls((made.function.name, dict(made.function.arguments)) for made in message.tool_calls or ())


def test_the_ollama_sdk_raises_its_error(ollama: Any) -> None:
    from ollama import ResponseError

    with pytest.raises(ResponseError) as caught:
        ollama.chat(model="nowhere", messages=PROMPT)
    assert caught.value.status_code == 404


# Cohere


def test_the_cohere_sdk_reads_a_stream(cohere: Any) -> None:
    events = list(cohere.chat_stream(model="m", messages=PROMPT))
    contents = [event.delta.message.content for event in events if event.type == "content-delta"]
    assert "".join(content.text or "" for content in contents) == TEXT
    assert "".join(content.thinking or "" for content in contents) == THOUGHT
    made: list[Any] = []
    for event in events:
        if event.type == "tool-call-start":
            made.append([event.delta.message.tool_calls.function.name, ""])
        elif event.type == "tool-call-delta":
            made[-1][1] += event.delta.message.tool_calls.function.arguments
    assert_calls(made)
    assert events[-1].delta.finish_reason == "TOOL_CALL"
    assert events[-1].delta.usage.tokens.output_tokens > 0


def test_the_cohere_sdk_reads_a_whole_response(cohere: Any) -> None:
    response = cohere.chat(model="m", messages=PROMPT)
    assert [getattr(part, part.type) for part in response.message.content] == [THOUGHT, TEXT]
    assert_calls((made.function.name, made.function.arguments) for made in response.message.tool_calls)


def test_the_cohere_sdk_raises_its_error(cohere: Any) -> None:
    from cohere.errors import NotFoundError

    with pytest.raises(NotFoundError):
        cohere.chat(model="nowhere", messages=PROMPT)


# Mistral


def test_the_mistral_sdk_reads_a_stream(mistral: Any) -> None:
    chunks = [event.data for event in mistral.chat.stream(model="m", messages=PROMPT)]
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(delta.content for delta in deltas if isinstance(delta.content, str)) == TEXT
    thoughts = [part for delta in deltas if isinstance(delta.content, list) for part in delta.content]
    assert "".join(part.thinking[0].text for part in thoughts) == THOUGHT
    made = [made for delta in deltas for made in delta.tool_calls or ()]
    assert_calls((one.function.name, one.function.arguments) for one in made)
    assert all(len(one.id) == 9 for one in made)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert chunks[-1].usage.completion_tokens > 0


def test_the_mistral_sdk_reads_a_whole_response(mistral: Any) -> None:
    response = mistral.chat.complete(model="m", messages=PROMPT)
    message = response.choices[0].message
    assert message.content[0].thinking[0].text == THOUGHT
    assert message.content[1].text == TEXT
    assert_calls((made.function.name, made.function.arguments) for made in message.tool_calls)


def test_the_mistral_sdk_raises_its_error(mistral: Any) -> None:
    from mistralai.client.errors import SDKError

    with pytest.raises(SDKError) as caught:
        mistral.chat.complete(model="nowhere", messages=PROMPT)
    assert caught.value.status_code == 404


# Bedrock

BEDROCK_PROMPT = [{"role": "user", "content": [{"text": "?"}]}]


def test_boto3_reads_a_stream(boto3: Any) -> None:
    events = list(boto3.converse_stream(modelId="anthropic.some:0", messages=BEDROCK_PROMPT)["stream"])
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    assert "".join(delta.get("text", "") for delta in deltas) == TEXT
    thoughts = [delta["reasoningContent"] for delta in deltas if "reasoningContent" in delta]
    assert "".join(thought.get("text", "") for thought in thoughts) == THOUGHT
    assert thoughts[-1]["signature"]
    made: list[Any] = []
    for event in events:
        match event:
            case {"contentBlockStart": {"start": {"toolUse": {"name": name}}}}:
                made.append([name, ""])
            case {"contentBlockDelta": {"delta": {"toolUse": {"input": piece}}}}:
                made[-1][1] += piece
    assert_calls(made)
    assert events[-2]["messageStop"]["stopReason"] == "tool_use"
    assert events[-1]["metadata"]["usage"]["outputTokens"] > 0


def test_boto3_reads_a_whole_response(boto3: Any) -> None:
    response = boto3.converse(modelId="m", messages=BEDROCK_PROMPT)
    thought, text, *tools = response["output"]["message"]["content"]
    assert thought["reasoningContent"]["reasoningText"]["text"] == THOUGHT
    assert text["text"] == TEXT
    assert_calls((block["toolUse"]["name"], block["toolUse"]["input"]) for block in tools)


def test_boto3_raises_its_error(boto3: Any) -> None:
    with pytest.raises(boto3.exceptions.ResourceNotFoundException):
        boto3.converse_stream(modelId="nowhere", messages=BEDROCK_PROMPT)
