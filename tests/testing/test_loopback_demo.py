"""`sim:` models: requests are parsed on every wire, and calls match the schemas of any tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

import penstock
from penstock.testing import ReceivedRequest, ReceivedResult, Reply, demo
from penstock.wires import RESPONSE_FRAMES

every_wire = pytest.mark.parametrize("wire", sorted(RESPONSE_FRAMES))


# Requests, as they are read on every wire.

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Weather in Rome?"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "weather"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}],
}
BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": CHAT,
    "mistral": CHAT,
    "ollama": {
        **CHAT,
        "messages": [*CHAT["messages"][:3], {"role": "tool", "tool_name": "weather", "content": "sunny"}],
    },
    "cohere": {
        **CHAT,
        "messages": [
            *CHAT["messages"][:3],
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "document", "document": {"data": "sunny"}}]},
        ],
    },
    "openai-responses": {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Weather in Rome?"}]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        ],
        "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA}],
    },
    "anthropic": {
        "messages": [
            {"role": "user", "content": "Weather in Rome?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}]},
        ],
        "tools": [{"name": "weather", "input_schema": SCHEMA}],
    },
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "Weather in Rome?"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"result": "sunny"}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "weather", "parametersJsonSchema": SCHEMA}]}],
    },
    "gemini-interactions": {
        "input": [
            {"type": "user_input", "content": [{"type": "text", "text": "Weather in Rome?"}]},
            {"type": "function_call", "id": "c1", "name": "weather", "arguments": {}},
            {"type": "function_result", "call_id": "c1", "result": "sunny"},
        ],
        "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA}],
    },
    "bedrock": {
        "messages": [
            {"role": "user", "content": [{"text": "Weather in Rome?"}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "weather", "input": {}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "sunny"}]}}]},
        ],
        "toolConfig": {"tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": SCHEMA}}}]},
    },
}


@every_wire
def test_a_request_is_parsed_on_every_wire(wire: str) -> None:
    request = ReceivedRequest(wire, BODIES[wire])
    assert request.prompt == "Weather in Rome?"
    assert request.results == [ReceivedResult("weather", "sunny")]
    assert [(tool.name, tool.parameters) for tool in request.tools] == [("weather", SCHEMA)]


@pytest.mark.parametrize(
    ("body", "choice"),
    [
        ({"tool_choice": "none"}, "none"),
        ({"tool_choice": "NONE"}, "none"),
        ({"tool_choice": "any"}, "required"),
        ({"tool_choice": {"type": "any"}}, "required"),
        ({"tool_choice": {"type": "auto"}}, "auto"),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "f"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "f"),
        ({"toolConfig": {"toolChoice": {"tool": {"name": "f"}}}}, "f"),
        ({"toolConfig": {"toolChoice": {"any": {}}}}, "required"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}, "none"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}}}, "f"),
        ({}, ""),
    ],
)
def test_the_tool_choice_is_parsed_on_every_wire(body: dict[str, Any], choice: str) -> None:
    assert ReceivedRequest("openai-chat", body).tool_choice == choice


# The demo.


def ask(prompt: str, *tools: dict[str, Any], **more: Any) -> Reply:
    return demo(
        ReceivedRequest("openai-chat", {"messages": [{"role": "user", "content": prompt}], "tools": [*tools], **more})
    )


def tool(name: str, description: str = "", *, required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [*properties] if required is None else required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def arguments_of(reply: Reply) -> list[tuple[str, dict[str, Any]]]:
    return [(made.name, json.loads(made.arguments)) for made in reply.calls]


TEXT = {"type": "string"}


@every_wire
def test_the_demo_calls_tools_and_then_summarises_on_every_wire(wire: str) -> None:
    body = BODIES[wire]
    key = next(key for key in ("messages", "contents", "input") if key in body)
    asked_first = next(
        at for at, entry in enumerate(body[key]) if "user" in (entry.get("role"), entry.get("type", "")[:4])
    )
    begun = {**body, key: body[key][: asked_first + 1]}
    first = demo(ReceivedRequest(wire, begun))
    assert first.text == "Let me ask weather."
    assert arguments_of(first) == [("weather", {"city": "Rome"})]
    assert demo(ReceivedRequest(wire, body)) == Reply("Here is what I found: weather says sunny.")


def test_the_demo_answers_without_tools() -> None:
    assert "“How are you?”" in ask("How are you?").text
    assert ask("").text.startswith("Hello!")
    assert ask("Weather in Rome?", tool("weather", city=TEXT), tool_choice="none").calls == []
    assert len(ask("word " * 1000).text) < 300


def test_the_demo_calls_the_tools_that_match_the_prompt() -> None:
    weather = tool("get_weather", "The forecast of a city", city=TEXT)
    trains = tool("searchTrains", "Trains between two cities", origin=TEXT, destination=TEXT)
    mail = tool("send_mail", "Write to somebody", to={"type": "string", "format": "email"})
    tools = weather, trains, mail
    assert [name for name, _ in arguments_of(ask("What is the weather in Rome?", *tools))] == ["get_weather"]
    both = ask("Trains from Milan to Rome, and the weather there?", *tools)
    assert ("searchTrains", {"origin": "Milan", "destination": "Rome"}) in arguments_of(both)
    assert {name for name, _ in arguments_of(both)} == {"searchTrains", "get_weather"}
    assert arguments_of(ask("Bonjour", *tools)) == [("get_weather", {"city": "Bonjour"})]
    assert arguments_of(ask("Weather, please", *tools, tool_choice={"function": {"name": "send_mail"}})) == [
        ("send_mail", {"to": "ada@example.com"})
    ]


def test_the_demo_makes_one_call_per_name() -> None:
    weather = tool("weather", city=TEXT)
    assert arguments_of(ask("How is the weather in Rome, Oslo and New York?", weather)) == [
        ("weather", {"city": "Rome"}),
        ("weather", {"city": "Oslo"}),
        ("weather", {"city": "New York"}),
    ]


def test_the_demo_is_deterministic() -> None:
    assert ask("Weather in Rome?", tool("weather", city=TEXT)) == ask("Weather in Rome?", tool("weather", city=TEXT))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "enum": ["celsius", "fahrenheit"]}, "celsius"),
        ({"type": "string", "enum": ["Celsius", "Kelvin"]}, "Kelvin"),
        ({"type": "integer", "default": 9}, 9),
        ({"const": "fixed"}, "fixed"),
        ({"type": "integer"}, 3),
        ({"type": "integer", "minimum": 10, "maximum": 20}, 10),
        ({"type": "integer", "exclusiveMinimum": 3}, 4),
        ({"type": "number", "exclusiveMaximum": 3}, 2.5),
        ({"type": "integer", "multipleOf": 5}, 5),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": ["null", "integer"]}, 3),
        ({"type": "STRING"}, "Rome"),
        ({"type": "string", "maxLength": 2}, "Ro"),
        ({"type": "string", "minLength": 6}, "Rome.."),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 2}, ["Rome", "Rome"]),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2}, ["Rome", 3]),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, True),
        ({"allOf": [{"type": "object"}, {"properties": {"a": {"type": "null"}}, "required": ["a"]}]}, {"a": None}),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"a": "Rome"}),
        ({"type": "object"}, {}),
        ({}, "Rome"),
        (True, "Rome"),
    ],
)  # fmt: skip
def test_the_arguments_of_the_demo_match_the_schema(schema: Any, expected: Any) -> None:
    [(_, arguments)] = arguments_of(ask("Are 3 days in Rome hot in kelvin?", tool("hot_days", value=schema)))
    assert arguments == {"value": expected}


def test_the_demo_follows_references_even_circular_ones() -> None:
    schema = {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/Node"}},
        "required": ["root"],
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"label": TEXT, "next": {"$ref": "#/$defs/Node"}, "twigs": {"$ref": "#/$defs/Nodes"}},
                "required": ["label", "next", "twigs"],
            },
            "Nodes": {"type": "array", "items": {"$ref": "#/$defs/Node"}, "minItems": 1_000_000},
        },
    }
    [(_, arguments)] = arguments_of(ask("Plant a tree in Rome", {"name": "plant", "parameters": schema}))
    assert arguments["root"]["label"] == arguments["root"]["next"]["label"] == "Rome"


def test_the_demo_uses_the_whole_prompt_for_a_query() -> None:
    assert arguments_of(ask("search for Rome", tool("search", query=TEXT))) == [
        ("search", {"query": "search for Rome"})
    ]
    assert len(ask("search for Rome and Oslo", tool("search", query=TEXT)).calls) == 1
    assert arguments_of(ask("now?", tool("now"))) == [("now", {})]
    assert arguments_of(ask("page?", tool("page", required=[], a=TEXT, b=TEXT, c=TEXT, d=TEXT)))[0][1].keys() == {
        *"abc"
    }


@pytest.mark.parametrize(
    ("prompt", "order"),
    [
        ("Refund order 17", "17"),
        ("Refund order #17.", "17"),
        ("Refund order 17 for Ada", "17"),
        ('Refund order "A-17" of Ada', "A-17"),
        ("Refund “the blue one”", "the blue one"),
        ("Refund 17", "17"),
        ("Refund the order of Ada", "Ada"),
        ("Don't refund, it's Ada's", "Ada's"),
    ],
)
def test_a_string_is_what_the_prompt_has_for_it(prompt: str, order: str) -> None:
    @penstock.tool
    def refund(order: str) -> str:
        """Refund an order."""
        return order

    @penstock.tool(name="refund")
    def refund_number(order_id: int) -> str:
        """Refund an order."""
        return str(order_id)

    assert penstock.Agent("sim:fast", [refund]).run(prompt).output == f"Here is what I found: refund says {order}."
    if order.isdigit():
        assert f"says {order}." in penstock.Agent("sim:fast", [refund_number]).run(prompt).output
