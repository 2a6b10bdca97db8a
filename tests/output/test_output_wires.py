"""Structured output on every wire: the table of docs/structured-output.md, cell by cell, on a strict server."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Agent, Model, OutputDelta, OutputInvalid, StreamEvent, WireName
from penstock.declarations import OutputDeclaration
from penstock.model.output_request import OUTPUT_TOOL
from penstock.testing import Loopback, ReceivedRequest, Reply, Scripted, call
from penstock.wires import WIRES, find_output_form, wire_name
from penstock.wires.shared.request import Request

PAGE = (Path(__file__).parents[2] / "docs" / "structured-output.md").read_text(encoding="utf-8")
HEAD, *ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split("|")]
    for line in re.findall(r"^\|.*\|$", PAGE, re.MULTILINE)
    if "---" not in line
]
CELLS = [(row[1], column, form) for row in ROWS for column, form in zip(HEAD[2:], row[2:], strict=True)]
FORMATS = {
    "openai-chat": ("response_format", "json_schema", "schema"),
    "openai-responses": ("text", "format", "schema"),
    "anthropic": ("output_config", "format", "schema"),
    "gemini": ("generationConfig", "responseJsonSchema"),
    "gemini-interactions": ("response_format", "schema"),
    "ollama": ("format",),
    "cohere": ("response_format", "json_schema"),
    "bedrock": ("outputConfig", "textFormat", "structure", "jsonSchema", "schema"),
}
"""Where the schema of a response format is in the body of a request."""


@dataclass
class City:
    """A city."""

    name: str
    people: int


@dataclass
class Scores:
    """Scores by name: an object with arbitrary fields."""

    name: str
    people: int
    scores: dict[str, int] = field(default_factory=dict)


@penstock.tool(read_only=True)
def look(name: str) -> str:
    """Look a city up."""
    return f"{name} is large"


def format_in(wire: str, body: Any) -> Any:
    """What holds the schema of the response format of a request; None if there is none."""
    *path, last = FORMATS[wire]
    for key in path:
        body = body.get(key) if isinstance(body, dict) else None
    return body if isinstance(body, dict) and last in body else None


def form_of(request: ReceivedRequest, wire: str) -> str:
    """The form in which a request asks for output, in the words of the page."""
    text = json.dumps(request.body, ensure_ascii=False)
    shows_schema = "matches this JSON Schema" in text
    if f'"{OUTPUT_TOOL}"' in text:
        return "final tool"
    format = format_in(wire, request.body)
    if format is None:
        return "prompt" if shows_schema else "none"
    if shows_schema:
        return "grammar"
    return "native, not strict" if format.get("strict") is False else "native"


class Provider:
    """Answers as a model does that was asked in a form: a call if there are tools, wrong output, right output."""

    def __init__(self, form: str, uses_tool: bool) -> None:
        self._is_tool = form == "final tool"
        replies = [*([self._call(form)] if uses_tool else []), self._reply("many"), self._reply(3_000_000)]
        self._replies = replies * 2  # for a sync and an async run

    def __call__(self, request: ReceivedRequest) -> Reply:
        return self._replies.pop(0)

    def _call(self, form: str) -> Reply:
        arguments = {"name": "Rome"}
        if form == "prompt":
            return Reply(f'<tool_call>\n{{"name": "look", "arguments": {json.dumps(arguments)}}}\n</tool_call>')
        return Reply("I look.", call("look", arguments))

    def _reply(self, people: Any) -> Reply:
        output = {"name": "Rome", "people": people, "scores": {}}
        if self._is_tool:
            return Reply(call(OUTPUT_TOOL, output), seed=3)
        return Reply(json.dumps(output), seed=3)


def settings(example: str) -> tuple[str, dict[str, Any]]:
    """The model of a row, and the settings of its agent."""
    if example.startswith("calls="):
        return "openai:gpt-5", {"calls": example.removeprefix("calls=").strip('"')}
    return example, {}


def model_of(example: str, base_url: str, **options: Any) -> Model:
    """The model of a row, which may name its wire after a comma."""
    name, _, wire = example.partition(", wire=")
    return Model(name, base_url=base_url, api_key="-", wire=wire_name(wire.strip('"')) if wire else None, **options)


async def _aread(agent: Agent[Any, Any]) -> tuple[list[StreamEvent], Any]:
    async with agent.astream("How large is Rome?") as run:
        return [event async for event in run], run


def _read(agent: Agent[Any, Any]) -> tuple[list[StreamEvent], Any]:
    with agent.stream("How large is Rome?") as run:
        return list(run), run


@pytest.mark.parametrize(("example", "column", "form"), CELLS, ids=lambda value: str(value).replace(" ", "-"))
def test_each_cell_of_the_table_holds_on_a_strict_server(example: str, column: str, form: str) -> None:
    kind: Any = Scores if "dict" in column else City
    tools = [look] if column == "beside tools" else []
    name, options = settings(example)
    with Loopback(Provider(form, uses_tool=bool(tools)), strict=True) as server:
        wire = model_of(name, "http://localhost").wire
        place = "mistral" if name.startswith("mistral") else wire
        agent: Agent[Any, Any] = Agent(model_of(name, server.base_url(place)), tools, output=kind, **options)
        events, run = _read(agent)
        _check(kind, events, run)
        assert {form_of(request, wire) for request in server.requests} == {form}
        _check(kind, *asyncio.run(_aread(agent)))
        assert {form_of(request, wire) for request in server.requests} == {form}


def _check(kind: Any, events: list[StreamEvent], run: Any) -> None:
    assert run.finish_reason == "answered", run.done
    assert run.output == kind("Rome", 3_000_000)
    assert [event.problem for event in events if isinstance(event, OutputInvalid)] == [
        '`people`: expected an integer, got "many"'
    ]
    pieces = [event.piece for event in events if isinstance(event, OutputDelta) and event.path == ("name",)]
    assert "".join(pieces) == "RomeRome"
    assert run.partial["people"] == 3_000_000
    assert penstock.check(run.messages) == []
    assert not any(message.tool_calls and message.tool_calls[0].name == OUTPUT_TOOL for message in run.messages)


def test_the_table_has_every_wire() -> None:
    assert {row[0].split("`")[0].strip("`, ") for row in ROWS} >= set(WIRES)


@pytest.mark.parametrize("wire", WIRES)
def test_each_wire_chooses_a_form(wire: str) -> None:
    request = Request(model="some-model", messages=(), output=OutputDeclaration("o", {"type": "object"}))
    assert find_output_form(wire)(request, frozenset()) in ("native", "grammar", "tool")


def find(city: str) -> str:
    """Find a city."""
    return f"{city} is in Italy"


@pytest.mark.parametrize("tools", [[], [find]], ids=["no tools", "tools"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_simulated_model_answers_with_the_output_that_it_is_asked_for(wire: WireName, tools: list[Any]) -> None:
    result = Agent(Model("sim:fast", wire=wire), tools=tools, output=City).run("Find the city Rome.")
    assert result.output.name == "Rome"
    assert sum(message.role == "tool" for message in result.messages) == len(tools)


EXAMPLES = {
    "openai-responses": "openai:gpt-5", "openai-chat": "openai-compatible:m", "anthropic": "anthropic:claude-opus-4-6",
    "gemini": "google:gemini-3-pro", "ollama": "ollama:qwen3", "cohere": "cohere:command-a",
    "bedrock": "bedrock:anthropic.claude-sonnet-4-5", "gemini-interactions": "google:gemini-3-pro",
}  # fmt: skip
FORMS = {"tool": "final tool", "prompt": "prompt", "native": "native"}


@pytest.mark.parametrize("choice", FORMS)
@pytest.mark.parametrize("wire", FORMATS)
def test_the_caller_may_choose_the_form(wire: str, choice: Any) -> None:
    name = EXAMPLES[wire]
    if choice == "native" and wire != "openai-chat":
        with pytest.raises(penstock.UsageError, match="is for Chat Completions"):
            Model(name, output_form=choice, wire=wire_name(wire))
        return
    script = Scripted(Provider(FORMS[choice], uses_tool=False), strict=True)
    model = Model(name, via=script, api_key="k", output_form=choice, wire=wire_name(wire))
    assert Agent(model, [look], output=City).run("How large is Rome?").output == City("Rome", 3_000_000)
    assert {form_of(request, wire) for request in script.requests} == {FORMS[choice]}
    assert not model.is_plain


OBJECT_ARGUMENTS = ("gemini", "ollama")
"""Wires whose calls have JSON objects as arguments, which cannot be broken."""


@pytest.mark.parametrize("tools", [[], [look]], ids=["no tools", "tools"])
@pytest.mark.parametrize("choice", [None, "tool", "prompt"])
@pytest.mark.parametrize("wire", FORMATS)
def test_a_union_with_text_takes_members_and_prose_but_no_broken_object(
    wire: str, choice: Any, tools: list[Any]
) -> None:
    def answer(text: str) -> Any:
        """The output after an answer, by a call of the final tool if there is one; None if the model is asked again."""

        def reply(request: ReceivedRequest) -> Reply:
            if len(script.requests) > 1:
                return Reply("Enough.")
            is_object = text.startswith("{") and form_of(request, wire) == "final tool"
            return Reply(call(OUTPUT_TOOL, text)) if is_object else Reply(text)

        script = Scripted(reply)
        model = Model(EXAMPLES[wire], via=script, api_key="k", output_form=choice, wire=wire_name(wire))
        result = Agent(model, tools, output=City | str).run("How large is Rome?")
        return result.output if len(script.requests) == 1 else None

    rome = City("Rome", 3_000_000)
    assert answer('{"value": {"name": "Rome", "people": 3000000}}') == rome
    assert answer('{"name": "Rome", "people": 3000000}') == rome
    assert answer('{"value": "Which Rome?"}') == "Which Rome?"
    assert answer("Which Rome?") == "Which Rome?"
    assert answer('{"name": "Rome", "people": "many"}') is None
    if wire not in OBJECT_ARGUMENTS:
        assert answer('{"value": {"name": "Rome", "people": 3000') is None
        assert answer('{"name": "Rome", "people": 3000') is None


def test_a_form_that_does_not_exist_is_refused() -> None:
    with pytest.raises(penstock.UsageError, match="output_form must be 'native', 'tool', 'prompt' or None, not 'json'"):
        Model("openai:gpt-5", output_form="json")  # type: ignore[arg-type]
