"""Keep google-genai and replace the loop over its parts: `decode` reads them, `export_messages` writes its contents.

Run it with a local loopback server, or with a key and Google:

    python examples/keep_google.py
    GEMINI_API_KEY=… python examples/keep_google.py
"""

import os

from google import genai
from google.genai.types import GenerateContentConfigDict

import penstock
from penstock.messages import answer_invalid, result
from penstock.testing import Loopback, demo

MODEL = "gemini-3.8-flash"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CONFIG: GenerateContentConfigDict = {
    "tools": [{"function_declarations": [{"name": "weather", "parameters_json_schema": SCHEMA}]}]
}


def weather(city: str) -> str:
    return f"sunny in {city}"


def show(event: penstock.StreamChunk) -> None:
    match event:
        case penstock.Text(text=text):
            print(text, end="", flush=True)
        case penstock.ToolCall(name=name, arguments=arguments):
            print(f"\n→ {name} {arguments}", end="")


def ask(client: genai.Client, question: str) -> None:
    history: list[object] = [question]
    while True:
        body = penstock.export_messages(history, "gemini", MODEL)
        stream = client.models.generate_content_stream(model=MODEL, config=CONFIG, **body)
        turn = penstock.consume(penstock.decode(stream, wire="gemini"), on_message=show)
        print()
        if turn.type not in ("tool_calls", "invalid_calls"):
            print(turn.error.message if turn.error else "", end="")
            return
        results = [result(call, weather(**call.arguments)) for call in turn.tool_calls]
        history += [turn, answer_invalid(turn, *results)]


QUESTION = "How is the weather in Rome and in Oslo?"
if os.environ.get("GEMINI_API_KEY"):
    ask(genai.Client(), QUESTION)
else:
    with Loopback(demo, pace=0.02, strict=True) as server:
        ask(genai.Client(api_key="-", http_options={"base_url": server.base_url("gemini")}), QUESTION)
