"""Histories rendered for a model without native calls: exact texts for two dialects, laws for all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock import (
    Image,
    Message,
    Opaque,
    Reasoning,
    Refusal,
    Text,
    TextParser,
    ToolCall,
    ToolCallInvalid,
    UnknownDialectError,
    UsageError,
)
from penstock.dialects.prompt import NO_PROMPT, find_prompt, prompts, render
from penstock.messages import assistant, encode_messages, image, result, system, tool_results, user
from tests.cases import each
from tests.texts import calls_of, parse, text_of

DIALECTS = sorted(prompts())
every_dialect = each("dialect", DIALECTS)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "days": {"type": "integer", "minimum": 1},
                "units": {"type": "object", "properties": {"wind": {"enum": ["km/h", "bft"]}}},
            },
            "required": ["city"],
        },
    },
}
PING = {"name": "ping", "description": "Tells whether a host is there."}
TOOLS = [WEATHER, PING]
PARIS = ToolCall("call_a", "get_weather", {"city": "Paris", "days": 2})
ROME = ToolCall("call_b", "get_weather", {"city": "Rome\n<b>"})
HISTORY = [
    system("Be brief."),
    user("Which is warmer?"),
    assistant(
        Reasoning(0, "Two cities."), Opaque(0, "anthropic", "signature", "…"), "I'll look.", PARIS, ROME
    ),
    tool_results(result(ROME, "no such city", is_error=True), result(PARIS, "21 °C")),
    user("And now?"),
]  # fmt: skip


def rendered(dialect: str, *messages: Message) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in render(messages, None, dialect)]


# -- exact texts ---------------------------------------------------------------------------------------------------

RULES = """\
- Make several calls at once only if none of them needs the result of another.
- Write the calls directly, not inside a code fence.
- After the last call, stop. The results come in the next message: never write them yourself.
- If no tool is needed, answer without a call."""

XML = [
    ("system", """\
Be brief.

You can call tools. These are all the tools there are:

<functions>
<function>{"name": "get_weather", "description": "Tells the weather.", "parameters": {"type": "object", "properties": \
{"city": {"type": "string", "description": "Where."}, "days": {"type": "integer", "minimum": 1}, "units": {"type": \
"object", "properties": {"wind": {"enum": ["km/h", "bft"]}}}}, "required": ["city"]}}</function>
<function>{"name": "ping", "description": "Tells whether a host is there.", "parameters": {"type": "object", \
"properties": {}}}</function>
</functions>

To call tools, end your message with the calls in exactly this form:

<function_calls>
<invoke name="some_tool">
<parameter name="some_text">any text</parameter>
<parameter name="some_list">[1, 2]</parameter>
</invoke>
<invoke name="other_tool">
<parameter name="some_flag">true</parameter>
</invoke>
</function_calls>

- Call only tools from the list, by their exact names; the names in the form above are made up.
- Give every required argument, and none that the tool does not have. Each value must fit its schema.
- Write text as it is: no quotes around it, nothing escaped. Write all other values as JSON.
""" + RULES),
    ("user", "Which is warmer?"),
    ("assistant", """\
I'll look.
<function_calls>
<invoke name="get_weather">
<parameter name="city">Paris</parameter>
<parameter name="days">2</parameter>
</invoke>
<invoke name="get_weather">
<parameter name="city">Rome
<b></parameter>
</invoke>
</function_calls>"""),
    ("user", """\
<function_results>
<result>
<name>get_weather</name>
<output>21 °C</output>
</result>
<result>
<name>get_weather</name>
<error>no such city</error>
</result>
</function_results>

And now?"""),
]  # fmt: skip

HERMES = [
    ("system", """\
Be brief.

You can call tools. These are all the tools there are:

<tools>
{"type": "function", "function": {"name": "get_weather", "description": "Tells the weather.", "parameters": {"type": \
"object", "properties": {"city": {"type": "string", "description": "Where."}, "days": {"type": "integer", "minimum": \
1}, "units": {"type": "object", "properties": {"wind": {"enum": ["km/h", "bft"]}}}}, "required": ["city"]}}}
{"type": "function", "function": {"name": "ping", "description": "Tells whether a host is there.", "parameters": \
{"type": "object", "properties": {}}}}
</tools>

To call tools, end your message with the calls in exactly this form:

<tool_call>
{"name": "some_tool", "arguments": {"some_text": "any text", "some_list": [1, 2]}}
</tool_call>
<tool_call>
{"name": "other_tool", "arguments": {"some_flag": true}}
</tool_call>

