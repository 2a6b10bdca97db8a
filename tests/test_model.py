"""A model, asked on every wire: what comes back is what was said, sync and async, streamed or whole."""

from __future__ import annotations

import asyncio
import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

import click.testing
import msgspec
import pytest

import penstock
from penstock import Agent, Model, Turn, Usage, events
from penstock.agent.agent import REQUEST_OPTIONS
from penstock.agent.options import AgentOptions
from penstock.cli.app import penstock as command
from penstock.events import Error, Finish, Opaque, Text, ToolCall
from penstock.messages import result, tool_results, user
from penstock.model.options import ModelOptions, RequestOptions, StepOptions
from penstock.testing import (
    Loopback,
    Reply,
    Scripted,
    Status,
    Step,
    always,
    call,
    drop,
    fail,
    refuse,
    say,
    think,
    wait,
)
from penstock.transport.policy import Retries, Timeouts
from penstock.wires import WireName
from penstock.wires.shared.request import OPTIONS
from tests.asking import (
    KEY,
    ONCE,
    WIRES,
    every_wire,
    model_at,
    model_on,
    read,
    sync_and_async,
)
from tests.sanity import assert_sane
from tests.support import joined

USAGE = Usage(input_tokens=25, output_tokens=17, cached_tokens=5, reasoning_tokens=4)
WEATHER = Reply(
    think("They ask about “Rome”. 日本語 😀"),
    say("Let me look…\n\n- first, the *weather* 🌤"),
    call("weather", {"city": "Rome", "days": [1, 2.5, None], "note": 'é "\\ \u2028 😀'}, id="abc123def"),
    call("trains", {"to": "Rome"}, id="ghi456jkl"),
    call("now", id="mno789pqr"),
    usage=USAGE,
)
TOOLS = [
    {"name": "weather", "description": "The weather.", "parameters": {"properties": {"city": {"type": "string"}}}},
    {"name": "trains", "parameters": {"type": "object", "properties": {"to": {"type": "string"}}}},
    "now",
]


UNLIKE: dict[type, dict[str, Any]] = {ToolCall: {"sealed_by": "whole", "arguments_raw": ""}, Opaque: {"data": None}}
"""In what a streamed and a whole answer may differ: white space, and signatures, of which no two are the same."""


def facts(turn: Turn) -> Turn:
    """What a streamed and a whole answer must agree in."""
    parts = [
        msgspec.structs.replace(part, **UNLIKE[type(part)]) if type(part) in UNLIKE else part for part in turn.parts
    ]
    return msgspec.structs.replace(turn, parts=tuple(parts))


def assert_is_weather(turn: Turn) -> None:
    assert (turn.text, turn.reasoning, turn.finish_reason) == (WEATHER.text, WEATHER.reasoning, "tool_calls")
    made = [(call.name, call.arguments) for call in turn.tool_calls]
    assert made == [(call.name, json.loads(call.arguments)) for call in WEATHER.calls]
    assert [call.id for call in turn.tool_calls] == ["abc123def", "ghi456jkl", "mno789pqr"]
    assert turn.usage is not None
    assert (turn.usage.input_tokens, turn.usage.output_tokens) == (25, 17)
    assert (turn.invalid_calls, turn.unknown, turn.error, turn.type) == ([], (), None, "tool_calls")


# Every wire, over HTTP.


@every_wire
def test_sync_and_async_get_equal_chunks_of_what_is_scripted(wire: str) -> None:
    with Loopback(always(WEATHER), pace=0.0005) as server:
        model = model_at(server, wire)
        chunks, stream = read("sync", model, tools=TOOLS)
        async_chunks, async_stream = read("async", model, tools=TOOLS)
    assert_sane(chunks)
    assert joined(async_chunks) == joined(chunks)
    assert async_stream.turn == stream.turn == penstock.collect(chunks)
    assert_is_weather(stream.turn)
    assert len(chunks) > 10
    first, second = server.requests
    assert first.body == second.body
    assert [tool.name for tool in first.tools] == ["weather", "trains", "now"]
    assert first.prompt == "Hi."


@every_wire
@sync_and_async
def test_a_whole_answer_gives_the_same_turn(wire: str, mode: str) -> None:
    with Loopback(always(WEATHER)) as server:
        model = model_at(server, wire)
        streamed = read(mode, model, tools=TOOLS)[1].turn
        chunks, whole = read(mode, model, tools=TOOLS, streaming=False)
    assert_sane(chunks)
    assert facts(whole.turn) == facts(streamed)
    assert [asked.is_streaming for asked in server.requests] == [True, False]


