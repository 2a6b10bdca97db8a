"""Servers with bad habits behind a gateway, and gateways in front of scripts, for the tests."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx
import httpx2
import openai
from aiohttp import web
from google import genai

from penstock.gateway import GatewayApp, GatewaySettings, Healing, ModelRoute, Target, Upstream, app
from penstock.testing import Scripted
from tests.asgi_client import Browser

SHELL = {
    "name": "shell",
    "description": "Run a command.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}
TOOLS: Any = [{"type": "function", "function": SHELL}]
ASK: Any = [{"role": "user", "content": "Say what echo prints."}]
COMMAND = "echo $((6*7))"
ARGUMENTS = {"command": COMMAND}


def sse(*chunks: Any, done: bool = True) -> bytes:
    """The bytes of a stream; a chunk that is a string is sent as it is."""
    frames = [chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return ("".join(frames) + ("data: [DONE]\n\n" if done else "")).encode()


def delta(reason: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk of a Chat Completions stream."""
    choice = {"index": 0, "delta": fields, "finish_reason": reason}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def tool_call(arguments: Any, **fields: Any) -> dict[str, Any]:
    """An entry of `tool_calls`."""
    entry: dict[str, Any] = {"index": 0, "id": "call_1", "type": "function"}
    entry |= {"function": {"name": "shell", "arguments": arguments}}
    return {key: value for key, value in (entry | fields).items() if value is not None}


RAW = json.dumps(ARGUMENTS)
IN_TEXT = json.dumps({"name": "shell", "arguments": ARGUMENTS})
QWEN = f"<tool_call>\n<function=shell>\n<parameter=command>\n{COMMAND}\n</parameter>\n</function>\n</tool_call>"
LAST = delta("tool_calls")

HABITS: dict[str, bytes] = {
    "right": sse(delta(role="assistant", content=""), delta(tool_calls=[tool_call(RAW)]), LAST),
    "finish is stop": sse(delta(tool_calls=[tool_call(RAW)]), delta("stop")),
    "no id": sse(delta(tool_calls=[tool_call(RAW, id=None)]), LAST),
    "two calls with one index": sse(
        delta(tool_calls=[tool_call(RAW)]), delta(tool_calls=[tool_call(RAW, id="call_2")]), LAST
    ),
    "no index": sse(delta(tool_calls=[tool_call(RAW, index=None)]), LAST),
    "arguments are an object": sse(delta(tool_calls=[tool_call(ARGUMENTS)]), LAST),
    "name in pieces": sse(
        delta(tool_calls=[tool_call("", function={"name": "sh", "arguments": ""})]),
        delta(tool_calls=[{"index": 0, "function": {"name": "ell", "arguments": RAW}}]),
        LAST,
    ),
    "JSON between marks in the text": sse(
        delta(content="<tool_"), delta(content=f"call>{IN_TEXT}</tool_call>"), delta("stop")
    ),
    "XML in the text": sse(*(delta(content=piece) for piece in (QWEN[:30], QWEN[30:])), delta("stop")),
    "bare JSON in the text": sse(delta(content=IN_TEXT), delta("stop")),
    "keep-alives as data": sse(
        "data: \n\n", "data: : keep-alive\n\n", delta(tool_calls=[tool_call(RAW)]), "data: : keep-alive\n\n", LAST
    ),
    "comma before the bracket": sse(delta(tool_calls=[tool_call(f"{RAW[:-1]},}}")]), LAST),
    "code fence": sse(delta(tool_calls=[tool_call(f"```json\n{RAW}\n```")]), LAST),
    "arguments as a string": sse(delta(tool_calls=[tool_call(json.dumps(RAW))]), LAST),
    "no finish reason": sse(delta(tool_calls=[tool_call(RAW)])),
    "control tokens in the name": sse(
        delta(tool_calls=[tool_call("", function={"name": "shell<|channel|>commentary", "arguments": RAW})]), LAST
    ),
    "prefix of a template before the name": sse(
        delta(tool_calls=[tool_call("", function={"name": "functions.shell:0", "arguments": ""})]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": RAW}}]),
        LAST,
    ),
}
"""Streams of Chat Completions servers that all mean the same call, or two of it."""


def upstream(script: Any, name: str = "local", **settings: Any) -> Upstream:
    """An upstream that plays a script."""
    fields: dict[str, Any] = {"provider": "llamacpp", "via": Scripted(script), "first_token": 20.0}
    return Upstream(name=name, **(fields | settings))


def gateway(*upstreams: Upstream, healing: Healing | None = None, **options: Any) -> GatewayApp:
    """A gateway; with several upstreams, the others are fallbacks of the first."""
    healing = healing or Healing()
    first, *others = upstreams
    route = ModelRoute(
        pattern="*",
        target=Target(first.name, "first"),
        fallbacks=tuple(Target(other.name, "second") for other in others),
        healing=healing,
    )
    routes = (route,) if others else ()
    settings = GatewaySettings(upstreams={one.name: one for one in upstreams}, routes=routes, healing=healing)
    return app(settings=settings, **options)


@asynccontextmanager
async def web_server(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncGenerator[str]:
    """The address of a server that answers every request with a function."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def http(browser: Browser) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=browser.app), base_url="http://localhost")


def openai_client(browser: Browser) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="none", http_client=http(browser), max_retries=0)


def anthropic_client(browser: Browser) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        base_url="http://localhost", api_key="none", http_client=http(browser), max_retries=0
    )


def gemini_client(browser: Browser, version: str | None = None) -> genai.Client:
    """A client of Gemini; without a version, it takes the one that it likes best."""
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=browser.app))
    options = genai.types.HttpOptions(base_url="http://localhost", api_version=version, httpx_async_client=client)
    return genai.Client(api_key="-", http_options=options)


def chat(stream: bool = True, **fields: Any) -> dict[str, Any]:
    """A request of Chat Completions."""
    return {"model": "m", "messages": ASK, "stream": stream, **fields}


def events(body: bytes) -> list[Any]:
    """The JSON of the frames of an SSE stream, without its end mark."""
    lines = [line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def text_of(body: bytes) -> str:
    """The text of a Chat Completions stream."""
    choices: Iterable[Any] = (choice for event in events(body) for choice in event.get("choices", ()))
    return "".join(choice["delta"].get("content") or "" for choice in choices)