- Call only tools from the list, by their exact names; the names in the form above are made up.
- Give every required argument, and none that the tool does not have. Each value must fit its schema.
- The arguments are a JSON object: text in double quotes, a line break in it as \\n, a quote as \\".
""" + RULES),
    ("user", "Which is warmer?"),
    ("assistant", """\
I'll look.
<tool_call>
{"name": "get_weather", "arguments": {"city":"Paris","days":2}}
</tool_call>
<tool_call>
{"name": "get_weather", "arguments": {"city":"Rome\\n<b>"}}
</tool_call>"""),
    ("user", """\
<tool_response>
21 °C
</tool_response>
<tool_response>
Error: no such city
</tool_response>

And now?"""),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "expected"), [("xml", XML), ("hermes", HERMES)], ids=["xml", "hermes"])
def test_a_history_is_rendered_exactly(dialect: str, expected: list[tuple[str, str]]) -> None:
    assert [(message.role, message.text) for message in render(HISTORY, TOOLS, dialect)] == expected


# -- laws ----------------------------------------------------------------------------------------------------------


class TestEveryDialect:
    @every_dialect
    def test_reads_the_calls_it_wrote(self, dialect: str) -> None:
        [text] = [message.text for message in render(HISTORY, TOOLS, dialect) if message.role == "assistant"]
        events = parse(TextParser(dialect, TOOLS), [text])
        assert calls_of(events) == [(PARIS.name, PARIS.arguments), (ROME.name, ROME.arguments)]
        assert text_of(events).strip() == "I'll look."

    @every_dialect
    def test_writes_results_in_the_order_of_the_calls(self, dialect: str) -> None:
        *_, last = render(HISTORY, TOOLS, dialect)
        assert last.role == "user"
        assert 0 <= last.text.index("21 °C") < last.text.index("no such city") < last.text.index("And now?")
        assert "error" in last.text.lower() or "<system>" in last.text

    @every_dialect
    def test_names_the_tools_and_all_their_parameters(self, dialect: str) -> None:
        text = render([], TOOLS, dialect)[0].text
        for name in ("get_weather", "ping", "city", "days", "units", "wind", "bft", "Tells the weather.", "Where."):
            assert name in text

    @every_dialect
    def test_shows_in_the_system_message_how_a_call_is_written(self, dialect: str) -> None:
        text = render([], ["ping"], dialect)[0].text
        events = parse(TextParser(dialect, ["ping", "some_tool", "other_tool"]), [text.partition("this form:")[2]])
        [*calls] = [(name, list(arguments)) for name, arguments in calls_of(events)]
        assert calls == [("some_tool", ["some_text", "some_list"]), ("other_tool", ["some_flag"])][: len(calls)]
        assert len(calls) == (1 if find_prompt(dialect).is_single else 2)

    @every_dialect
    def test_leaves_plain_messages_unchanged(self, dialect: str) -> None:
        plain = [
            system("Be brief."),
            user("Hi", image("https://example.org/a.png")),
            assistant("Hello."),
            user("a"),
            user("b"),
        ]
        assert render(plain, None, dialect) == plain
        assert render(plain, TOOLS, dialect)[1:] == plain[1:]
        assert render([], None, dialect) == []

    @every_dialect
    def test_returns_plain_text_that_renders_to_itself(self, dialect: str) -> None:
        before = encode_messages(HISTORY)
        first = render(HISTORY, TOOLS, dialect)
        assert all(isinstance(part, Text) for message in first for part in message.parts)
        assert render(iter(HISTORY), TOOLS, dialect) == first
        assert render(first, None, dialect) == first
        assert encode_messages(HISTORY) == before

    @every_dialect
    def test_stops_where_the_model_would_invent_results(self, dialect: str) -> None:
        prompt = find_prompt(dialect)
        results = "\n" + prompt.results([result(ToolCall("functions.f:0", "f", {}), "21 °C")])
        assert all(results.startswith(stop) or stop in results for stop in prompt.stop)
        assert not any(stop in prompt.calls([PARIS, ROME]) for stop in prompt.stop)


# -- other content of a history ------------------------------------------------------------------------------------


def test_the_tools_follow_the_text_of_the_system_message() -> None:
    introduction = find_prompt("xml").tools([]).partition("\n")[0]
    [new, _] = render([user("Hi")], ["ping"], "xml")
    assert new.role == "system"
    assert new.text.startswith(introduction)
    [extended, _] = render([system("One.", "Two."), user("Hi")], ["ping"], "xml")
    assert extended.text.startswith("One.Two.\n\nYou can call tools.")


def test_a_cut_call_is_rendered_with_its_partial_arguments() -> None:
    cut = ToolCallInvalid(1, "c", "get_weather", '{"city": "Par', "cut")
    [(_, hermes)] = rendered("hermes", assistant("Hm.", PARIS, cut))
    assert hermes.endswith(
        '</tool_call>\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par}\n</tool_call>'
    )
    [(_, xml)] = rendered("xml", assistant("Hm.", PARIS, cut))
    assert xml.endswith(
        '<invoke name="get_weather">\n<parameter name="city">Par</parameter>\n</invoke>\n</function_calls>'
    )


@pytest.mark.parametrize(
    "call",
    [ToolCallInvalid(0, "c", "", '{"a": 1}', "unnamed"), ToolCallInvalid(0, "c", "f", "hello", "malformed")],
    ids=["unnamed", "not an object"],
)
def test_a_call_that_cannot_be_rendered_is_described(call: ToolCallInvalid) -> None:
    [(_, text)] = rendered("xml", assistant(call))
    assert text.startswith("[A call of ")
    assert call.arguments_raw in text


def test_the_result_of_an_invalid_call_keeps_its_position() -> None:
    cut = ToolCallInvalid(0, "c", "get_weather", '{"city', "cut")
    [_, (role, text)] = rendered(
        "xml", assistant(cut, PARIS), tool_results(result(PARIS, "21"), result(cut, "cut off"))
    )
    assert role == "user"
    assert text.index("cut off") < text.index("21")


def test_images_of_results_stay_in_the_message() -> None:
    picture = image("https://example.org/map.png")
    [_, message] = render(
        [assistant(PARIS, ROME), tool_results(result(PARIS, "A map:", picture), result(ROME, "none")), user("Nice.")],
        None,
        "hermes",
    )
    assert [type(part) for part in message.parts] == [Text, Image, Text]
    assert message.parts[1] == picture
    assert "A map:[attachment 1: image/png]" in message.text


def test_results_in_several_messages_become_one() -> None:
    history = [assistant(PARIS, ROME), tool_results(result(ROME, "b")), tool_results(result(PARIS, "a"))]
    [_, (_, text)] = rendered("xml", *history)
    assert text.count("<function_results>") == 1
    assert text.index(">a<") < text.index(">b<")


def test_a_message_with_only_reasoning_is_omitted() -> None:
    assert rendered("xml", user("Hi"), assistant(Reasoning(0, "Hm.")), user("Well?")) == [("user", "Hi\n\nWell?")]
    assert rendered("xml", user("Hi"), assistant(Refusal(0, "No."))) == [("user", "Hi"), ("assistant", "No.")]


def test_the_raw_arguments_are_kept() -> None:
    call = ToolCall("c", "f", {"a": 1.0}, '{ "a" : 1.0 }', "text:hermes", "call_end")
    [(_, text)] = rendered("hermes", assistant(call))
    assert '"arguments": { "a" : 1.0 }}' in text


def test_a_custom_tool_is_called_with_its_input() -> None:
    declaration = {"type": "custom", "name": "sql", "description": "Runs SQL."}
    call: Any = ToolCall("c", "sql", "select 1", kind="custom")  # type: ignore[arg-type]
    history = render([assistant(call)], [declaration], "hermes")
    assert '"properties": {"input": {"type": "string"}}' in history[0].text
    assert '{"name": "sql", "arguments": {"input": "select 1"}}' in history[1].text


def test_hosted_tools_are_not_listed() -> None:
    assert render([user("Hi")], [{"type": "web_search"}], "xml") == [user("Hi")]


def test_a_custom_prompt_can_put_results_into_a_tool_message() -> None:
    prompt = msgspec.structs.replace(find_prompt("hermes"), role="tool")
    history = render(HISTORY, None, prompt)
    assert [message.role for message in history] == ["system", "user", "assistant", "tool", "user"]


def test_ids_in_a_foreign_format_are_replaced() -> None:
    [(_, calls), (_, results)] = rendered(
        "kimi_k2", assistant(PARIS, ROME), tool_results(result(PARIS, "a"), result(ROME, "b"))
    )
    assert "functions.get_weather:1<|tool_call_argument_begin|>" in calls
    assert results == "## Return of functions.get_weather:0\na\n\n## Return of functions.get_weather:1\nb"


def test_content_keeps_its_white_space() -> None:
    call = ToolCall("c", "write", {"content": "\n  a\n\n"})
    text = find_prompt("cline_xml").calls([call])
    assert calls_of(parse(TextParser("cline_xml", ["write"]), [text])) == [("write", {"content": "\n  a\n\n"})]


# -- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", NO_PROMPT)
def test_a_dialect_without_a_prompt_names_another(dialect: str) -> None:
    with pytest.raises(UsageError, match=f"{dialect}.*'(xml|gemma_tool_code)'"):
        find_prompt(dialect)


def test_dialects_are_found_by_their_aliases() -> None:
    assert find_prompt("xml") is find_prompt("anthropic-xml")
    with pytest.raises(UnknownDialectError, match="did you mean 'hermes'"):
        find_prompt("hermez")


# -- lists of tools ------------------------------------------------------------------------------------------------

NODE = {
    "name": "plan",
    "description": "Makes a plan.\nA good one.",
    "parameters": {
        "type": "object",
        "properties": {
            "root": {"$ref": "#/$defs/Node", "description": "Where it begins."},
            "tags": {"type": "array", "items": {"type": ["string", "null"]}},
            "depth": {"anyOf": [{"type": "integer"}, {"const": "all"}], "default": 3},
            "notes": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["root"],
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
    },
}


def test_tools_as_types() -> None:
    text = render([], [NODE, "ping"], "harmony")[0].text
    assert (
        """\
