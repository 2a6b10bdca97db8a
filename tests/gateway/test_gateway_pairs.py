"""Every pair of protocols: the clients of five vendors in front, strict servers of every protocol behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import ollama
import pytest
from google.genai import types

from penstock.testing import ReceivedRequest, Reply, Scripted, call, think
from tests.asgi_client import Browser, serving
from tests.gateways import SHELL, TOOLS, anthropic_client, gateway, gemini_client, openai_client, upstream

COMMANDS = ("echo 4", "echo 2")
FINAL = "It printed 4 and 2."
QUESTION: Any = {"role": "user", "content": "Say what they print."}


def answer(request: ReceivedRequest) -> Any:
    if request.results:
        return f"It printed {' and '.join(result.text for result in request.results)}."
    return Reply(think("Two commands."), "I look. ", *(call("shell", {"command": command}) for command in COMMANDS))


def run_command(arguments: Any) -> str:
    assert arguments["command"] in COMMANDS
    return str(arguments["command"].removeprefix("echo "))


async def chat(browser: Browser, model: str, stream: bool) -> str:
    client = openai_client(browser)
    messages: list[Any] = [QUESTION]
    while True:
        options: Any = {"model": model, "messages": messages, "tools": TOOLS, "max_tokens": 4000}
        if stream:
            async with client.chat.completions.stream(**options) as chunks:
                reply: Any = (await chunks.get_final_completion()).choices[0].message
        else:
            reply = (await client.chat.completions.create(**options)).choices[0].message
        messages.append(reply.model_dump(exclude_none=True, exclude={"parsed"}))
        for one in reply.tool_calls or ():
            result = run_command(json.loads(one.function.arguments))
            messages.append({"role": "tool", "tool_call_id": one.id, "content": result})
        if not reply.tool_calls:
            return str(reply.content)


async def responses(browser: Browser, model: str, stream: bool) -> str:
    client = openai_client(browser)
    history: list[Any] = [QUESTION]
    while True:
        options: Any = {"model": model, "input": history, "tools": [{"type": "function", **SHELL}], "store": False}
        if stream:
            async with client.responses.stream(**options) as chunks:
                reply: Any = await chunks.get_final_response()
        else:
            reply = await client.responses.create(**options)
        history += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in reply.output]
        calls = [item for item in reply.output if item.type == "function_call"]
        for one in calls:
            result = run_command(json.loads(one.arguments))
            history.append({"type": "function_call_output", "call_id": one.call_id, "output": result})
        if not calls:
            return str(reply.output_text)


async def messages(browser: Browser, model: str, stream: bool) -> str:
    client = anthropic_client(browser)
    history: list[Any] = [QUESTION]
    while True:
        tools = [{"name": "shell", "input_schema": SHELL["parameters"]}]
        options: Any = {"model": model, "messages": history, "tools": tools, "max_tokens": 4000}
        if stream:
            async with client.messages.stream(**options) as chunks:
                reply: Any = await chunks.get_final_message()
        else:
            reply = await client.messages.create(**options)
        history.append(
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in reply.content]}
        )
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": run_command(block.input)}
            for block in reply.content
            if block.type == "tool_use"
        ]
        if not results:
            return "".join(block.text for block in reply.content if block.type == "text")
        history.append({"role": "user", "content": results})


async def gemini(browser: Browser, model: str, stream: bool) -> str:
    models = gemini_client(browser).aio.models
    history: list[Any] = [types.Content(role="user", parts=[types.Part(text="Say what they print.")])]
    declaration = types.FunctionDeclaration(
        name="shell",
        parameters=types.Schema(
            type=types.Type.OBJECT, properties={"command": types.Schema(type=types.Type.STRING)}, required=["command"]
        ),
    )
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[declaration])],
        top_k=40,
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    while True:
        options: Any = {"model": model, "contents": history, "config": config}
        parts: list[Any] = []
        if stream:
            async for chunk in await models.generate_content_stream(**options):
                parts += chunk.candidates[0].content.parts or []
        else:
            parts = (await models.generate_content(**options)).candidates[0].content.parts
        history.append(types.Content(role="model", parts=parts))
        results = [
            types.Part(function_response=types.FunctionResponse(
                id=part.function_call.id, name="shell", response={"result": run_command(part.function_call.args)}
            ))
            for part in parts
            if part.function_call
        ]  # fmt: skip
        if not results:
            return "".join(part.text or "" for part in parts if not part.thought)
        history.append(types.Content(role="user", parts=results))


async def ollama_chat(browser: Browser, model: str, stream: bool) -> str:
    client = ollama.AsyncClient("http://localhost", transport=httpx.ASGITransport(app=browser.app))
    history: list[Any] = [QUESTION]
    while True:
        text, calls = "", list[Any]()
        reply: Any = await client.chat(model=model, messages=history, tools=TOOLS, stream=stream)
        for message in [part.message async for part in reply] if stream else [reply.message]:
            text += message.content or ""
            calls += message.tool_calls or ()
        history.append({"role": "assistant", "content": text, "tool_calls": [one.model_dump() for one in calls]})
        history += [
            {"role": "tool", "tool_name": "shell", "content": run_command(one.function.arguments)} for one in calls
        ]
        if not calls:
            return text


CLIENTS = (chat, responses, messages, gemini, ollama_chat)
MODELS = {
    "llamacpp": "qwen3", "openai": "gpt-5", "anthropic": "claude-sonnet-5", "google": "gemini-3-pro", "ollama": "qwen3",
    "cohere": "command-a-reasoning", "mistral": "magistral-medium", "bedrock": "anthropic.claude-sonnet-5",
}  # fmt: skip


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_a_loop_with_two_calls_comes_to_its_end(
    client: Callable[[Browser, str, bool], Coroutine[Any, Any, str]], provider: str, stream: bool
) -> None:
    server = Scripted(answer, strict=True)

    async def converse() -> str:
        async with serving(gateway(upstream("", provider=provider, via=server, key=""))) as browser:
            return await client(browser, MODELS[provider], stream)

    assert asyncio.run(converse()) == FINAL
    assert len(server.requests) == 2
    assert [result.name for result in server.requests[1].results] in (["shell", "shell"], ["", ""])
