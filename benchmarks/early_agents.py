"""Agents with one tool, each in its own process: when does the tool start?

Each agent streams as its documentation says, with parallel calls, and runs twice, because the first run warms up lazy
imports. It runs in the environment of its peer, and imports the peer itself. Prints a line of JSON: the times at which
the tool started in the second run, on the clock that all processes share.

    python -m benchmarks.early_agents AGENT URL
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import penstock

TOOL = 0.5  # seconds per call of the tool
PREPARE = 0.4  # the part of these seconds without side effects
LIMIT = 60  # seconds in total, then SIGALRM ends the process
MODEL = "gpt-4o"

STARTS: list[float] = []
Go = Callable[[str], Any]
"""Runs the agent to its end, or returns the coroutine that does."""


def look(place: str) -> str:
    """Look at a place."""
    STARTS.append(time.monotonic())
    time.sleep(TOOL)
    return place


async def alook(place: str) -> str:
    """Look at a place."""
    STARTS.append(time.monotonic())
    await asyncio.sleep(TOOL)
    return place


def penstock_read_only_async(url: str) -> Go:
    return _penstock(url, alook, read_only=True).arun


def penstock_read_only_sync(url: str) -> Go:
    return _penstock(url, look, read_only=True).run


def penstock_default_async(url: str) -> Go:
    return _penstock(url, alook, read_only=False).arun


def penstock_default_sync(url: str) -> Go:
    return _penstock(url, look, read_only=False).run


def penstock_prepared_async(url: str) -> Go:
    async def prepare() -> None:
        await asyncio.sleep(PREPARE)

    async def look(place: str) -> str:
        """Look at a place."""
        STARTS.append(time.monotonic())
        await asyncio.sleep(TOOL - PREPARE)
        return place

    return _penstock(url, look, prepare=prepare).arun


def penstock_prepared_sync(url: str) -> Go:
    def look(place: str) -> str:
        """Look at a place."""
        STARTS.append(time.monotonic())
        time.sleep(TOOL - PREPARE)
        return place

    return _penstock(url, look, prepare=lambda: time.sleep(PREPARE)).run


def _penstock(url: str, function: Any, **options: Any) -> penstock.Agent:
    from penstock import Agent, Model, tool

    return Agent(Model(f"openai-compatible:{MODEL}", url, "none"), [tool(**options)(function)])


def pydantic_ai_async(url: str) -> Go:
    agent = _pydantic_ai(url, alook)

    async def go(prompt: str) -> None:
        async with agent.run_stream_events(prompt) as events:
            async for _ in events:
                pass

    return go


def pydantic_ai_sync(url: str) -> Go:
    agent = _pydantic_ai(url, look)

    def go(prompt: str) -> None:
        with agent.run_stream_sync(prompt) as answer:
            for _ in answer.stream_text():
                pass

    return go


def _pydantic_ai(url: str, function: Any) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url, api_key="none")), tools=[function])


def openai_agents_async(url: str) -> Go:
    from agents import Runner

    agent = _openai_agents(url, alook)

    async def go(prompt: str) -> None:
        async for _ in Runner.run_streamed(agent, prompt).stream_events():
            pass

    return go


def openai_agents_sync(url: str) -> Go:
    from agents import Runner

    agent = _openai_agents(url, look)

    def go(prompt: str) -> None:
        Runner.run_sync(agent, prompt)

    return go


def _openai_agents(url: str, function: Any) -> Any:
    from agents import Agent, OpenAIChatCompletionsModel, function_tool
    from openai import AsyncOpenAI

    model = OpenAIChatCompletionsModel(MODEL, AsyncOpenAI(base_url=url, api_key="none"))
    return Agent(name="looks", model=model, tools=[function_tool(function)])


def langchain_async(url: str) -> Go:
    agent = _langchain(url, alook)

    async def go(prompt: str) -> None:
        async for _ in agent.astream({"messages": prompt}, stream_mode=["messages", "updates"]):
            pass

    return go


def langchain_sync(url: str) -> Go:
    agent = _langchain(url, look)

    def go(prompt: str) -> None:
        for _ in agent.stream({"messages": prompt}, stream_mode=["messages", "updates"]):
            pass

    return go


def _langchain(url: str, function: Any) -> Any:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=MODEL, base_url=url, api_key="none", use_responses_api=False)
    return create_agent(model, [function])


def main(name: str, url: str) -> None:
    signal.alarm(LIMIT)
    go: Go = globals()[name](url)
    with redirect_stdout(sys.stderr), asyncio.Runner() as runner:  # some agents print
        for _ in range(2):
            STARTS.clear()
            gc.collect()  # else the pause of a full collection, for what was imported, may fall into the run
            if inspect.isawaitable(running := go("Go.")):
                runner.run(running)
    print(json.dumps(STARTS), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
