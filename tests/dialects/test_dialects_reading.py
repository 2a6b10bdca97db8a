"""Reading calls, beyond the text vectors: how the text ended, how it is cut, and how long it may be."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock import Finish, Reasoning, StreamChunk, Text, TextCalls, TextParser, ToolCallInvalid
from penstock.declarations import read_declarations
from penstock.dialects.mark_table import KEPT_TABLES, mark_table
from penstock.dialects.prompts.listings import python_stubs
from penstock.events import FinishReason
from penstock.testing import Reply, Scripted, drop, say
from tests.budget import places
from tests.cases import each
from tests.growth import assert_linear
from tests.texts import TextVector, calls_of, cuttings, parse, text_of, text_vectors

# -- how the text ended --------------------------------------------------------------------------------------------

OPEN = {  # calls that only the end of the text ends
    "react": ("Thought: clean\nAction: run\nAction Input: rm -rf /tmp/wo", "run", "rm -rf /tmp/wo"),
    "functionary_v31": ('<|python_tag|>os.remove("a', "python", 'os.remove("a'),
    "functionary_v32": ('>>>python\nos.remove("a', "python", 'os.remove("a'),
}
CUT: list[FinishReason] = ["length", "cut", "error", "content_filter"]


def tool(name: str, kind: str = "string") -> dict[str, Any]:
    return {"name": name, "parameters": {"type": "object", "properties": {"what": {"type": kind}}}}


def staged(dialect: str, *endings: StreamChunk) -> list[StreamChunk]:
    text, name, _ = OPEN[dialect]
    stage = TextCalls(dialect, [tool(name)])
    return [out for event in (Text(0, text), *endings) for out in stage.feed(event)] + stage.close()


def invalid_of(events: list[StreamChunk]) -> list[tuple[str, str, str]]:
    return [(event.name, event.why, event.arguments_raw) for event in events if isinstance(event, ToolCallInvalid)]


@pytest.mark.parametrize("reason", CUT)
@pytest.mark.parametrize("dialect", OPEN)
def test_the_end_of_a_cut_text_does_not_end_a_call(dialect: str, reason: FinishReason) -> None:
    _, name, value = OPEN[dialect]
    events = staged(dialect, Finish(reason))
    assert calls_of(events) == []
    assert invalid_of(events) == [(name, "cut", '{"what":"' + value.replace('"', '\\"'))]


@pytest.mark.parametrize("dialect", OPEN)
def test_a_text_without_a_finish_was_cut(dialect: str) -> None:
    assert calls_of(staged(dialect)) == []


@pytest.mark.parametrize("ending", [Finish("stop"), Finish("tool_calls"), Finish("other"), Reasoning(1, "so")])
@pytest.mark.parametrize("dialect", OPEN)
def test_the_end_of_a_finished_text_ends_a_call(dialect: str, ending: StreamChunk) -> None:
    _, name, value = OPEN[dialect]
    assert calls_of(staged(dialect, ending)) == [(name, {"what": value})]


@pytest.mark.parametrize("dialect", OPEN)
def test_a_parser_can_be_closed_as_cut(dialect: str) -> None:
    text, name, value = OPEN[dialect]
    whole, broken = TextParser(dialect, [tool(name)]), TextParser(dialect, [tool(name)])
    assert calls_of(whole.feed(text) + whole.close()) == [(name, {"what": value})]
    assert calls_of(broken.feed(text) + broken.close(cut=True)) == []


def test_an_invalid_call_contains_a_cut_value_that_is_not_text() -> None:
    parser = TextParser("react", [tool("run", "integer")])
    events = parser.feed("Action: run\nAction Input: 12") + parser.close(cut=True)
    assert invalid_of(events) == [("run", "cut", '{"what":12')]


VECTORS = [vector for vector in text_vectors() if not vector.invalid]


@each("vector", VECTORS, ids=[f"{vector.dialect}: {vector.name}" for vector in VECTORS], parts=4)
def test_a_call_of_a_cut_text_is_a_call_of_the_whole_text(vector: TextVector) -> None:
    whole = calls_of(vector.parse([vector.input]))
    for end in places(len(vector.input), few=20):
        parser = TextParser(vector.dialect, vector.tools, vector.splits_reasoning, vector.starts_inside)
        calls = calls_of(parser.feed(vector.input[:end]) + parser.close(cut=True))
        assert calls == whole[: len(calls)], vector.input[:end]


@pytest.mark.parametrize("is_read_only", [True, False])
@pytest.mark.parametrize("ending", ["length", "drop", "clean drop"])
def test_an_agent_does_not_run_a_cut_call(ending: str, is_read_only: bool) -> None:
    ran: list[str] = []

    @penstock.tool(read_only=is_read_only)
    def run(what: str) -> str:
        """Runs a command."""
        ran.append(what)
        return "done"

    text = OPEN["react"][0]
    replies = {
        "length": Reply(text, finish="length"),
        "drop": Reply(say(text), drop()),
        "clean drop": Reply(say(text), drop(clean=True)),
    }
    model = penstock.Model("openai:gpt-5", via=Scripted([replies[ending], "I stop."]))
    penstock.Agent(model, tools=[run], calls="react").run("clean up")
    assert ran == []


# -- code ----------------------------------------------------------------------------------------------------------

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
CODE = ["`", "``", "```", "````", "~", "~~~", "\n", "\r\n", " ", "    ", "\t", "- ", "1. ", "> ", ":", "py", "a b",
        CALL, "<think>", "</think>", f"```json\n{CALL[11:-12]}\n```", "\nAction: f\nAction Input: {}\n"]  # fmt: skip


@pytest.mark.parametrize("dialect", ["hermes", "qwen3_coder", "md_json_fence", "react", "smol_code"])
@given(text=st.lists(st.sampled_from(CODE), max_size=12).map("".join), splits=st.booleans())
def test_events_do_not_depend_on_cuts_in_code(dialect: str, text: str, splits: bool) -> None:
    whole = parse(TextParser(dialect, ["f"], splits), [text])
    for pieces in cuttings(text):
        assert parse(TextParser(dialect, ["f"], splits), pieces) == whole, pieces


@given(text=st.lists(st.sampled_from(CODE[:17]), max_size=12).map("".join))
def test_a_text_without_calls_is_unchanged(text: str) -> None:
    assert text_of(parse(TextParser("hermes", ["f"]), [text])) == text


LINES = ["- ```py\n  x\n  ```\n", "a ```b``` ~ `c\n", "~~~\n`\n~~~\n", "`" + CALL + "\n", "> ```\n> x\n\n", "a: ```\n"]


@pytest.mark.parametrize("start", ["", "```\n", "> ~~~\n"])
@pytest.mark.parametrize("unit", LINES)
def test_code_takes_linear_time(unit: str, start: str) -> None:
    def work(length: int) -> Callable[[], object]:
        text = start + unit * (length // len(unit))
        pieces = [text[at : at + 4] for at in range(0, len(text), 4)]
        return lambda: parse(TextParser("hermes", ["f"]), pieces)

    assert_linear(work, 10_000)


# -- many ----------------------------------------------------------------------------------------------------------


def test_a_text_may_have_as_many_actions_as_a_response_has_calls() -> None:
    parser = TextParser("react", ["f"])
    events = parser.feed("Action: f\nAction Input: {}\n" * 1000) + parser.close()
    assert calls_of(events) == [("f", {})] * 1000


def test_many_actions_take_linear_time() -> None:
    def work(length: int) -> Callable[[], object]:
        text = "Action: f\nAction Input: {}\n" * (length // 26)
        return lambda: parse(TextParser("react", ["f"]), list(text))

    assert_linear(work, 2_500)


@pytest.mark.parametrize("depth", [2, 100, 982, 2000])
def test_objects_in_objects_are_read_to_a_depth_of_two(depth: int) -> None:
    text = "<tool_call>" + '{"function":' * depth + '{"name":"f"}' + "}" * depth
    assert text_of(parse(TextParser("hermes", ["f"]), [text])) == text


def test_an_invalid_call_contains_flat_arguments() -> None:
    text = '<tool_call>{"name": "f", "city": "Rome", "days": [1, 2]}</tool_call>'
    [invalid] = [event for event in parse(TextParser("hermes"), [text]) if isinstance(event, ToolCallInvalid)]
    assert invalid.arguments_raw == '{"city": "Rome", "days": [1, 2]}'
    assert invalid.repaired == {"city": "Rome", "days": [1, 2]}
    assert invalid.message == "write all arguments into one object; outside of it: 'city', 'days'"


def test_an_invalid_call_contains_an_argument_beside_the_others() -> None:
    text = '<tool_call>{"name": "f", "arguments": {}, "what": "Rome"}</tool_call>'
    [invalid] = [
        event for event in parse(TextParser("hermes", [tool("f")]), [text]) if isinstance(event, ToolCallInvalid)
    ]
    assert invalid.arguments_raw == '{}{"what": "Rome"}'
    assert invalid.message == "write all arguments into one object; outside of it: 'what'"


def test_repaired_arguments_contain_only_those_of_the_tool() -> None:
    text = '<tool_call>{"name": "f", "explanation": "I look", "what": "Rome"}</tool_call>'
    [invalid] = [
        event for event in parse(TextParser("hermes", [tool("f")]), [text]) if isinstance(event, ToolCallInvalid)
    ]
    assert invalid.repaired == {"what": "Rome"}
    assert invalid.message == "write all arguments into one object; outside of it: 'what'"


def test_a_field_that_is_too_long_to_be_compared_counts_as_different(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '<tool_call>{"name": "f", "arguments": {"what": null}, "note": "xxxxxxxx", "what": "Rome"}</tool_call>'
    monkeypatch.setattr("penstock.dialects.reading.call_objects.MAX_HELD", 5)
    assert calls_of(parse(TextParser("hermes", [tool("f")]), [text])) == []


def test_fields_beside_arguments_take_linear_time() -> None:
    def work(length: int) -> Callable[[], object]:
        fields = "".join(f', "a{number}": {number}' for number in range(length // 10))
        arguments = fields.removeprefix(", ")
        properties = {f"a{number}": {"type": "integer"} for number in range(length // 10)}
        tools = [{"name": "f", "parameters": {"type": "object", "properties": properties}}]
        text = f'<tool_call>{{"name": "f", "arguments": {{{arguments}}}{fields}}}</tool_call>'
        return lambda: parse(TextParser("hermes", tools), [text])

    assert_linear(work, 10_000)


def test_flat_arguments_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.dialects.reading.call_objects.MAX_HELD", 100)
    text = f'<tool_call>{{"name": "f", "a": "{"x" * 500}", "arguments": {{"b": 1}}}}</tool_call>'
    assert calls_of(parse(TextParser("hermes"), [text])) == [("f", {"b": 1})]
    pieces = list(text.replace('"arguments"', '"c"'))
    [invalid] = [event for event in parse(TextParser("hermes"), pieces) if isinstance(event, ToolCallInvalid)]
    assert len(invalid.arguments_raw) < 150


# -- prompts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("description", ['Say """hi""" to all.', '""""', 'Quote "it".'])
def test_quotes_in_a_description_do_not_end_it(description: str) -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "string", "description": description}}}
    tools = read_declarations([{"name": "f", "description": description, "parameters": parameters}])
    [function] = ast.parse(python_stubs(tools).removeprefix("```python\n").removesuffix("\n```")).body
    assert isinstance(function, ast.FunctionDef)
    docstring = ast.get_docstring(function) or ""
    assert docstring.startswith(description)
    assert docstring.count(description) == 2


# -- how much is kept for the next text ------------------------------------------------------------------------------


def test_marks_are_kept_for_a_limited_number_of_sets_of_tools() -> None:
    for number in range(2 * KEPT_TABLES):
        TextParser("cline_xml", [f"tool_{number}"]).feed("Hi.")
    assert mark_table.cache_info().currsize == KEPT_TABLES
    parser = TextParser("cline_xml", ["tool_0"])  # whose marks were dropped
    events = [*parser.feed("<tool_0><a>1</a></tool_0>"), *parser.close()]
    assert [name for name, _ in calls_of(events)] == ["tool_0"]
