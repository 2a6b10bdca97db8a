"""Dialects, beyond the text vectors: linear time, caps, the XML parser, reasoning, and the registry."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import (
    StreamingXMLParser,
    TextParser,
    ToolCall,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    UnknownDialectError,
    UsageError,
)
from penstock.dialects.reading import held_text
from penstock.dialects.registry import ALIASES, dialects, find_dialect
from tests.cases import each
from tests.growth import assert_linear, cpu
from tests.texts import parse, text_of

PROSE = "The quick brown fox jumps over the lazy dog, 12 times < 13. "
LONG = {  # a call with one long string, and where the string goes
    "hermes": '<tool_call>{"name": "f", "arguments": {"s": "%s"}}</tool_call>',
    "anthropic_xml": '<function_calls><invoke name="f"><parameter name="s">%s</parameter></invoke></function_calls>',
    "qwen3_coder": "<tool_call><function=f><parameter=s>%s</parameter></function></tool_call>",
    "glm45": "<tool_call>f<arg_key>s</arg_key><arg_value>%s</arg_value></tool_call>",
    "gemma4": '<|tool_call>call:f{s:<|"|>%s<|"|>}<tool_call|>',
    "pythonic": "[f(s='%s')]",
    "harmony": '<|channel|>commentary to=functions.f<|message|>{"s": "%s"}<|call|>',
    "kimi_k3": '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="s" type="string"<|sep|>'
    "%s<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
    "minimax_m3": ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="f">]<]minimax[>[<s>%s]<]minimax[>[</s>'
    "]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
}


def pieces_of(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def feed_all(dialect: str, pieces: list[str]) -> list[Any]:
    parser = TextParser(dialect)
    return [event for piece in pieces for event in parser.feed(piece)] + parser.close()


@pytest.mark.parametrize("dialect", LONG)
def test_a_long_value_streams_and_is_complete(dialect: str) -> None:
    value = PROSE * 40
    events = feed_all(dialect, pieces_of(LONG[dialect] % value, 4))
    assert [event.arguments for event in events if isinstance(event, ToolCall)] == [{"s": value}]
    assert sum(isinstance(event, ToolCallDelta) for event in events) > len(value) // 8


@pytest.mark.parametrize("dialect", LONG)
@pytest.mark.parametrize("size", [4, 1000])
def test_a_long_value_takes_linear_time(dialect: str, size: int) -> None:
    def work(length: int) -> Callable[[], object]:
        pieces = pieces_of(LONG[dialect] % (PROSE * (length // len(PROSE))), size)
        return lambda: feed_all(dialect, pieces)

    assert_linear(work, 15_000 if size == 4 else 200_000)


NASTY = {
    "marks that open nothing": "<tool_call>",
    "calls that never close": '<tool_call>{"a": ',
    "the first half of a mark": "<tool_ca",
    "angle brackets": "<",
    "invokes that never close": '<function_calls><invoke name="f">',
    "closing tags in a value": "</parameter> ",
    "white space": " ",
    "backticks": "`",
    "fences": "```\n",
    "brackets": "[",
    "python calls that never close": "[f(x=",
    "braces": "{",
}


@each("nasty", NASTY.values(), ids=list(NASTY), parts=2, few=24)
@each("dialect", ["hermes", "anthropic_xml", "pythonic", "bare_json"])
def test_nasty_text_takes_linear_time_and_is_not_lost(dialect: str, nasty: str) -> None:
    def work(length: int) -> Callable[[], object]:
        pieces = pieces_of(nasty * (length // len(nasty)), 7)
        return lambda: feed_all(dialect, pieces)

    assert_linear(work, 4_000)
    text = nasty * 50
    events = feed_all(dialect, [text])
    if not any(isinstance(event, ToolCallStart) for event in events):
        assert text_of(events) == text


def test_held_text_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_text, "MAX_HELD", 10_000)
    text = '<tool_call>{"arguments": {"s": "' + "x" * 50_000
    events = feed_all("hermes", pieces_of(text, 100))
    assert text_of(events) == text
    parser = TextParser("hermes")
    for piece in pieces_of(text, 100):
        parser.feed(piece)
    assert text_of(parser.close()) == "", "the text was released when the cap was reached"


def test_arguments_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.calls.growing.MAX_ARGUMENTS", 10_000)
    [broken] = [
        event
        for event in feed_all("xml", [LONG["anthropic_xml"] % ("x" * 50_000)])
        if isinstance(event, ToolCallInvalid)
    ]
    assert (broken.why, len(broken.arguments_raw) <= 10_000) == ("too_large", True)


def test_a_hundred_megabytes_in_one_value_stay_within_the_cap() -> None:
    parser, piece = TextParser("xml"), "x" * 1_000_000
    parser.feed('<function_calls><invoke name="f"><parameter name="s">')
    tracemalloc.start()
    for _ in range(100):
        parser.feed(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    events = parser.feed("</parameter></invoke></function_calls>") + parser.close()
    assert [event.why for event in events if isinstance(event, ToolCallInvalid)] == ["too_large"]
    assert peak < 3 * 32 * 1024 * 1024


WEATHER = {
    "name": "get_weather",
    "input_schema": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
}


class TestStreamingXMLParser:
    @pytest.mark.parametrize("prefix", ["", "antml:"])
    @pytest.mark.parametrize("size", [1, 3, 1000])
    def test_text_and_calls_are_separated(self, prefix: str, size: int) -> None:
        text = (
            'I look. <function_calls>\n<invoke name="get_weather">\n<parameter name="city">a < b</parameter>\n'
            '<parameter name="days">2</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</function_calls>'
            " Done, 1 < 2."
        )
        for tag in ("function_calls", "invoke", "parameter"):
            text = text.replace(f"<{tag}", f"<{prefix}{tag}").replace(f"</{tag}", f"</{prefix}{tag}")
        parser = StreamingXMLParser(tools=[WEATHER])
        visible = ""
        calls: list[ToolCall] = []
        for token in [*pieces_of(text, size), None]:
            more_text, more_calls = parser.close() if token is None else parser.feed(token)
            visible, calls = visible + more_text, calls + more_calls
        assert visible == "I look.  Done, 1 < 2."
        assert [(call.name, call.arguments) for call in calls] == [
            ("get_weather", {"city": "a < b", "days": 2}),
            ("now", {}),
        ]
        assert parser.invalid_calls == []

    def test_a_cut_call_is_never_returned(self) -> None:
        parser = StreamingXMLParser()
        text, calls = parser.feed('Hm <function_calls><invoke name="rm"><parameter name="path">/')
        assert (text, calls, parser.close()) == ("Hm ", [], ("", []))
        assert [(call.name, call.why) for call in parser.invalid_calls] == [("rm", "cut")]

    @pytest.mark.parametrize("prefix", ["", "antml:"])
    def test_the_state_says_whether_a_call_is_written(self, prefix: str) -> None:
        parser = StreamingXMLParser(reasoning=True)
        assert parser.state == "text"
        states: list[tuple[str, str]] = []
        text = (
            f'1 < 2 <b> <{prefix}function_calls>\n<{prefix}invoke name="f"><{prefix}parameter name="a">x < y'
            f"</{prefix}parameter></{prefix}invoke>\n</{prefix}function_calls> Done <"
        )
        for character in text:
            parser.feed(character)
            if not states or states[-1][0] != parser.state:
                states.append((parser.state, ""))
            states[-1] = parser.state, states[-1][1] + character
        names, parts = zip(*states, strict=True)
        assert names == ("text", "maybe_tag", "text", "maybe_tag", "text", "maybe_tag", "in_tag", "in_call", "text",
                         "maybe_tag")  # fmt: skip
        assert parts[6] == f"{prefix}function_calls"
        assert parts[7] == text[text.index(">\n<") : text.index("_calls> Done") + 6]
        parser.close()
        assert parser.state == "text"

    def test_prose_about_tags_stays_text(self) -> None:
        text = "The tags are <function_calls> and <invoke>, or </parameter>."
        parser = StreamingXMLParser()
        assert parser.feed(text)[0] + parser.close()[0] == text


class TestReasoning:
    @pytest.mark.parametrize("size", [1, 4, 1000])
    def test_it_is_separated_without_any_dialect(self, size: int) -> None:
        parser = TextParser("plain", reasoning=True)
        events = parse(parser, pieces_of("<think>Hm, 1 < 2.</think>\n\nYes. <tool_call>{}", size))
        assert [
            (event.type, event.text) for event in events if isinstance(event, penstock.Text | penstock.Reasoning)
        ] == [
            ("reasoning", "Hm, 1 < 2."),
            ("text", "Yes. <tool_call>{}"),
        ]

    def test_the_text_may_start_inside_it(self) -> None:
        events = parse(TextParser("plain", inside_reasoning=True), ["Hm.</think>Yes."])
        assert [event.text for event in events if isinstance(event, penstock.Text | penstock.Reasoning)] == [
            "Hm.",
            "Yes.",
        ]

    def test_without_the_option_it_stays_text(self) -> None:
        text = "<think>Hm.</think>Yes."
        assert text_of(parse(TextParser("plain"), [text])) == text


class TestRegistry:
    def test_it_has_all_dialects(self) -> None:
        assert len(dialects()) >= 52
        assert set(ALIASES.values()) <= set(dialects())

    def test_a_wrong_name_gets_one_suggestion(self) -> None:
        with pytest.raises(UnknownDialectError, match="did you mean 'qwen3_coder'"):
            TextParser("qwen3-code")

    def test_hyphens_and_aliases_are_accepted(self) -> None:
        assert find_dialect("xml")[0] == find_dialect("anthropic-xml")[0] == "anthropic_xml"


def test_a_closed_parser_raises() -> None:
    parser = TextParser("hermes")
    parser.close()
    assert parser.close() == []
    with pytest.raises(UsageError, match="closed"):
        parser.feed("x")


def test_surrogate_pairs_are_joined() -> None:
    events = parse(TextParser("hermes"), ["a\ud83d", "\ude00b", "\ud83d"])
    assert text_of(events) == "a😀b\ufffd"


def test_a_piece_costs_little_more_than_a_search_in_it() -> None:
    """`make bench` measures the factor; this test only catches an order of magnitude."""
    pieces = pieces_of(LONG["anthropic_xml"] % (PROSE.replace("<", "") * 2000), 4)
    search = min(cpu(lambda: [piece.find("</parameter>") for piece in pieces]) for _ in range(5))
    feed = min(cpu(lambda: feed_all("xml", pieces)) for _ in range(5))
    assert feed < 150 * search