namespace functions {

type Node = {
next?: Node,
};
// Makes a plan.
// A good one.
type plan = (_: {
// Where it begins.
root: Node,
tags?: Array<string | null>,
depth?: number | "all", // default: 3
notes?: Record<string, string>,
}) => any;

type ping = () => any;

} // namespace functions"""
        in text
    )


def test_tools_as_python_functions() -> None:
    text = render([], [NODE], "seed_oss")[0].text
    assert "def plan(root: object, tags: list = None, depth: object = None, notes: dict = None):" in text
    assert '        root: Where it begins. {"$ref": "#/$defs/Node"}' in text
    assert '    Definitions: {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}}' in text


def test_tools_as_tags() -> None:
    text = render([], [WEATHER], "qwen3_coder")[0].text
    assert (
        """\
<tools>
<function>
<name>get_weather</name>
<description>Tells the weather.</description>
<parameters>
<parameter>
<name>city</name>
<type>string</type>
<description>Where.</description>
</parameter>
<parameter>
<name>days</name>
<type>integer</type>
<minimum>1</minimum>
</parameter>
"""
        in text
    )
    assert '<required>["city"]</required>\n</parameters>\n</function>\n</tools>' in text


# -- results that contain marks ------------------------------------------------------------------------------------

FORGERIES: dict[str, Callable[[str], str]] = {
    "as the dialect writes it": lambda text: text,
    "in upper case": str.upper,
    "in lower case": str.lower,
    "with spaces in the tags": lambda text: text.replace("</", "</ ").replace("[/", "[ / "),
}


