"""The clients of the peers: each streams as its documentation says, and collects the text and the calls.

A client gets the stream that it will read, does what a program does once, and returns a function that reads one
response. It runs in the environment of its peer, and imports the peer itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.streams import TOOL, TOOL_PARAMETERS, Stream

URL = "http://localhost/v1"
ANSWER_URL = f"{URL}/answer"
MODEL = "gpt-4o"
MESSAGES: Any = [{"role": "user", "content": "Go on."}]
FUNCTION = {"name": TOOL, "description": "Edit a file.", "parameters": TOOL_PARAMETERS}
OPENAI_TOOLS: Any = [{"type": "function", "function": FUNCTION}]
ANTHROPIC_TOOLS: Any = [{"name": TOOL, "description": "Edit a file.", "input_schema": TOOL_PARAMETERS}]

Answer = tuple[str, list[Any]]
"""The text, and the arguments of each call, parsed or not."""
Read = Callable[[], Answer | None]


def httpx2_alone(stream: Stream) -> Read:
    """Only the transport that most peers use: the bytes are discarded."""
    import httpx2

    client = httpx2.Client()

    def read() -> None:
        with client.stream("POST", ANSWER_URL, json={}) as response:
            for _ in response.iter_bytes():
                pass

    return read


def penstock_on_httpx2(stream: Stream) -> Read:
    import httpx2

    import penstock
    from penstock.events import Text, ToolCall

    client = httpx2.Client()

    def read() -> Answer:
        texts: list[str] = []
        calls: list[Any] = []
        decoder = penstock.Decoder(stream.wire)
        with client.stream("POST", ANSWER_URL, json={}) as response:
            for data in response.iter_bytes():
                for event in decoder.feed(data):
                    if type(event) is Text:
                        texts.append(event.text)
                    elif type(event) is ToolCall:
                        calls.append(event.arguments)
        calls += (event.arguments for event in decoder.close() if isinstance(event, ToolCall))
        return "".join(texts), calls

    return read


def openai_create(stream: Stream) -> Read:
    import openai

    client = openai.OpenAI(base_url=URL, api_key="none")
    options: Any = {"tools": OPENAI_TOOLS} if stream.calls else {}
    return lambda: _read_chunks(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, **options))


def openai_stream(stream: Stream) -> Read:
    import openai

    client = openai.OpenAI(base_url=URL, api_key="none")
    options: Any = {"tools": OPENAI_TOOLS} if stream.calls else {}

    def read() -> Answer:
        with client.chat.completions.stream(model=MODEL, messages=MESSAGES, **options) as events:
            for _ in events:
                pass
            message = events.get_final_completion().choices[0].message
        return message.content or "", [call.function.arguments for call in message.tool_calls or ()]

    return read


def litellm_completion(stream: Stream) -> Read:
    import litellm

    options: Any = {"tools": OPENAI_TOOLS} if stream.calls else {}
    return lambda: _read_chunks(
        litellm.completion(
            model=f"openai/{MODEL}", messages=MESSAGES, stream=True, api_base=URL, api_key="none", **options
        )
    )


def langchain_stream(stream: Stream) -> Read:
    from langchain_openai import ChatOpenAI

    model: Any = ChatOpenAI(model=MODEL, base_url=URL, api_key="none", use_responses_api=False)
    model = model.bind_tools(OPENAI_TOOLS) if stream.calls else model

    def read() -> Answer:
        texts: list[str] = []
        calls: dict[int, list[str]] = {}
        for chunk in model.stream("Go on."):
            texts.append(chunk.content)
            for call in chunk.tool_call_chunks:
                calls.setdefault(call["index"], []).append(call["args"] or "")
        return "".join(texts), ["".join(pieces) for pieces in calls.values()]

    return read


def langchain_sum(stream: Stream) -> Read:
    from langchain_openai import ChatOpenAI

    model: Any = ChatOpenAI(model=MODEL, base_url=URL, api_key="none", use_responses_api=False)
    model = model.bind_tools(OPENAI_TOOLS) if stream.calls else model

    def read() -> Answer:
        chunks = model.stream("Go on.")
        whole = next(chunks)
        for chunk in chunks:
            whole += chunk
        return whole.content, [call["args"] for call in whole.tool_calls]

    return read


def pydantic_ai_direct(stream: Stream) -> Read:
    from pydantic_ai import ModelRequest
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.tools import ToolDefinition

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=URL, api_key="none"))
    tool = ToolDefinition(name=TOOL, description="Edit a file.", parameters_json_schema=TOOL_PARAMETERS)
    parameters = ModelRequestParameters(function_tools=[tool] if stream.calls else [])
    runner = asyncio.Runner()

    async def answer() -> Answer:
        request = [ModelRequest.user_text_prompt("Go on.")]
        async with model_request_stream(model, request, model_request_parameters=parameters) as events:
            async for _ in events:
                pass
            parts: Any = events.get().parts
        texts = [part.content for part in parts if part.part_kind == "text"]
        return "".join(texts), [part.args for part in parts if part.part_kind == "tool-call"]

    return lambda: runner.run(answer())


def anthropic_create(stream: Stream) -> Read:
    import anthropic

    client = anthropic.Anthropic(base_url=URL, api_key="none")
    options: Any = {"tools": ANTHROPIC_TOOLS} if stream.calls else {}

    def read() -> Answer:
        texts: list[str] = []
        calls: dict[int, list[str]] = {}
        for event in client.messages.create(
            model="claude-sonnet-4-20250514", max_tokens=4096, messages=MESSAGES, stream=True, **options
        ):
            if event.type == "content_block_delta":
                if event.delta.type == "text_delta":
                    texts.append(event.delta.text)
                elif event.delta.type == "input_json_delta":
                    calls.setdefault(event.index, []).append(event.delta.partial_json)
        return "".join(texts), ["".join(pieces) for pieces in calls.values()]

    return read


def anthropic_stream(stream: Stream) -> Read:
    import anthropic

    client = anthropic.Anthropic(base_url=URL, api_key="none")
    options: Any = {"tools": ANTHROPIC_TOOLS} if stream.calls else {}

    def read() -> Answer:
        with client.messages.stream(
            model="claude-sonnet-4-20250514", max_tokens=4096, messages=MESSAGES, **options
        ) as events:
            for _ in events:
                pass
            content = events.get_final_message().content
        texts = [block.text for block in content if block.type == "text"]
        return "".join(texts), [block.input for block in content if block.type == "tool_use"]

    return read


def _read_chunks(chunks: Iterable[Any]) -> Answer:
    """A typical loop over raw chunks: joins the pieces of each call by index."""
    texts: list[str] = []
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        if delta.content:
            texts.append(delta.content)
        for call in delta.tool_calls or ():
            calls.setdefault(call.index, []).append(call.function.arguments or "")
    return "".join(texts), ["".join(pieces) for pieces in calls.values()]
