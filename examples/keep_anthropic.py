"""Keep the Anthropic SDK and replace the loop over its events: `decode` reads them, `export_messages` writes messages.

Run it with a local loopback server, or with a key and Anthropic:

    python examples/keep_anthropic.py
    ANTHROPIC_API_KEY=… python examples/keep_anthropic.py
"""

import os

from anthropic import Anthropic
from anthropic.types import ToolParam

import penstock
from penstock.messages import answer_invalid, result
from penstock.testing import Loopback, demo

MODEL = "claude-sonnet-5"
SCHEMA: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[ToolParam] = [{"name": "weather", "input_schema": SCHEMA}]


def weather(city: str) -> str:
    return f"sunny in {city}"


def show(event: penstock.StreamChunk) -> None:
    match event:
        case penstock.Text(text=text):
            print(text, end="", flush=True)
        case penstock.ToolCall(name=name, arguments=arguments):
            print(f"\n→ {name} {arguments}", end="")


def ask(client: Anthropic, question: str) -> None:
    history: list[object] = [question]
    while True:
        body = penstock.export_messages(history, "anthropic", MODEL)
        stream = client.messages.create(model=MODEL, max_tokens=1000, tools=TOOLS, stream=True, **body)
        turn = penstock.consume(penstock.decode(stream, wire="anthropic"), on_message=show)
        print()
        if turn.type not in ("tool_calls", "invalid_calls"):
            print(turn.error.message if turn.error else "", end="")
            return
        results = [result(call, weather(**call.arguments)) for call in turn.tool_calls]
        history += [turn, answer_invalid(turn, *results)]


QUESTION = "How is the weather in Rome and in Oslo?"
if os.environ.get("ANTHROPIC_API_KEY"):
    ask(Anthropic(), QUESTION)
else:
    with Loopback(demo, pace=0.02, strict=True) as server:
        ask(Anthropic(base_url=server.base_url("anthropic"), api_key="-"), QUESTION)