@every_wire
@sync_and_async
@pytest.mark.parametrize("how", ["bytes", 1, 2])
def test_cuts_do_not_show(wire: str, mode: str, how: Any) -> None:
    reply = Reply(think("Hm."), say("Let me look… 🌤"), call("weather", {"city": "Röme"}, id="abc123def"), usage=USAGE)
    uncut, _ = read(mode, model_on(wire, via=Scripted(reply)), tools=TOOLS)
    with Loopback(reply, cuts=how) as server:
        chunks, stream = read(mode, model_at(server, wire), tools=TOOLS)
    assert joined(chunks) == joined(uncut)
    assert stream.turn.tool_calls[0].arguments == {"city": "Röme"}


@every_wire
@sync_and_async
def test_every_chunk_survives_json_and_back(wire: str, mode: str) -> None:
    replies = [WEATHER, Reply(say("Let me"), fail("busy", "Try later.")), Reply(refuse()), Reply(say("Let"), drop())]
    model = model_on(wire, via=Scripted(replies), retries=ONCE)
    for _ in replies:
        chunks, stream = read(mode, model, tools=TOOLS)
        assert [events.decode(events.encode(chunk)) for chunk in chunks] == chunks
        assert penstock.collect(map(events.decode, map(events.encode, chunks))) == stream.turn


@every_wire
@sync_and_async
def test_a_script_within_the_process_says_what_the_server_says(wire: str, mode: str) -> None:
    with Loopback(WEATHER) as server:
        expected, _ = read(mode, model_at(server, wire), tools=TOOLS)
    line = Scripted(WEATHER)
    chunks, _ = read(mode, model_on(wire, via=line), tools=TOOLS)
    assert joined(chunks) == joined(expected)
    [asked], [played] = server.requests, line.requests
    assert (played.body, played.wire, played.model) == (asked.body, asked.wire, asked.model)


@every_wire
@sync_and_async
def test_a_turn_and_its_results_go_back_and_the_answer_goes_on(wire: str, mode: str) -> None:
    line = Scripted([Reply(think("Hm."), call("weather", {"city": "Rome"}), call("now")), Reply("Sunny, at noon.")])
    model = model_on(wire, via=line)
    history: list[Any] = [user("How is the weather in Rome?")]
    turn = read(mode, model, history, tools=TOOLS)[1].turn
    history += [turn, tool_results(*(result(call, f"{call.name}!") for call in turn.tool_calls))]
    again = read(mode, model, history, tools=TOOLS)[1].turn
    assert (again.text, again.type) == ("Sunny, at noon.", "final_answer")
    found = [(found.name, found.text) for found in line.requests[1].results]
    assert found == [("weather", "weather!"), ("now", "now!")]


@every_wire
@sync_and_async
def test_an_error_in_band_keeps_the_text_and_raises_nothing(wire: str, mode: str) -> None:
    with Loopback(Reply(say("Let me look."), fail("overloaded_error", "Try later."))) as server:
        chunks, stream = read(mode, model_at(server, wire))
    assert (stream.text, stream.finish_reason) == ("Let me look.", "error")
    assert stream.error is not None
    assert stream.error.message == "Try later."
    assert [type(chunk) for chunk in chunks if isinstance(chunk, Error | Finish)] == [Error, Finish]


# What is asked.


def test_the_whole_answer_is_at_hand_in_one_line() -> None:
    model = Model("anthropic:claude", via=Scripted([WEATHER, "Sunny."]))
    assert_is_weather(model.stream_text_and_classify("How is it?", TOOLS))
    turn = asyncio.run(model.astream_text_and_classify("How is it?", TOOLS))
    assert (turn.type, turn.text) == ("final_answer", "Sunny.")


def test_options_of_the_model_hold_for_every_request_unless_it_has_its_own() -> None:
    line = Scripted(always("Hi."))
    model = Model("openai:gpt", wire="openai-chat", via=line, temperature=0.5, max_tokens=10)
    model.stream_text_and_classify("Hi.", temperature=0, stop=["."])
    body = line.requests[0].body
    assert (body["temperature"], body["max_completion_tokens"], body["stop"]) == (0, 10, ["."])


