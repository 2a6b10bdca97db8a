"""Loops of Python clients with one tool: each asks, runs the calls of the answer, and asks again, to the end.

`python -m tests.clients.loops URL MODEL ...` prints, as JSON, the last text or the error of each, by model and client.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

PROMPT = "Say what echo prints."
KEY = "dummy"
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}

Loop = Callable[[str, str], str]
"""From the address of a server and the name of a model to the last text."""


def look(command: str) -> str:
    """Run a command and look at what it prints."""
    return command.removeprefix("echo ")


def openai_chat(url: str, model: str) -> str:
    from openai import OpenAI

    function = {"name": "look", "description": look.__doc__, "parameters": PARAMETERS}
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    tools: list[Any] = [{"type": "function", "function": function}]
    with OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        while True:
            with client.chat.completions.stream(model=model, messages=messages, tools=tools) as stream:
                message = stream.get_final_completion().choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages.append(message.model_dump(exclude_none=True, exclude={"parsed": True}))
            for call in message.tool_calls:
                result = look(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def openai_responses(url: str, model: str) -> str:
    from openai import OpenAI

    tools: list[Any] = [{"type": "function", "name": "look", "description": look.__doc__, "parameters": PARAMETERS}]
    items: list[Any] = [{"role": "user", "content": PROMPT}]
    with OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        while True:
            with client.responses.stream(model=model, input=items, tools=tools, store=False) as stream:
                response = stream.get_final_response()
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return response.output_text
            items += [item.model_dump(exclude_none=True) for item in response.output]
            for call in calls:
                result = look(**json.loads(call.arguments))
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


def anthropic_messages(url: str, model: str) -> str:
    from anthropic import Anthropic

    tools: list[Any] = [{"name": "look", "description": look.__doc__, "input_schema": PARAMETERS}]
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    with Anthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        while True:
            options: Any = {"model": model, "max_tokens": 4000, "messages": messages, "tools": tools}
            with client.messages.stream(**options) as stream:
                message = stream.get_final_message()
            calls = [block for block in message.content if block.type == "tool_use"]
            if message.stop_reason != "tool_use" or not calls:
                return "".join(block.text for block in message.content if block.type == "text")
            messages.append({"role": "assistant", "content": [block.model_dump() for block in message.content]})
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": look(**call.input)} for call in calls]
            messages.append({"role": "user", "content": results})


def _pydantic_ai(model: Any) -> str:
    import asyncio

    from pydantic_ai import Agent

    async def ask() -> str:
        agent = Agent(model, tools=[look])
        async with agent.run_stream_events(PROMPT) as events:
            async for event in events:
                if event.event_kind == "agent_run_result":
                    return str(event.result.output)
        return ""

    return asyncio.run(ask())


def pydantic_ai_chat(url: str, model: str) -> str:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return _pydantic_ai(OpenAIChatModel(model, provider=OpenAIProvider(base_url=f"{url}/v1", api_key=KEY)))


def pydantic_ai_responses(url: str, model: str) -> str:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return _pydantic_ai(OpenAIResponsesModel(model, provider=OpenAIProvider(base_url=f"{url}/v1", api_key=KEY)))


def pydantic_ai_anthropic(url: str, model: str) -> str:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    return _pydantic_ai(AnthropicModel(model, provider=AnthropicProvider(base_url=url, api_key=KEY)))


def _langchain(model: Any) -> str:
    from langchain.agents import create_agent
    from langchain_core.tools import tool

    agent: Any = create_agent(model, tools=[tool(look)])
    last: Any = None
    for state in agent.stream({"messages": [("user", PROMPT)]}, stream_mode="values"):
        last = state["messages"][-1]
    return str(last.text)


def langchain_chat(url: str, model: str) -> str:
    from langchain_openai import ChatOpenAI

    options: Any = {"model": model, "base_url": f"{url}/v1", "api_key": KEY, "max_retries": 0, "streaming": True}
    return _langchain(ChatOpenAI(**options))


def langchain_anthropic(url: str, model: str) -> str:
    from langchain_anthropic import ChatAnthropic

    options: Any = {"model_name": model, "base_url": url, "api_key": KEY, "max_retries": 0, "streaming": True}
    return _langchain(ChatAnthropic(**options))


LOOPS: dict[str, Loop] = {
    "openai, Chat Completions": openai_chat,
    "openai, Responses": openai_responses,
    "anthropic": anthropic_messages,
    "pydantic-ai, Chat Completions": pydantic_ai_chat,
    "pydantic-ai, Responses": pydantic_ai_responses,
    "pydantic-ai, Anthropic": pydantic_ai_anthropic,
    "langchain, Chat Completions": langchain_chat,
    "langchain, Anthropic": langchain_anthropic,
}


def main(url: str, models: Sequence[str]) -> None:
    """Run every loop with every model."""
    results = {model: {name: _text(loop, url, model) for name, loop in LOOPS.items()} for model in models}
    sys.stdout.write(json.dumps(results) + "\n")


def _text(loop: Loop, url: str, model: str) -> str:
    try:
        return loop(url, model)
    except Exception as error:  # noqa: BLE001 - whatever a client raises is its result
        return repr(error)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
