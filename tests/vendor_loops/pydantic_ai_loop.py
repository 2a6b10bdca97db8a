"""An agent of pydantic-ai, whole and streamed, on each of its wires.

    python -m tests.vendor_loops.pydantic_ai_loop WIRE BASE_URL [WIRE BASE_URL …]

A process of its own, because pydantic-ai leaves connections open.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

PROMPT = "What is the weather?"


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def model(wire: str, base_url: str) -> Any:
    options: Any = {"base_url": base_url, "api_key": "-"}
    match wire:
        case "anthropic":
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            return AnthropicModel("claude-sonnet-5", provider=AnthropicProvider(**options))
        case "gemini":
            from pydantic_ai.models.google import GoogleModel
            from pydantic_ai.providers.google import GoogleProvider

            return GoogleModel("gemini-3-pro", provider=GoogleProvider(**options))
        case _:
            from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
            from pydantic_ai.providers.openai import OpenAIProvider

            kind = OpenAIChatModel if wire == "openai-chat" else OpenAIResponsesModel
            return kind("gpt-5", provider=OpenAIProvider(**options))


async def run(wire: str, base_url: str) -> None:
    from pydantic_ai import Agent

    agent = Agent(model(wire, base_url), tools=[weather])
    result = await agent.run(PROMPT)
    sys.stdout.write(f"{result.output}\n")
    async with agent.iter(PROMPT) as steps:
        async for node in steps:
            if Agent.is_model_request_node(node):
                async with node.stream(steps.ctx) as stream:
                    async for _ in stream:
                        pass
    sys.stdout.write(f"{steps.result.output}\n")


async def main(arguments: list[str]) -> None:
    for wire, base_url in zip(arguments[::2], arguments[1::2], strict=True):
        await run(wire, base_url)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