def test_an_option_that_nobody_has_is_told_before_anything_is_sent() -> None:
    line = Scripted(always("Hi."))
    with pytest.raises(penstock.UsageError, match="temprature"):
        Model("openai:gpt", via=line).stream("Hi.", temprature=1)  # type: ignore[call-arg]
    assert line.requests == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": None}, "the name of a model must be a string such as 'openai:gpt-5', not None"),
        ({"via": ["ok"]}, r"via must be a connector .*, not \['ok'\]"),
        ({"timeouts": 5}, r"timeouts must be a Timeouts\(.*\), not 5"),
        ({"retries": 5}, r"retries must be a Retries\(.*\), not 5"),
        ({"timeout": 5}, "'timeout', did you mean 'timeouts'"),
        ({"temprature": 1}, "'temprature', did you mean 'temperature'"),
    ],
)
def test_what_makes_no_model_is_told_when_it_is_made(given: dict[str, Any], told: str) -> None:
    with pytest.raises(penstock.UsageError, match=told):
        Model(**{"name": "openai:gpt", **given})


@pytest.mark.parametrize("value", [-1, "3", math.nan, True, -math.inf])
@pytest.mark.parametrize("kind", [Timeouts, Retries])
def test_patience_that_makes_no_sense_is_told_when_it_is_made(kind: Any, value: Any) -> None:
    for name in set(kind.__struct_fields__) - {"after_start"}:
        with pytest.raises(penstock.UsageError, match=rf"{kind.__name__}\.{name} must be .*, not "):
            kind(**{name: value})
        assert getattr(kind(**{name: 0}), name) == 0


@pytest.mark.parametrize("name", ["attempts", "after_start"])
def test_attempts_are_counted_in_whole_ones(name: str) -> None:
    given: dict[str, Any] = {name: 1.5}
    with pytest.raises(penstock.UsageError, match=rf"Retries\.{name} must be .*, not 1.5"):
        Retries(**given)


