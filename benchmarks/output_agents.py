"""Agents with structured output, each in its own process: the CPU time of a run.

Each agent streams as its documentation says and looks at the output after every chunk. It runs in the environment of
its peer, and imports the peer itself. Prints a line of JSON: the least CPU seconds of some runs, and the output.

    python -m benchmarks.output_agents AGENT URL
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from typing import Any

from pydantic import BaseModel

RUNS = 4  # the first warms up lazy imports
LIMIT = 300  # seconds in total, then SIGALRM ends the process
MODEL = "gpt-4o"

Go = Callable[[], Awaitable[Any]]
"""Runs the agent to its end, and returns its output."""


class Chapter(BaseModel):
    title: str
    words: int
    text: str


class Book(BaseModel):
    title: str
    chapters: list[Chapter]


async def look(place: str) -> str:
    """Look at a place."""
    return place


def penstock(url: str) -> Go:
    from penstock import Agent, Limits, Model

    agent = Agent(Model(f"azure:{MODEL}", url, "none"), [look], output=Book, limits=Limits(steps=None))

    async def go() -> Book:
        async with agent.astream("Go.") as run:
            async for _ in run:
                _ = run.partial
        return run.output

    return go


def pydantic_ai(url: str) -> Go:
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url, api_key="none"))
    agent = Agent(model, tools=[look], output_type=NativeOutput(Book))

    async def go() -> Book:
        async with agent.run_stream("Go.") as answer:
            async for _ in answer.stream_output(debounce_by=None):
                pass
            return await answer.get_output()

    return go


def main(name: str, url: str) -> None:
    signal.alarm(LIMIT)
    go: Go = globals()[name](url)
    times: list[float] = []
    output: Any = None
    with redirect_stdout(sys.stderr), asyncio.Runner() as runner:
        for _ in range(RUNS):
            start = time.process_time()
            output = runner.run(_awaited(go))
            times.append(time.process_time() - start)
    print(json.dumps({"seconds": min(times), "output": output.model_dump()}), flush=True)


async def _awaited(go: Go) -> Any:
    return await go()


if __name__ == "__main__":
    main(*sys.argv[1:])
