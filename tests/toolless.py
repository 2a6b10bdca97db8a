"""Model servers without tool support, and clients of five protocols that use tools nevertheless, through a gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx
import ollama
import openai
from aiohttp import web
from google import genai
from google.genai import types

from penstock import ToolCall
from penstock.dialects.prompt import find_prompt
from tests.gateways import delta, sse

QUESTION = "What is the weather in Rome, and what is 2 + 3?"
ANSWER = "It is sunny, and the sum is 5."
TOOLS: dict[str, dict[str, Any]] = {
    "weather": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "add": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
CALLS = [("weather", {"city": "Rome"}), ("add", {"a": 2, "b": 3})]
RESULTS = {"weather": "sunny", "add": "5"}

Step = tuple[str, list[tuple[str, Any]]]
"""The text and the calls of a response, as a client gets them."""


def calls_in(dialect: str) -> list[tuple[str, Any]]:
    """The calls that a model writes in a dialect: some have one per message."""
    return CALLS[:1] if find_prompt(dialect).is_single else CALLS


def text_in(dialect: str) -> str:
    """The text of a model that makes its calls in a dialect."""
    calls = [ToolCall(f"call_{number}", name, arguments) for number, (name, arguments) in enumerate(calls_in(dialect))]
    written = find_prompt(dialect).calls(calls)
    return written if dialect in ("bare_json", "llama3_json") else f"I look it up.\n{written}"


def in_dialect(body: Any) -> str:
    """What a model writes whose name is its dialect: calls, and when it has their results the answer."""
    dialect = body["model"]
    has_results = len(body["messages"]) > 2 and all(
        RESULTS[name] in str(body["messages"]) for name, _ in calls_in(dialect)
    )
    return ANSWER if has_results else text_in(dialect)


class Toolless:
    """A server without tools: it refuses them in its own words, and answers other requests with a text.

    `write` returns the text for the body of a request.
    """

    def __init__(self, write: Callable[[Any], str], refusal: str = "model m does not support tools") -> None:
        self.bodies: list[Any] = []
        self.size = 3  # how many characters a frame has
        self._write = write
        self._refusal = refusal

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"data": []})
        body = await request.json()
        self.bodies.append(body)
        is_ollama = request.path == "/api/chat"
        if body.get("tools"):
            error: Any = self._refusal if is_ollama else {"message": self._refusal, "type": "api_error"}
            return web.json_response({"error": error}, status=400)
        text = self._write(body)
        pieces = [text[start : start + self.size] for start in range(0, len(text), self.size)]
        return self._lines(pieces) if is_ollama else self._frames(pieces)

    def _frames(self, pieces: list[str]) -> web.Response:
        data = sse(*(delta(content=piece) for piece in pieces), delta("stop"))
        return web.Response(body=data, content_type="text/event-stream")

    def _lines(self, pieces: list[str]) -> web.Response:
        lines: list[dict[str, Any]] = [{"message": {"role": "assistant", "content": piece}} for piece in pieces]
        lines.append({"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"})
        data = "".join(json.dumps({"model": "m", **line}) + "\n" for line in lines)
        return web.Response(text=data, content_type="application/x-ndjson")


def result_of(name: str) -> str:
    return RESULTS[name]


async def chat(client: Any, model: str, *, is_streaming: bool, **options: Any) -> list[Step]:
    """The steps of a session on Chat Completions, up to a response without calls."""
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": TOOLS[name]}} for name in TOOLS]
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    steps: list[Step] = []
    while True:
        fields: Any = {"model": model, "messages": messages, "tools": tools, **options}
        if is_streaming:
            async with client.chat.completions.stream(**fields) as stream:
                message: Any = (await stream.get_final_completion()).choices[0].message
        else:
            message = (await client.chat.completions.create(**fields)).choices[0].message
        calls = message.tool_calls or []
        steps.append(
            (message.content or "", [(one.function.name, json.loads(one.function.arguments)) for one in calls])
        )
        if not calls:
            return steps
        messages.append({
            "role": "assistant", "content": message.content,
            "tool_calls": [
                {"id": one.id, "type": "function",
                 "function": {"name": one.function.name, "arguments": one.function.arguments}}
                for one in calls
            ],
        })  # fmt: skip
        messages += [{"role": "tool", "tool_call_id": one.id, "content": result_of(one.function.name)} for one in calls]


async def responses(client: Any, model: str, *, is_streaming: bool, **options: Any) -> list[Step]:
    """The steps of a session on Responses."""
    tools: Any = [{"type": "function", "name": name, "parameters": TOOLS[name], "strict": False} for name in TOOLS]
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    steps: list[Step] = []
    while True:
        fields: Any = {"model": model, "input": items, "tools": tools, **options}
        if is_streaming:
            async with client.responses.stream(**fields) as stream:
                response: Any = await stream.get_final_response()
        else:
            response = await client.responses.create(**fields)
        calls = [item for item in response.output if item.type == "function_call"]
        steps.append((response.output_text, [(one.name, json.loads(one.arguments)) for one in calls]))
        if not calls:
            return steps
        items += [
            {"type": "message", "role": "assistant", "content": response.output_text}
            if item.type == "message"
            else {"type": item.type, "call_id": item.call_id, "name": item.name, "arguments": item.arguments}
            for item in response.output
        ]
        items += [
            {"type": "function_call_output", "call_id": one.call_id, "output": result_of(one.name)} for one in calls
        ]


async def messages(client: Any, model: str, *, is_streaming: bool, **options: Any) -> list[Step]:
    """The steps of a session on Messages."""
    tools: Any = [{"name": name, "input_schema": TOOLS[name]} for name in TOOLS]
    history: list[Any] = [{"role": "user", "content": QUESTION}]
    steps: list[Step] = []
    while True:
        fields: Any = {"model": model, "max_tokens": 999, "messages": history, "tools": tools, **options}
        if is_streaming:
            async with client.messages.stream(**fields) as stream:
                message: Any = await stream.get_final_message()
        else:
            message = await client.messages.create(**fields)
        calls = [block for block in message.content if block.type == "tool_use"]
        text = "".join(block.text for block in message.content if block.type == "text")
        steps.append((text, [(one.name, one.input) for one in calls]))
        if not calls:
            return steps
        history.append({"role": "assistant", "content": message.content})
        history.append({
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": one.id, "content": result_of(one.name)} for one in calls
            ],
        })  # fmt: skip


async def gemini(client: Any, model: str, *, is_streaming: bool, **options: Any) -> list[Step]:
    """The steps of a session on Gemini."""
    declared = [types.FunctionDeclaration(name=name, parameters_json_schema=TOOLS[name]) for name in TOOLS]
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=declared)], **options)
    contents: list[Any] = [types.Content(role="user", parts=[types.Part(text=QUESTION)])]
    steps: list[Step] = []
    while True:
        fields: Any = {"model": model, "contents": contents, "config": config}
        if is_streaming:
            chunks = [chunk async for chunk in await client.aio.models.generate_content_stream(**fields)]
        else:
            chunks = [await client.aio.models.generate_content(**fields)]
        contents_of = [chunk.candidates[0].content for chunk in chunks if chunk.candidates]
        parts: list[Any] = [part for content in contents_of if content for part in content.parts or []]
        calls = [part.function_call for part in parts if part.function_call]
        steps.append(("".join(part.text or "" for part in parts), [(one.name, dict(one.args or {})) for one in calls]))
        if not calls:
            return steps
        contents.append(types.Content(role="model", parts=parts))
        contents.append(
            types.Content(
                role="user",
                parts=[
                    types.Part.from_function_response(name=one.name, response={"result": result_of(one.name)})
                    for one in calls
                ],
            )
        )


async def ollama_chat(client: Any, model: str, *, is_streaming: bool, **options: Any) -> list[Step]:
    """The steps of a session on Ollama's own API."""
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": TOOLS[name]}} for name in TOOLS]
    history: list[Any] = [{"role": "user", "content": QUESTION}]
    steps: list[Step] = []
    while True:
        fields: Any = {"model": model, "messages": history, "tools": tools, **options}
        if is_streaming:
            replies: list[Any] = [reply async for reply in await client.chat(**fields, stream=True)]
        else:
            replies = [await client.chat(**fields)]
        text = "".join(reply.message.content or "" for reply in replies)
        calls = [one for reply in replies for one in reply.message.tool_calls or []]
        steps.append((text, [(one.function.name, dict(one.function.arguments)) for one in calls]))
        if not calls:
            return steps
        history.append({"role": "assistant", "content": text, "tool_calls": [one.model_dump() for one in calls]})
        history += [
            {"role": "tool", "tool_name": one.function.name, "content": result_of(one.function.name)} for one in calls
        ]


Session = Callable[..., Awaitable[list[Step]]]
SESSIONS: Mapping[str, Session] = {
    "chat": chat, "responses": responses, "messages": messages, "gemini": gemini, "ollama": ollama_chat,
}  # fmt: skip
"""A session of each protocol, with the SDK of its vendor."""


@asynccontextmanager
async def clients(address: str) -> AsyncGenerator[dict[str, Any]]:
    """The SDKs of the vendors for a gateway, by protocol."""
    async with (
        openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as of_openai,
        anthropic.AsyncAnthropic(base_url=address, api_key="none", max_retries=0) as of_anthropic,
        httpx.AsyncClient() as plain,
        ollama.AsyncClient(address) as of_ollama,
    ):
        options = types.HttpOptions(base_url=address, httpx_async_client=plain)
        yield {
            "chat": of_openai,
            "responses": of_openai,
            "messages": of_anthropic,
            "gemini": genai.Client(api_key="-", http_options=options),
            "ollama": of_ollama,
        }