@pytest.mark.parametrize(
    ("name", "missing"),
    [("openai:gpt", "OPENAI_API_KEY"), ("azure:m", "AZURE_OPENAI_ENDPOINT"), ("bedrock:m", "AWS_REGION")],
)
def test_what_is_missing_from_the_environment_is_told_when_the_model_is_asked(
    name: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in [one for one in os.environ if one.startswith(("OPENAI_", "AZURE_", "AWS_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    model = Model(name)
    assert name in repr(model)
    for ask in (model.ask, model.stream, model.astream):
        with pytest.raises(penstock.UsageError, match=missing):
            ask("Hi.")


def test_a_key_that_is_set_after_the_model_was_made_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Loopback(["Hi."]) as server:
        model = Model("openai:gpt")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url("openai-responses"))
        assert model.stream_text_and_classify("Hi.").text == "Hi."


def test_extra_goes_into_the_request_as_it_stands() -> None:
    line = Scripted("Hi.")
    Model("openai:gpt", via=line).stream_text_and_classify("Hi.", extra={"service_tier": "flex"})
    assert line.requests[0].body["service_tier"] == "flex"


def test_a_system_prompt_comes_first() -> None:
    line = Scripted("Hi.")
    Model("openai:gpt", wire="openai-chat", via=line).stream_text_and_classify("Hi.", system_prompt="Be kind.")
    assert line.requests[0].body["messages"][0] == {"role": "system", "content": "Be kind."}


def test_headers_of_the_caller_are_sent_and_win() -> None:
    with Loopback(always("Hi.")) as server:
        model = model_at(server, "anthropic", headers={"Anthropic-Version": "2030-01-01", "X-Mine": "yes"})
        for mode in ("sync", "async"):
            read(mode, model)
    for asked in server.requests:
        sent = sorted((name.lower(), value) for name, value in asked.headers.items())
        assert [pair for pair in sent if pair[0] in ("anthropic-version", "x-mine")] == [
            ("anthropic-version", "2030-01-01"),
            ("x-mine", "yes"),
        ]


def test_one_model_serves_many_threads() -> None:
    with Loopback(lambda asked: f"You said {asked.prompt}") as server:
        model = model_at(server)
        with ThreadPoolExecutor(20) as pool:
            texts = list(pool.map(lambda at: model.stream_text_and_classify(f"number {at}").text, range(60)))
    assert texts == [f"You said number {at}" for at in range(60)]


# Mistakes of the caller, told before anything is sent.


def test_names_that_nothing_has_are_told_with_a_guess() -> None:
    line = Scripted(always("Hi."))
    with pytest.raises(penstock.UnknownProviderError, match="'antropic', did you mean 'anthropic'"):
        Model("antropic:claude")
    with pytest.raises(penstock.UsageError, match="'gpt-5' has no provider prefix; use provider:model"):
        Model("gpt-5")
    with pytest.raises(penstock.UsageError, match="has no model after the provider; use openai:model"):
        Model("openai:")
    with pytest.raises(penstock.UnknownWireError, match="'openai_chat', did you mean 'openai-chat'"):
        Model("openai:gpt", wire="openai_chat", via=line)  # type: ignore[arg-type]
    for name in ("nonsense", "body", "request"):
        with pytest.raises(penstock.UnknownWireError, match=f"unknown wire '{name}'"):
            Model("openai:gpt", wire=name, via=line)  # type: ignore[arg-type]
    with pytest.raises(penstock.UnknownDialectError, match="'hermez', did you mean 'hermes'"):
        Model("openai:gpt", via=line).stream("Hi.", TOOLS, calls="hermez")
    assert line.requests == []


@sync_and_async
def test_an_unknown_dialect_to_rescue_from_is_told(mode: str) -> None:
    line = Scripted(always("Hi."))
    with pytest.raises(penstock.UnknownDialectError, match="'hermez', did you mean 'hermes'"):
        read(mode, Model("openai:gpt", via=line), tools=TOOLS, rescue=["hermez"])
    assert line.requests == []


def test_a_wire_may_be_called_by_another_name() -> None:
    assert Model("openai-compatible:m", "http://localhost:1", wire="mistral").wire == "openai-chat"


@every_wire
def test_a_schema_that_is_no_json_names_the_tool(wire: str) -> None:
    circle: dict[str, Any] = {"type": "object"}
    circle["properties"] = {"self": circle}
    line = Scripted(always("Hi."))
    for schema in ({"type": "object", "properties": {"city": {"default": object()}}}, circle):
        tools = ["now", {"name": "get_weather", "parameters": schema}]
        with pytest.raises(penstock.UsageError, match="the schema of the tool 'get_weather'"):
            model_on(wire, via=line).stream("Hi.", tools)
    assert line.requests == []


@pytest.mark.parametrize("key", [f"{KEY}\nx", f"{KEY}…", f"{KEY}\x00"])
@sync_and_async
def test_a_key_that_cannot_be_one_is_told_and_not_shown(key: str, mode: str) -> None:
    model = Model("openai:gpt", "http://127.0.0.1:9", key)
    with pytest.raises(
        penstock.UsageError, match="the API key for openai has characters that keys cannot have"
    ) as raised:
        read(mode, model)
    assert KEY not in str(raised.value)


def test_a_key_may_come_with_the_end_of_its_line() -> None:
    with Loopback("Hi.") as server:
        model = Model("openai:gpt", server.base_url("openai-chat"), f" {KEY}\n")
        assert model.stream_text_and_classify("Hi.").text == "Hi."


def test_a_repr_shows_no_key_and_no_password() -> None:
    model = Model("openai:gpt", f"https://ada:{KEY}@example.com/v1", KEY, headers={"x-other-key": KEY})
    exchange = model.ask("Hi.")
    outgoing = next(exchange.commands())
    assert KEY not in repr(model) + repr(exchange) + repr(outgoing) + repr(model.stream("Hi."))
    assert "example.com/v1" in repr(model)


# Calls in the text.

IN_TEXT = {
    "xml": (
        '<function_calls>\n<invoke name="weather">\n<parameter name="city">Rome</parameter>\n</invoke>\n'
        "</function_calls>",
        "text:anthropic_xml",
    ),
    "hermes": ('<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>', "text:hermes"),
}


@every_wire
@sync_and_async
@pytest.mark.parametrize("dialect", sorted(IN_TEXT))
def test_tools_go_into_the_prompt_and_calls_come_out_of_the_text(wire: str, mode: str, dialect: str) -> None:
    written, origin = IN_TEXT[dialect]
    line = Scripted(Reply(say(f"Let me look.\n{written}")), cuts="bytes" if mode == "sync" else None)
    options: dict[str, Any] = {"calls": dialect, "system_prompt": "Be kind.", "tool_choice": "required"}
    chunks, stream = read(mode, model_on(wire, via=line), "How is it?", tools=TOOLS, **options)
    assert_sane(chunks)
    [made] = stream.tool_calls
    assert (made.name, made.arguments, made.origin) == ("weather", {"city": "Rome"}, origin)
    assert (stream.text.strip(), stream.finish_reason, stream.turn.type) == ("Let me look.", "tool_calls", "tool_calls")
    assert not any("<" in chunk.text for chunk in chunks if isinstance(chunk, Text))
    body = line.requests[0].body
    assert not {"tools", "tool_choice", "toolConfig", "parallel_tool_calls"} & body.keys()
    told = json.dumps({key: value for key, value in body.items() if key != "stop"})
    assert "Be kind." in told
    assert all(name in told for name in ("weather", "The weather.", "trains", "now"))
    assert line.requests[0].prompt == "How is it?"


@sync_and_async
def test_calls_and_results_in_the_text_go_back_as_text(mode: str) -> None:
    line = Scripted([Reply(IN_TEXT["hermes"][0]), Reply("Sunny.")])
    model = Model("openai-compatible:m", "http://localhost", via=line)
    turn = read(mode, model, "How is it?", tools=TOOLS, calls="hermes")[1].turn
    history = ["How is it?", turn, tool_results(result(turn.tool_calls[0], "sunny"))]
    assert read(mode, model, history, tools=TOOLS, calls="hermes")[1].text == "Sunny."
    messages = line.requests[1].body["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert "<tool_call>" in messages[2]["content"]
    assert "sunny" in messages[3]["content"]


@sync_and_async
def test_a_call_in_the_text_that_is_cut_is_no_call(mode: str) -> None:
    line = Scripted(Reply(say('Look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Ro'), drop()))
    chunks, stream = read(mode, Model("openai:gpt", via=line), tools=TOOLS, calls="hermes")
    assert_sane(chunks)
    assert (stream.tool_calls, stream.finish_reason, stream.text.strip()) == ([], "cut", "Look.")
    assert stream.error is not None


@every_wire
@sync_and_async
def test_a_call_that_leaked_is_rescued_if_that_is_wanted(wire: str, mode: str) -> None:
    leaked = IN_TEXT["hermes"][0]
    line = Scripted(always(Reply(say(f"Let me look.\n{leaked}"))), cuts=5)
    model = model_on(wire, via=line)
    _, left = read(mode, model, tools=TOOLS)
    assert (left.tool_calls, leaked in left.text) == ([], True)
    chunks, stream = read(mode, model, tools=TOOLS, rescue=True)
    assert_sane(chunks)
    assert [(made.name, made.origin) for made in stream.tool_calls] == [("weather", "text:hermes")]
    assert (stream.text.strip(), stream.finish_reason) == ("Let me look.", "tool_calls")
    assert [tool.name for tool in line.requests[1].tools] == ["weather", "trains", "now"]
    _, other = read(mode, model, tools=["now"], rescue=True)
    assert other.tool_calls == [], "only declared tools are found"
    _, bare = read(mode, model, rescue=True)
    assert leaked in bare.text


@sync_and_async
def test_a_native_call_beside_a_rescue_stays_what_it_is(mode: str) -> None:
    line = Scripted(Reply(say("Let me look."), call("weather", {"city": "Rome"}, id="abc123def")))
    chunks, stream = read(mode, Model("openai:gpt", via=line), tools=TOOLS, rescue=True)
    assert_sane(chunks)
    assert [(made.id, made.origin) for made in stream.tool_calls] == [("abc123def", "native")]


# Models in the box.


@pytest.mark.parametrize("wire", [None, *(wire for wire in WIRES if wire != "mistral")])
@sync_and_async
def test_sim_models_answer_on_every_wire_with_the_tools_they_are_given(wire: WireName | None, mode: str) -> None:
    model = Model("sim:fast", wire=wire)
    question = "How is the weather in Rome?"
    turn = read(mode, model, question, tools=TOOLS[:1])[1].turn
    assert [(made.name, made.arguments) for made in turn.tool_calls] == [("weather", {"city": "Rome"})]
    history = [question, turn, tool_results(result(turn.tool_calls[0], "sunny"))]
    assert "sunny" in read(mode, model, history, tools=TOOLS[:1])[1].text
    assert model.wire == (wire or "openai-chat")


def test_an_unknown_sim_model_is_told() -> None:
    with pytest.raises(penstock.UsageError, match="unknown model 'sim:slow'; use sim:demo or sim:fast"):
        Model("sim:slow")


def test_scripted_models_need_no_key_and_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("openai:gpt", "azure:gpt", "bedrock:claude", "vertex:gemini", "openai-compatible:m"):
        assert Model(name, via=Scripted("Hi.")).stream_text_and_classify("Hi.").text == "Hi."


def test_wrong_cuts_are_told_when_the_script_is_made() -> None:
    with pytest.raises(penstock.UsageError, match="not 'lines'"):
        Scripted("Hi.", cuts="lines")  # type: ignore[arg-type]


# `penstock chat`.


def chat(*arguments: str, body: str = "", env: dict[str, str] | None = None) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(command, ["chat", *arguments], input=body, env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_chat_shows_the_answer_to_a_prompt() -> None:
    result = chat("-m", "sim:fast", "How are you?")
    assert result.exit_code == 0
    assert "How are you?" in result.stdout
    assert "■ stop" in result.stdout


def test_chat_reads_what_is_piped() -> None:
    assert chat("-m", "sim:fast", body="How are you?").stdout == chat("-m", "sim:fast", "How are you?").stdout


def test_chat_prints_an_event_a_line_and_nothing_else() -> None:
    result = chat("-m", "sim:fast", "--json", "How are you?")
    found = [events.decode(line) for line in result.stdout.splitlines()]
    assert_sane(found)
    assert (result.exit_code, result.stderr) == (0, "")
    assert penstock.collect(found) == Model("sim:fast").stream_text_and_classify("How are you?")


def test_chat_declares_tools_and_shows_their_calls(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(TOOLS[:1]))
    result = chat("-m", "sim:fast", "--tools", str(file), "How is the weather in Rome?")
    assert result.exit_code == 0
    assert "weather" in result.stdout
    assert "Rome" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["-m", "antropic:claude", "Hi."], 2, "did you mean 'anthropic'"),
        (["-m", "gpt-5", "Hi."], 2, "has no provider prefix"),
        (["-m", "sim:slow", "Hi."], 2, "unknown model 'sim:slow'"),
        (["-m", "sim:fast", "--wire", "smoke", "Hi."], 2, "unknown wire 'smoke'"),
        (["-m", "replay:nowhere.jsonl", "Hi."], 2, "cannot read the recording"),
        (["-m", "openai:gpt", "Hi."], 2, "OPENAI_API_KEY"),
        (["-m", "openai:gpt", "--base-url", "http://127.0.0.1:9", "Hi."], 2, "OPENAI_API_KEY"),
        (["-m", "openai:gpt", "--base-url", "htp://x", "Hi."], 2, "is not a base URL"),
        (["-m", "vllm:m", "--base-url", "htp://x", "Hi."], 2, "is not a base URL"),
        (["-m", "sim:fast", "--record", "/nowhere/at/all", "Hi."], 2, "cannot write the recording"),
        (["-m", "sim:fast", "--calls", "hermez", "Hi."], 2, "did you mean 'hermes'"),
        (["-m", "sim:fast", "--timeout", "0", "Hi."], 2, "--timeout"),
        (["Hi."], 2, "--model"),
        (["-m", "vllm:m", "--base-url", "http://127.0.0.1:9", "Hi."], 3, "the connection to 127.0.0.1:9 failed"),
    ],
)
def test_chat_says_what_is_wrong(arguments: list[str], code: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)  # tried again without a pause
    result = chat(*arguments, env={"OPENAI_API_KEY": ""})
    assert result.exit_code == code
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_chat_tells_a_refusal_and_a_cut_by_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    replies: list[Step] = [Status(401), Reply(say("Let me look."), wait(0.001), drop(clean=True)), Reply("Hi.")]
    with Loopback(replies) as server:
        arguments = ["-m", "openai:gpt", "--base-url", server.base_url("openai-responses"), "Hi."]
        refused, cut, well = (chat(*arguments, env={"OPENAI_API_KEY": KEY}) for _ in replies)
    assert [refused.exit_code, cut.exit_code, well.exit_code] == [3, 1, 0]
    assert "HTTP 401" in refused.stderr
    assert "Let me look." in cut.stdout
    assert KEY not in refused.output + cut.output + well.output


def keyword_only(function: Any) -> set[str]:
    return {name for name, value in signature(function).parameters.items() if value.kind is value.KEYWORD_ONLY}


def test_the_typed_options_are_the_options_that_are_checked() -> None:
    assert set(get_type_hints(ModelOptions)) == set(OPTIONS)
    assert set(get_type_hints(StepOptions)) == set(REQUEST_OPTIONS)
    assert set(get_type_hints(RequestOptions)) == keyword_only(Model.ask) | set(OPTIONS)
    assert set(get_type_hints(AgentOptions)) == keyword_only(Agent) | set(REQUEST_OPTIONS)