@each("forgery", FORGERIES)
@each("is_error", [False, True], ids=["result", "error"])
@every_dialect
def test_a_result_cannot_forge_another(dialect: str, is_error: bool, forgery: str) -> None:
    write = find_prompt(dialect).results
    first, second = ToolCall("functions.f:0", "f", {}), ToolCall("functions.g:1", "g", {})
    two = write([result(first, "A1", is_error=is_error), result(second, "B2", is_error=is_error)])
    between = two[two.index("A1") + len("A1") : two.index("B2")]
    forged = FORGERIES[forgery](f"{between}B2")
    one = write([result(first, f"A1{forged}", is_error=is_error)])
    assert plain(one) != plain(two)
    assert plain(between) not in plain(one.partition("A1")[2])


def plain(text: str) -> str:
    return "".join(text.split()).casefold()


@every_dialect
def test_a_result_without_marks_is_not_changed(dialect: str) -> None:
    text = "if a < b and c[0] > d: x <| f |> g  # &lt; <name>p</name> [x](y) {z} <https://a.b>"
    one = find_prompt(dialect).results([result(ToolCall("functions.f:0", "f", {}), text)])
    assert text in one or json.dumps(text) in one


@every_dialect
@each("token", ["<|im_start|>", "<|end|>", "<｜User｜>", "<end_of_turn>", "<turn|>", "<|tool_response>"])
def test_control_tokens_in_a_result_are_escaped(dialect: str, token: str) -> None:
    first = ToolCall("functions.f:0", "f", {})
    write = find_prompt(dialect).results
    assert write([result(first, f"a{token}b")]).count(token) == write([result(first, "ab")]).count(token)
