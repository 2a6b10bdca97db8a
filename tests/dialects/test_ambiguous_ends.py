"""A raw value that contains the end tags of its call: half a call never runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import penstock
from penstock import Error, Text, TextParser, ToolCall, ToolCallClosed, ToolCallInvalid, ToolCallStart
from penstock.dialects.prompt import find_prompt
from penstock.dialects.reading import unconfirmed
from penstock.gateway import Healing
from penstock.testing import Raw, Reply, Scripted
from tests.asgi_client import serving
from tests.budget import places
from tests.gateways import chat, delta, events, gateway, sse, upstream
from tests.texts import calls_of, parse

DIALECTS = (
    "anthropic_xml", "anthropic_legacy", "cline_xml", "deepseek_dsml", "deepseek_dsml_v4", "dots", "glm45",
    "hunyuan_v3", "kimi_k3", "minicpm5", "minimax_m2", "minimax_m3", "qwen3_coder", "seed_oss", "step3",
)  # fmt: skip
CONTROL_TOKENS = {"deepseek_dsml", "deepseek_dsml_v4", "kimi_k3", "minimax_m3", "step3"}  # calls even in code
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}
TOOLS: list[Any] = [{"name": "save", "parameters": PARAMETERS}, {"name": "ping", "parameters": {"type": "object"}}]


def written(dialect: str) -> tuple[str, str]:
    """A call of `save`, up to its last value, and from the end of that value on."""
    call = ToolCall("functions.save:0", "save", {"path": "a.md", "content": "@@"})
    head, tail = find_prompt(dialect).calls([call]).split("@@")
    return head, tail


def ping(dialect: str) -> str:
    return find_prompt(dialect).calls([ToolCall("functions.ping:1", "ping", {})])


BETWEEN = {
    "text": " ends a call.",
    "nothing": "",
    "code": "` ends a call, as in `",
    "a fence": "\n```\nends a call.\n",
    "reasoning": " ends a call. <think>Hm",
    "closed reasoning": " ends a call. <think>Hm</think> so",
}


HEAD, TAIL = written("anthropic_xml")
HALF = f"{HEAD}use {TAIL} ends a call.{TAIL}"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("between", [*BETWEEN, "another call"])
@pytest.mark.parametrize("reasoning", [False, True])
def test_half_a_call_is_ambiguous_however_the_text_is_cut(dialect: str, between: str, reasoning: bool) -> None:
    head, tail = written(dialect)
    text = f"Here.\n{head}use {tail}{BETWEEN.get(between, f' ends. {ping(dialect)} does so.')}{tail} Done."
    whole = parse(TextParser(dialect, TOOLS, reasoning), [text])
    assert calls_of(whole) == []
    invalid = [event for event in whole if isinstance(event, ToolCallInvalid)]
    assert (invalid[0].name, invalid[0].why, invalid[0].repaired) == ("save", "ambiguous", None)
    assert parse(TextParser(dialect, TOOLS, reasoning), list(text)) == whole
    for end in places(len(text)):
        assert parse(TextParser(dialect, TOOLS, reasoning), [text[:end], text[end:]]) == whole
        parser = TextParser(dialect, TOOLS, reasoning)
        assert calls_of(parser.feed(text[:end]) + parser.close(cut=True)) == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_text_after_a_call_flows_at_once_and_the_end_of_the_text_confirms_the_call(dialect: str) -> None:
    head, tail = written(dialect)
    parser = TextParser(dialect, TOOLS)
    events = parser.feed(f"{head}use it{tail}\nSaved it")
    assert [type(event) for event in events if isinstance(event, ToolCallClosed | ToolCall)] == [ToolCallClosed]
    assert "".join(event.text for event in events if isinstance(event, Text)).strip() == "Saved it"
    [call] = parser.close()
    assert isinstance(call, ToolCall)
    assert call.arguments == {"path": "a.md", "content": "use it"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_right_after_it_confirms_a_call(dialect: str) -> None:
    head, tail = written(dialect)
    first = ToolCall("functions.save:0", "save", {"path": "a.md", "content": "use it"})
    both = find_prompt(dialect).calls([first, ToolCall("functions.ping:1", "ping", {})])
    for text in (both, f"{head}use it{tail}\n{ping(dialect)}"):
        ended = [type(event) for event in parse(TextParser(dialect, TOOLS), [text]) if not isinstance(event, Text)]
        ended = [kind for kind in ended if kind in (ToolCallStart, ToolCallClosed, ToolCall)]
        assert ended[:4] == [ToolCallStart, ToolCallClosed, ToolCall, ToolCallStart]
        assert ended.count(ToolCall) == 2


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_after_text_waits_for_the_calls_before_it(dialect: str) -> None:
    head, tail = written(dialect)
    parser = TextParser(dialect, TOOLS)
    assert calls_of(parser.feed(f"{head}use it{tail} Then:\n{ping(dialect)}\nDone")) == []
    assert [name for name, _ in calls_of(parser.close())] == ["save", "ping"]


@pytest.mark.parametrize("dialect", sorted({*DIALECTS} - CONTROL_TOKENS))
def test_end_tags_with_their_start_tags_in_code_do_not_matter(dialect: str) -> None:
    head, tail = written(dialect)
    text = f"{head}use it{tail} I wrote it like this:\n```\n{head}another{tail}\n```\nDone."
    assert calls_of(parse(TextParser(dialect, TOOLS), [text])) == [("save", {"path": "a.md", "content": "use it"})]


def test_a_malformed_block_after_a_call_does_not_make_it_ambiguous() -> None:
    text = (
        "<tool_call>\n<function=save>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=>\n<parameter=path>\nb\n</parameter>\n</function>\n</tool_call>"
    )
    assert calls_of(parse(TextParser("qwen3_coder", TOOLS), [text])) == [("save", {"path": "a"})]


def test_repeated_end_tags_right_after_a_call_are_dropped() -> None:
    text = "<tool_call>\n<function=save>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>\n</tool_call>"
    assert calls_of(parse(TextParser("qwen3_coder", TOOLS), [text])) == [("save", {"path": "a"})]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_parser_that_confirms_at_the_close_returns_the_call_there(dialect: str) -> None:
    head, tail = written(dialect)
    parser = TextParser(dialect, TOOLS, confirm="close")
    assert calls_of(parser.feed(f"{head}use it{tail}")) == [("save", {"path": "a.md", "content": "use it"})]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_that_was_handed_over_and_goes_on_is_an_error_that_names_it(dialect: str) -> None:
    head, tail = written(dialect)
    events = parse(TextParser(dialect, TOOLS, confirm="close"), [f"{head}use {tail} ends a call.{tail} Done."])
    assert calls_of(events) == [("save", {"path": "a.md", "content": "use"})] or calls_of(events) == [
        ("save", {"path": "a.md", "content": "use "})
    ]
    [error] = [event for event in events if isinstance(event, Error)]
    assert error.code == "ambiguous_call"
    assert error.message.startswith("the call of 'save' is ambiguous: an end tag follows the call")


def test_a_call_that_was_handed_over_is_confirmed_by_a_call_right_after_it() -> None:
    text = f"{HEAD}use it{TAIL}\n{ping('anthropic_xml')} Done."
    parser = TextParser("anthropic_xml", TOOLS, confirm="close")
    assert not any(isinstance(event, Error) for event in parse(parser, [text]))


def test_the_parser_of_xml_and_an_agent_report_a_call_that_goes_on() -> None:
    parser, errors = penstock.StreamingXMLParser(TOOLS), list[str]()
    assert [call.name for call in parser.feed(HALF)[1]] == ["save"]
    assert ["'save' is ambiguous" in error.message for error in parser.errors] == [True]

    def save(path: str, content: str) -> str:
        return "saved"

    asyncio.run(penstock.AgentStreamer(tools=[save], on_error=errors.append).process_stream([HALF]))
    assert ["'save' is ambiguous" in message for message in errors] == [True]


def test_a_wrong_confirm_is_refused() -> None:
    with pytest.raises(penstock.UsageError, match="confirm must be 'end' or 'close'"):
        TextParser("xml", confirm="now")  # type: ignore[arg-type]


def test_the_number_of_calls_that_wait_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconfirmed, "MAX_UNCONFIRMED", 2)
    head, tail = written("anthropic_xml")
    whole = parse(TextParser("anthropic_xml", TOOLS), [f"{head}1{tail} a {head}2{tail} b {head}3{tail} c"])
    assert [arguments["content"] for _, arguments in calls_of(whole)] == ["1", "2"]
    assert [event.why for event in whole if isinstance(event, ToolCallInvalid)] == ["too_large"]


@pytest.mark.parametrize("start", ["call", "turn", None])
def test_an_agent_does_not_run_half_a_call(start: Any) -> None:
    saved: list[str] = []

    def save(path: str, content: str) -> str:
        saved.append(content)
        return "saved"

    model = penstock.Model("openai:gpt-5", wire="openai-chat", via=Scripted([Reply(HALF), "I see."]))
    result = penstock.Agent(model, tools=[save], calls="xml", start=start).run("Save it.")
    assert (saved, result.output) == ([], "I see.")


def test_a_read_that_started_when_the_call_closed_is_discarded() -> None:
    @penstock.tool(read_only=True)
    def save(path: str, content: str) -> str:
        return "read half of it"

    script = Scripted([Reply(HALF), "I see."])
    penstock.Agent(penstock.Model("openai:gpt-5", wire="openai-chat", via=script), tools=[save], calls="xml").run("?")
    assert "read half of it" not in str(script.requests[1].body)
    assert "the call is ambiguous" in str(script.requests[1].body)


@pytest.mark.parametrize("repair", ["safe", "guess"])
def test_a_gateway_writes_half_a_call_back_as_text(repair: Any) -> None:
    body = sse(*(delta(content=piece) for piece in HALF.partition("use ")), delta("stop"))
    declared = [{"type": "function", "function": tool} for tool in TOOLS]

    async def answer() -> list[Any]:
        async with serving(gateway(upstream([Raw(body)]), healing=Healing(repair=repair))) as browser:
            reply = await browser.post("/v1/chat/completions", chat(tools=declared))
            return [choice for event in events(reply.body) for choice in event["choices"]]

    choices = asyncio.run(answer())
    assert not any("tool_calls" in choice["delta"] for choice in choices)
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert sorted(text) == sorted(HALF)
    assert HEAD.strip() in text
    assert choices[-1]["finish_reason"] == "stop"
