"""Habits of servers × SDKs and frameworks, without and with healing in process: `python -m tests.heal.matrix`.

    python -m tests.heal.matrix            prints the table
    python -m tests.heal.matrix --write    writes it into docs/keep-your-framework.md
    python -m tests.heal.matrix --json     prints the cells, for the test

A cell counts the ways of a client (sync and async, streamed and not) in which it gets exactly the intended calls.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else litellm downloads a list of prices
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import penstock.heal
from penstock import Healing
from tests.heal.habit_replies import CHAT, IMPOSSIBLE, NEEDS, expected, habit_loopback, habits_of

PAGE = Path(__file__).parent.parent.parent / "docs" / "keep-your-framework.md"
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
FUNCTION = {"name": "look", "description": "Looks.", "parameters": SCHEMA}
TOOLS: list[Any] = [{"type": "function", "function": FUNCTION}]
ASK = "What is there?"
MESSAGES: list[Any] = [{"role": "user", "content": ASK}]
PATIENCE = 20.0

Calls = list[tuple[str, Any]]
"""The id of each call, and its arguments."""
Attach = Callable[[Any], Any]
Way = Callable[[str, Attach], Calls | Awaitable[Calls]]


def pieces(deltas: Iterable[Any]) -> Calls:
    """The calls of Chat Completions deltas, as programs join them."""
    calls: dict[int, list[str]] = {}
    for call in deltas:
        entry = calls.setdefault(call.index, ["", ""])
        entry[0] = call.id or entry[0]
        entry[1] += call.function.arguments or ""
    return [(id, json.loads(arguments)) for id, arguments in calls.values()]


def of_chunks(chunks: Iterable[Any]) -> Calls:
    chunks = [chunk for chunk in chunks if chunk.choices]
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason]
    calls = pieces(call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ())
    return calls if reasons == ["tool_calls"] else []  # programs look at the calls when they are told to


def of_message(response: Any) -> Calls:
    choice = response.choices[0]
    calls = [(call.id, json.loads(call.function.arguments)) for call in choice.message.tool_calls or ()]
    return calls if choice.finish_reason == "tool_calls" else []


def in_order(calls: Calls) -> Calls:
    """The calls that an agent has run, which may run at the same time."""
    return sorted(calls, key=lambda one: str(one[1]))


async def all_of(stream: Any) -> list[Any]:
    return [one async for one in stream]


def openai_client(base: str, attach: Attach, kind: str) -> Any:
    import openai

    return attach(getattr(openai, kind)(base_url=f"{base}/v1", api_key="-", max_retries=0, timeout=PATIENCE))


def openai_chat() -> list[Way]:
    def ask(client: Any, *, stream: bool) -> Any:
        return client.chat.completions.create(model="m", messages=MESSAGES, tools=TOOLS, stream=stream)

    def streamed(base: str, attach: Attach) -> Calls:
        with openai_client(base, attach, "OpenAI") as client:
            return of_chunks(ask(client, stream=True))

    def whole(base: str, attach: Attach) -> Calls:
        with openai_client(base, attach, "OpenAI") as client:
            return of_message(ask(client, stream=False))

    async def async_streamed(base: str, attach: Attach) -> Calls:
        async with openai_client(base, attach, "AsyncOpenAI") as client:
            return of_chunks(await all_of(await ask(client, stream=True)))

    async def async_whole(base: str, attach: Attach) -> Calls:
        async with openai_client(base, attach, "AsyncOpenAI") as client:
            return of_message(await ask(client, stream=False))

    return [streamed, whole, async_streamed, async_whole]


def openai_responses() -> list[Way]:
    tools = [{"type": "function", **FUNCTION}]

    def of(response: Any) -> Calls:
        items = [item for item in response.output if item.type == "function_call"]
        return [(item.call_id, json.loads(item.arguments)) for item in items]

    def ask(client: Any, *, stream: bool) -> Any:
        return client.responses.create(model="m", input=ASK, tools=tools, stream=stream)

    def last(events: list[Any]) -> Calls:
        return of(events[-1].response)

    def streamed(base: str, attach: Attach) -> Calls:
        with openai_client(base, attach, "OpenAI") as client:
            return last([*ask(client, stream=True)])

    def whole(base: str, attach: Attach) -> Calls:
        with openai_client(base, attach, "OpenAI") as client:
            return of(ask(client, stream=False))

    async def async_streamed(base: str, attach: Attach) -> Calls:
        async with openai_client(base, attach, "AsyncOpenAI") as client:
            return last(await all_of(await ask(client, stream=True)))

    async def async_whole(base: str, attach: Attach) -> Calls:
        async with openai_client(base, attach, "AsyncOpenAI") as client:
            return of(await ask(client, stream=False))

    return [streamed, whole, async_streamed, async_whole]


def anthropic() -> list[Way]:
    tools = [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}]
    options: Any = {"model": "m", "max_tokens": 1000, "messages": MESSAGES, "tools": tools}

    def client_of(base: str, attach: Attach, kind: str) -> Any:
        import anthropic

        return attach(getattr(anthropic, kind)(base_url=base, api_key="-", max_retries=0, timeout=PATIENCE))

    def of(message: Any) -> Calls:
        blocks = [block for block in message.content if block.type == "tool_use"]
        return [(block.id, block.input) for block in blocks] if message.stop_reason == "tool_use" else []

    def streamed(base: str, attach: Attach) -> Calls:
        with client_of(base, attach, "Anthropic") as client, client.messages.stream(**options) as stream:
            return of(stream.get_final_message())

    def whole(base: str, attach: Attach) -> Calls:
        with client_of(base, attach, "Anthropic") as client:
            return of(client.messages.create(**options))

    async def async_streamed(base: str, attach: Attach) -> Calls:
        async with client_of(base, attach, "AsyncAnthropic") as client, client.messages.stream(**options) as stream:
            return of(await stream.get_final_message())

    async def async_whole(base: str, attach: Attach) -> Calls:
        async with client_of(base, attach, "AsyncAnthropic") as client:
            return of(await client.messages.create(**options))

    return [streamed, whole, async_streamed, async_whole]


def google() -> list[Way]:
    from google import genai

    declaration = {"name": "look", "description": "Looks.", "parameters_json_schema": SCHEMA}
    options: Any = {
        "model": "m",
        "contents": ASK,
        "config": {
            "tools": [{"function_declarations": [declaration]}],
            "automatic_function_calling": {"disable": True},
        },
    }

    def client_of(base: str, attach: Attach) -> Any:
        return attach(genai.Client(api_key="-", http_options={"base_url": base}))

    def of(responses: Iterable[Any]) -> Calls:
        return [("-", call.args) for response in responses for call in response.function_calls or ()]

    def streamed(base: str, attach: Attach) -> Calls:
        with client_of(base, attach) as client:
            return of(client.models.generate_content_stream(**options))

    def whole(base: str, attach: Attach) -> Calls:
        with client_of(base, attach) as client:
            return of([client.models.generate_content(**options)])

    async def async_streamed(base: str, attach: Attach) -> Calls:
        async with client_of(base, attach).aio as client:
            return of(await all_of(await client.models.generate_content_stream(**options)))

    async def async_whole(base: str, attach: Attach) -> Calls:
        async with client_of(base, attach).aio as client:
            return of([await client.models.generate_content(**options)])

    return [streamed, whole, async_streamed, async_whole]


def ollama() -> list[Way]:
    def client_of(base: str, attach: Attach, kind: str) -> Any:
        import ollama

        return attach(getattr(ollama, kind)(base))

    def ask(client: Any, *, stream: bool) -> Any:
        return client.chat(model="m", messages=MESSAGES, tools=TOOLS, stream=stream)

    def of(responses: Iterable[Any]) -> Calls:
        return [("-", call.function.arguments) for one in responses for call in one.message.tool_calls or ()]

    def streamed(base: str, attach: Attach) -> Calls:
        return of(ask(client_of(base, attach, "Client"), stream=True))

    def whole(base: str, attach: Attach) -> Calls:
        return of([ask(client_of(base, attach, "Client"), stream=False)])

    async def async_streamed(base: str, attach: Attach) -> Calls:
        return of(await all_of(await ask(client_of(base, attach, "AsyncClient"), stream=True)))

    async def async_whole(base: str, attach: Attach) -> Calls:
        return of([await ask(client_of(base, attach, "AsyncClient"), stream=False)])

    return [streamed, whole, async_streamed, async_whole]


def langchain_openai(base: str, *, streaming: bool) -> Any:
    from langchain_openai import ChatOpenAI

    options: Any = {"base_url": f"{base}/v1", "api_key": "-", "model": "m", "max_retries": 0}
    return ChatOpenAI(**options, streaming=streaming, use_responses_api=False, timeout=PATIENCE)


def langchain_anthropic(base: str, *, streaming: bool) -> Any:
    from langchain_anthropic import ChatAnthropic

    options: Any = {"base_url": base, "api_key": "-", "model": "m", "max_retries": 0, "max_tokens": 1000}
    return ChatAnthropic(**options, streaming=streaming, timeout=PATIENCE)


def langchain(new: Callable[..., Any]) -> list[Way]:
    def model_of(base: str, attach: Attach, *, streaming: bool) -> Any:
        return attach(new(base, streaming=streaming)).bind_tools(TOOLS)

    def of(message: Any) -> Calls:
        return [(call["id"], call["args"]) for call in message.tool_calls]

    def joined(chunks: list[Any]) -> Any:
        total = chunks[0]
        for chunk in chunks[1:]:
            total += chunk
        return total

    def streamed(base: str, attach: Attach) -> Calls:
        return of(joined([*model_of(base, attach, streaming=True).stream(ASK)]))

    def whole(base: str, attach: Attach) -> Calls:
        return of(model_of(base, attach, streaming=False).invoke(ASK))

    async def async_streamed(base: str, attach: Attach) -> Calls:
        return of(joined(await all_of(model_of(base, attach, streaming=True).astream(ASK))))

    async def async_whole(base: str, attach: Attach) -> Calls:
        return of(await model_of(base, attach, streaming=False).ainvoke(ASK))

    return [streamed, whole, async_streamed, async_whole]


def pydantic_ai() -> list[Way]:
    def agent_of(base: str, attach: Attach, calls: Calls) -> Any:
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=f"{base}/v1", api_key="-"))
        agent = Agent(attach(model), retries=0)

        @agent.tool_plain
        def look(command: str) -> str:
            """Looks."""
            calls.append(("-", {"command": command}))
            return "seen"

        return agent

    def streamed(base: str, attach: Attach) -> Calls:
        calls: Calls = []
        agent_of(base, attach, calls).run_stream_sync(ASK).get_output()
        return in_order(calls)

    def whole(base: str, attach: Attach) -> Calls:
        calls: Calls = []
        agent_of(base, attach, calls).run_sync(ASK)
        return in_order(calls)

    async def async_streamed(base: str, attach: Attach) -> Calls:
        calls: Calls = []
        async with agent_of(base, attach, calls).run_stream(ASK) as run:
            await run.get_output()
        return in_order(calls)

    async def async_whole(base: str, attach: Attach) -> Calls:
        calls: Calls = []
        await agent_of(base, attach, calls).run(ASK)
        return in_order(calls)

    return [streamed, whole, async_streamed, async_whole]


def openai_agents() -> list[Way]:
    def agent_of(base: str, attach: Attach, calls: Calls) -> Any:
        import agents
        from openai import AsyncOpenAI

        @agents.function_tool
        def look(command: str) -> str:
            """Looks."""
            calls.append(("-", {"command": command}))
            return "seen"

        client = AsyncOpenAI(base_url=f"{base}/v1", api_key="-", max_retries=0)
        model = attach(agents.OpenAIChatCompletionsModel("m", client))
        return agents.Agent(name="a", model=model, tools=[look])

    async def async_streamed(base: str, attach: Attach) -> Calls:
        from agents import Runner

        calls: Calls = []
        await all_of(Runner.run_streamed(agent_of(base, attach, calls), ASK).stream_events())
        return in_order(calls)

    async def async_whole(base: str, attach: Attach) -> Calls:
        from agents import Runner

        calls: Calls = []
        await Runner.run(agent_of(base, attach, calls), ASK)
        return in_order(calls)

    def whole(base: str, attach: Attach) -> Calls:
        from agents import Runner

        calls: Calls = []
        Runner.run_sync(agent_of(base, attach, calls), ASK)
        return in_order(calls)

    return [whole, async_streamed, async_whole]


def mistral() -> list[Way]:
    def client_of(base: str, attach: Attach) -> Any:
        from mistralai.client import Mistral

        return attach(Mistral(api_key="-", server_url=base, timeout_ms=int(PATIENCE * 1000)))

    options: Any = {"model": "m", "messages": MESSAGES, "tools": TOOLS}

    def of(events: Iterable[Any]) -> Calls:
        return of_chunks(event.data for event in events)

    def streamed(base: str, attach: Attach) -> Calls:
        with client_of(base, attach) as client:
            return of(client.chat.stream(**options))

    def whole(base: str, attach: Attach) -> Calls:
        with client_of(base, attach) as client:
            return of_message(client.chat.complete(**options))

    async def async_streamed(base: str, attach: Attach) -> Calls:
        async with client_of(base, attach) as client:
            return of(await all_of(await client.chat.stream_async(**options)))

    async def async_whole(base: str, attach: Attach) -> Calls:
        async with client_of(base, attach) as client:
            return of_message(await client.chat.complete_async(**options))

    return [streamed, whole, async_streamed, async_whole]


def litellm() -> list[Way]:
    import litellm

    def options(base: str, attach: Attach) -> dict[str, Any]:
        litellm.client_session = litellm.aclient_session = None
        litellm.in_memory_llm_clients_cache.flush_cache()
        attach(litellm)
        return {"model": "openai/m", "api_base": f"{base}/v1", "api_key": "-", "messages": MESSAGES, "tools": TOOLS,
                "max_retries": 0, "timeout": PATIENCE}  # fmt: skip

    def built(chunks: list[Any]) -> Calls:
        return of_message(litellm.stream_chunk_builder(chunks, messages=MESSAGES))

    def streamed(base: str, attach: Attach) -> Calls:
        response: Any = litellm.completion(**options(base, attach), stream=True)
        return built([*response])

    def whole(base: str, attach: Attach) -> Calls:
        return of_message(litellm.completion(**options(base, attach)))

    async def async_streamed(base: str, attach: Attach) -> Calls:
        return built(await all_of(await litellm.acompletion(**options(base, attach), stream=True)))

    async def async_whole(base: str, attach: Attach) -> Calls:
        return of_message(await litellm.acompletion(**options(base, attach)))

    return [streamed, whole, async_streamed, async_whole]


CLIENTS: dict[str, tuple[str, str, Callable[[], list[Way]]]] = {
    "openai (Chat)": ("openai", "openai-chat", openai_chat),
    "openai (Responses)": ("openai", "openai-responses", openai_responses),
    "anthropic": ("anthropic", "anthropic", anthropic),
    "google-genai": ("google-genai", "gemini", google),
    "ollama": ("ollama", "ollama", ollama),
    "mistralai": ("mistralai", "openai-chat", mistral),
    "LangChain (OpenAI)": ("langchain-openai", "openai-chat", partial(langchain, langchain_openai)),
    "LangChain (Anthropic)": ("langchain-anthropic", "anthropic", partial(langchain, langchain_anthropic)),
    "pydantic-ai": ("pydantic-ai-slim", "openai-chat", pydantic_ai),
    "openai-agents": ("openai-agents", "openai-chat", openai_agents),
    "LiteLLM": ("litellm", "openai-chat", litellm),
}
"""The package of each client, its protocol, and its ways."""
LACKING = {"openai-agents": "openai-agents has no streamed way in sync code, so that its cells have three ways"}
"""The ways that a client does not have."""


def is_right(way: Way, base: str, habit: str, attach: Attach, runner: asyncio.Runner) -> str:
    """Why a client does not get the calls; empty if it does."""
    try:
        found = way(f"{base}/{habit}", attach)
        calls: Calls = runner.run(_awaited(found)) if isinstance(found, Awaitable) else found
    except Exception as error:  # noqa: BLE001  # clients fail in any way
        return f"{type(error).__name__}: {error}"[:200]
    ids = [id for id, _ in calls]
    if [arguments for _, arguments in calls] != expected(habit) or not all(ids):
        return f"got {calls}"
    return "" if len({*ids} - {"-"}) == len([id for id in ids if id != "-"]) else "two calls have one id"


async def _awaited(found: Awaitable[Calls]) -> Calls:
    return await asyncio.wait_for(found, PATIENCE)


def _as_it_is(value: Any) -> Any:
    return value


def measure(only: str = "") -> dict[str, dict[str, dict[str, list[str]]]]:
    """By client, habit, and `before` and `after`: for each way what is wrong, or nothing."""
    cells: dict[str, dict[str, dict[str, list[str]]]] = {}
    with habit_loopback() as server, asyncio.Runner() as runner:  # LangChain keeps its clients for other models
        for client, (_, wire, ways) in CLIENTS.items():
            if only and only != client:
                continue
            tried = ways()
            cells[client] = {}
            for habit in habits_of(wire):
                settings = Healing(**NEEDS.get(habit, {}))

                def heal(value: Any, settings: Healing = settings) -> Any:
                    return penstock.heal.attach(value, healing=settings)

                cells[client][habit] = {
                    "before": [is_right(way, server.url, habit, _as_it_is, runner) for way in tried],
                    "after": [is_right(way, server.url, habit, heal, runner) for way in tried],
                }
    return cells


def table(cells: dict[str, dict[str, dict[str, list[str]]]]) -> str:
    """The cells as a table: how many ways are right, before → after. A cell that cannot exist has a number, and why."""
    rows = [f"| habit | {' | '.join(cells)} |", f"|---|{'---|' * len(cells)}"]
    whys = [*dict.fromkeys(why for client in cells for why in IMPOSSIBLE.get(CLIENTS[client][1], {}).values())]
    for habit in CHAT:
        row = [
            _cell(found[habit]) if habit in found else f"– ({whys.index(IMPOSSIBLE[CLIENTS[client][1]][habit]) + 1})"
            for client, found in cells.items()
        ]
        mark = f" ({', '.join(f'`{key}={value!r}`' for key, value in NEEDS[habit].items())})" if habit in NEEDS else ""
        rows.append(f"| {habit.replace('_', ' ')}{mark} | {' | '.join(row)} |")
    packages = dict.fromkeys(package for package, _, _ in CLIENTS.values())
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    made = time.strftime("%Y-%m-%d", time.gmtime())
    notes = [f"({number}) {why}" for number, why in enumerate(whys, 1)]
    lacking = [why for client, why in LACKING.items() if client in cells]
    notes = [f"–: {'; '.join(notes)}. {'. '.join(lacking)}."] if notes or lacking else []
    return "\n\n".join(["\n".join(rows).replace("'", '"'), *notes, f"Made on {made} with {versions}.\n"])


def _cell(found: dict[str, list[str]]) -> str:
    before, after = (sum(not one for one in found[name]) for name in ("before", "after"))
    return f"{before} → {after} of {len(found['after'])}"


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    only = next((one for one in sys.argv[1:] if not one.startswith("--")), "")
    cells = measure(only)
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps(cells) + "\n")
        return
    text = table(cells)
    if "--write" in sys.argv:
        page = PAGE.read_text(encoding="utf-8")
        start, end = page.index("<!-- matrix -->") + len("<!-- matrix -->"), page.index("<!-- end of matrix -->")
        PAGE.write_text(f"{page[:start]}\n\n{text}\n{page[end:]}", encoding="utf-8")
    sys.stdout.write(text)
    for client, habits in cells.items():
        for habit, found in habits.items():
            for number, problem in enumerate(found["after"]):
                if problem:
                    sys.stdout.write(f"WRONG {client} {habit} way {number}: {problem}\n")


if __name__ == "__main__":
    main()
