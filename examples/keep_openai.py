"""Keep the OpenAI SDK and replace the accumulator: `decode` reads its chunks, `export_messages` writes its messages.

Run it with a local loopback server, or with a key and OpenAI:

    python examples/keep_openai.py
    OPENAI_API_KEY=… python examples/keep_openai.py
"""

import os

from openai import OpenAI
from openai.types.chat import ChatCompletionFunctionToolParam

import penstock
from penstock.messages import answer_invalid, result
from penstock.testing import Loopback, demo

MODEL = "gpt-5.5"
SCHEMA: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[ChatCompletionFunctionToolParam] = [
    {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
]


def weather(city: str) -> str:
    return f"sunny in {city}"


def show(event: penstock.StreamChunk) -> None:
    match event:
        case penstock.Text(text=text):
            print(text, end="", flush=True)
        case penstock.ToolCall(name=name, arguments=arguments):
            print(f"\n→ {name} {arguments}", end="")


def ask(client: OpenAI, question: str) -> None:
    history: list[object] = [question]
    while True:
        body = penstock.export_messages(history, "openai-chat", MODEL)
        stream = client.chat.completions.create(model=MODEL, tools=TOOLS, stream=True, **body)
        turn = penstock.consume(penstock.decode(stream, wire="openai-chat"), on_message=show)
        print()
        if turn.type not in ("tool_calls", "invalid_calls"):
            print(turn.error.message if turn.error else "", end="")
            return
        results = [result(call, weather(**call.arguments)) for call in turn.tool_calls]
        history += [turn, answer_invalid(turn, *results)]


QUESTION = "How is the weather in Rome and in Oslo?"
if os.environ.get("OPENAI_API_KEY"):
    ask(OpenAI(), QUESTION)
else:
    with Loopback(demo, pace=0.02, strict=True) as server:
        ask(OpenAI(base_url=server.base_url("openai-chat"), api_key="-"), QUESTION)
