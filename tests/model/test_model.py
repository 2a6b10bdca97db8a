"""Models: requests and responses on every wire, sync and async, streamed or not."""

from __future__ import annotations

import asyncio
import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click.testing
import msgspec
import pytest

import penstock
from penstock import Error, Finish, Model, Opaque, Retries, Text, Timeouts, ToolCall, Turn, Usage, WireName, events
from penstock.cli.app import penstock as command
from penstock.messages import result, tool_results, user
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
"""Fields in which a streamed and a non-streamed response may differ: white space, and signatures."""


def facts(turn: Turn) -> Turn:
    """A turn without the fields in which a streamed and a non-streamed response may differ."""
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
def test_sync_and_async_streams_yield_the_scripted_chunks(wire: str) -> None:
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
def test_a_non_streamed_response_gives_the_same_turn(wire: str, mode: str) -> None:
    with Loopback(always(WEATHER)) as server:
        model = model_at(server, wire)
        streamed = read(mode, model, tools=TOOLS)[1].turn
        chunks, whole = read(mode, model, tools=TOOLS, streaming=False)
    assert_sane(chunks)
    assert facts(whole.turn) == facts(streamed)
    assert [request.is_streaming for request in server.requests] == [True, False]


@every_wire
@sync_and_async
@pytest.mark.parametrize("how", ["bytes", 1, 2])
def test_cuts_do_not_change_the_chunks(wire: str, mode: str, how: Any) -> None:
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
def test_a_script_in_the_process_gives_the_same_turn_as_the_server(wire: str, mode: str) -> None:
    with Loopback(WEATHER) as server:
        expected, _ = read(mode, model_at(server, wire), tools=TOOLS)
    script = Scripted(WEATHER)
    chunks, _ = read(mode, model_on(wire, via=script), tools=TOOLS)
    assert joined(chunks) == joined(expected)
    [request], [played] = server.requests, script.requests
    assert (played.body, played.wire, played.model) == (request.body, request.wire, request.model)


@every_wire
@sync_and_async
def test_a_turn_and_its_results_can_be_sent_back(wire: str, mode: str) -> None:
    script = Scripted([Reply(think("Hm."), call("weather", {"city": "Rome"}), call("now")), Reply("Sunny, at noon.")])
    model = model_on(wire, via=script)
    history: list[Any] = [user("How is the weather in Rome?")]
    turn = read(mode, model, history, tools=TOOLS)[1].turn
    history += [turn, tool_results(*(result(call, f"{call.name}!") for call in turn.tool_calls))]
    again = read(mode, model, history, tools=TOOLS)[1].turn
    assert (again.text, again.type) == ("Sunny, at noon.", "final_answer")
    results = [(result.name, result.text) for result in script.requests[1].results]
    assert results == [("weather", "weather!"), ("now", "now!")]


@every_wire
@sync_and_async
def test_an_in_band_error_keeps_the_text_and_is_not_raised(wire: str, mode: str) -> None:
    with Loopback(Reply(say("Let me look."), fail("overloaded_error", "Try later."))) as server:
        chunks, stream = read(mode, model_at(server, wire))
    assert (stream.text, stream.finish_reason) == ("Let me look.", "error")
    assert stream.error is not None
    assert stream.error.message == "Try later."
    assert [type(chunk) for chunk in chunks if isinstance(chunk, Error | Finish)] == [Error, Finish]


# Requests.


def test_complete_returns_the_whole_turn() -> None:
    model = Model("anthropic:claude", via=Scripted([WEATHER, "Sunny.", WEATHER, "Sunny."]))
    assert_is_weather(model.complete("How is it?", TOOLS))
    turn = asyncio.run(model.acomplete("How is it?", TOOLS))
    assert (turn.type, turn.text) == ("final_answer", "Sunny.")
    assert_is_weather(model.stream_text_and_classify("How is it?", TOOLS))
    turn = asyncio.run(model.astream_text_and_classify("How is it?", TOOLS))
    assert (turn.type, turn.text) == ("final_answer", "Sunny.")


def test_options_of_the_model_apply_to_requests_that_do_not_set_them() -> None:
    script = Scripted(always("Hi."))
    model = Model("openai:gpt", wire="openai-chat", via=script, temperature=0.5, max_tokens=10)
    model.complete("Hi.", temperature=0, stop=["."])
    body = script.requests[0].body
    assert (body["temperature"], body["max_completion_tokens"], body["stop"]) == (0, 10, ["."])


def test_an_unknown_option_is_an_error_before_anything_is_sent() -> None:
    script = Scripted(always("Hi."))
    with pytest.raises(penstock.UsageError, match="temprature"):
        Model("openai:gpt", via=script).stream("Hi.", temprature=1)  # type: ignore[call-overload]
    assert script.requests == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": None}, "the name of a model must be a string such as 'openai:gpt-5', not None"),
        ({"via": ["ok"]}, r"via must be a connector .*, not \['ok'\]"),
        ({"timeouts": 5}, r"timeouts must be a Timeouts\(.*\), not 5"),
        ({"retries": 5}, r"retries must be a Retries\(.*\), not 5"),
        ({"timeout": 5}, "'timeout', did you mean 'timeouts'"),
        ({"temprature": 1}, "'temprature', did you mean 'temperature'"),
    ],
)
def test_wrong_arguments_of_a_model_are_errors_when_it_is_created(options: dict[str, Any], message: str) -> None:
    with pytest.raises(penstock.UsageError, match=message):
        Model(**{"name": "openai:gpt", **options})


@pytest.mark.parametrize("value", [-1, "3", math.nan, True, -math.inf])
@pytest.mark.parametrize("kind", [Timeouts, Retries])
def test_invalid_timeouts_and_retries_are_errors(kind: Any, value: Any) -> None:
    for name in set(kind.__struct_fields__) - {"after_start", "shared"}:
        with pytest.raises(penstock.UsageError, match=rf"{kind.__name__}\.{name} must be .*, not "):
            kind(**{name: value})
        assert getattr(kind(**{name: 0}), name) == 0


@pytest.mark.parametrize("name", ["attempts", "after_start", "shared"])
def test_fractions_of_attempts_are_errors(name: str) -> None:
    options: dict[str, Any] = {name: 1.5}
    with pytest.raises(penstock.UsageError, match=rf"Retries\.{name} must be .*, not 1.5"):
        Retries(**options)


@pytest.mark.parametrize(
    ("name", "missing"),
    [("openai:gpt", "OPENAI_API_KEY"), ("azure:m", "AZURE_OPENAI_ENDPOINT"), ("bedrock:m", "AWS_REGION")],
)
def test_a_missing_environment_variable_is_an_error_of_the_request(
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


def test_a_key_that_is_set_after_the_model_was_created_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Loopback(["Hi."]) as server:
        model = Model("openai:gpt")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url("openai-responses"))
        assert model.complete("Hi.").text == "Hi."


def test_extra_is_merged_into_the_request_body() -> None:
    script = Scripted("Hi.")
    Model("openai:gpt", via=script).complete("Hi.", extra={"service_tier": "flex"})
    assert script.requests[0].body["service_tier"] == "flex"


def test_a_system_prompt_comes_first() -> None:
    script = Scripted("Hi.")
    Model("openai:gpt", wire="openai-chat", via=script).complete("Hi.", system_prompt="Be kind.")
    assert script.requests[0].body["messages"][0] == {"role": "system", "content": "Be kind."}


def test_headers_of_the_caller_are_sent_and_take_precedence() -> None:
    with Loopback(always("Hi.")) as server:
        model = model_at(server, "anthropic", headers={"Anthropic-Version": "2030-01-01", "X-Mine": "yes"})
        for mode in ("sync", "async"):
            read(mode, model)
    for request in server.requests:
        sent = sorted((name.lower(), value) for name, value in request.headers.items())
        assert [pair for pair in sent if pair[0] in ("anthropic-version", "x-mine")] == [
            ("anthropic-version", "2030-01-01"),
            ("x-mine", "yes"),
        ]


def test_one_model_serves_many_threads() -> None:
    with Loopback(lambda request: f"You said {request.prompt}") as server:
        model = model_at(server)
        with ThreadPoolExecutor(20) as pool:
            texts = list(pool.map(lambda at: model.complete(f"number {at}").text, range(60)))
    assert texts == [f"You said number {at}" for at in range(60)]


# Usage errors, raised before anything is sent.


def test_unknown_names_are_reported_with_a_suggestion() -> None:
    script = Scripted(always("Hi."))
    with pytest.raises(penstock.UnknownProviderError, match="'antropic', did you mean 'anthropic'"):
        Model("antropic:claude")
    with pytest.raises(penstock.UsageError, match="'gpt-5' has no provider prefix; did you mean openai:gpt-5"):
        Model("gpt-5")
    with pytest.raises(penstock.UsageError, match="has no model after the provider; use openai:model"):
        Model("openai:")
    with pytest.raises(penstock.UnknownWireError, match="'openai_chat', did you mean 'openai-chat'"):
        Model("openai:gpt", wire="openai_chat", via=script)  # type: ignore[arg-type]
    for name in ("nonsense", "body", "request"):
        with pytest.raises(penstock.UnknownWireError, match=f"unknown wire '{name}'"):
            Model("openai:gpt", wire=name, via=script)  # type: ignore[arg-type]
    with pytest.raises(penstock.UnknownDialectError, match="'hermez', did you mean 'hermes'"):
        Model("openai:gpt", via=script).stream("Hi.", TOOLS, calls="hermez")
    assert script.requests == []


@sync_and_async
def test_an_unknown_dialect_in_rescue_is_an_error(mode: str) -> None:
    script = Scripted(always("Hi."))
    with pytest.raises(penstock.UnknownDialectError, match="'hermez', did you mean 'hermes'"):
        read(mode, Model("openai:gpt", via=script), tools=TOOLS, rescue=["hermez"])
    assert script.requests == []


def test_a_wire_can_be_chosen_by_its_alias() -> None:
    assert Model("openai-compatible:m", "http://localhost:1", wire="mistral").wire == "openai-chat"


@every_wire
def test_a_schema_that_is_not_json_is_reported_with_its_tool(wire: str) -> None:
    circle: dict[str, Any] = {"type": "object"}
    circle["properties"] = {"self": circle}
    script = Scripted(always("Hi."))
    for schema in ({"type": "object", "properties": {"city": {"default": object()}}}, circle):
        tools = ["now", {"name": "get_weather", "parameters": schema}]
        with pytest.raises(penstock.UsageError, match="the schema of the tool 'get_weather'"):
            model_on(wire, via=script).stream("Hi.", tools)
    assert script.requests == []


@pytest.mark.parametrize("key", [f"{KEY}\nx", f"{KEY}…", f"{KEY}\x00"])
@sync_and_async
def test_a_malformed_key_is_reported_and_not_shown(key: str, mode: str) -> None:
    model = Model("openai:gpt", "http://127.0.0.1:9", key)
    with pytest.raises(
        penstock.UsageError, match="the API key for openai has characters that keys cannot have"
    ) as raised:
        read(mode, model)
    assert KEY not in str(raised.value)


def test_white_space_around_a_key_is_ignored() -> None:
    with Loopback("Hi.") as server:
        model = Model("openai:gpt", server.base_url("openai-chat"), f" {KEY}\n")
        assert model.complete("Hi.").text == "Hi."


def test_a_repr_shows_no_key_and_no_password() -> None:
    model = Model("openai:gpt", f"https://example.com/v1?key={KEY}", KEY, headers={"x-other-key": KEY})
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
def test_with_a_dialect_tools_are_in_the_prompt_and_calls_in_the_text(wire: str, mode: str, dialect: str) -> None:
    written, origin = IN_TEXT[dialect]
    script = Scripted(Reply(say(f"Let me look.\n{written}")), cuts="bytes" if mode == "sync" else None)
    options: dict[str, Any] = {"calls": dialect, "system_prompt": "Be kind.", "tool_choice": "required"}
    chunks, stream = read(mode, model_on(wire, via=script), "How is it?", tools=TOOLS, **options)
    assert_sane(chunks)
    [made] = stream.tool_calls
    assert (made.name, made.arguments, made.origin) == ("weather", {"city": "Rome"}, origin)
    assert (stream.text.strip(), stream.finish_reason, stream.turn.type) == ("Let me look.", "tool_calls", "tool_calls")
    assert not any("<" in chunk.text for chunk in chunks if isinstance(chunk, Text))
    body = script.requests[0].body
    assert not {"tools", "tool_choice", "toolConfig", "parallel_tool_calls"} & body.keys()
    prompt = json.dumps({key: value for key, value in body.items() if key != "stop"})
    assert "Be kind." in prompt
    assert all(name in prompt for name in ("weather", "The weather.", "trains", "now"))
    assert script.requests[0].prompt == "How is it?\n\nYour next message must call a tool."


@sync_and_async
def test_with_a_dialect_calls_and_results_are_sent_back_as_text(mode: str) -> None:
    script = Scripted([Reply(IN_TEXT["hermes"][0]), Reply("Sunny.")])
    model = Model("openai-compatible:m", "http://localhost", via=script)
    turn = read(mode, model, "How is it?", tools=TOOLS, calls="hermes")[1].turn
    history = ["How is it?", turn, tool_results(result(turn.tool_calls[0], "sunny"))]
    assert read(mode, model, history, tools=TOOLS, calls="hermes")[1].text == "Sunny."
    messages = script.requests[1].body["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert "<tool_call>" in messages[2]["content"]
    assert "sunny" in messages[3]["content"]


@sync_and_async
def test_a_call_in_the_text_that_is_cut_is_invalid(mode: str) -> None:
    script = Scripted(Reply(say('Look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Ro'), drop()))
    chunks, stream = read(mode, Model("openai:gpt", via=script), tools=TOOLS, calls="hermes")
    assert_sane(chunks)
    assert (stream.tool_calls, stream.finish_reason, stream.text.strip()) == ([], "cut", "Look.")
    assert stream.error is not None


@every_wire
@sync_and_async
def test_a_call_that_leaked_into_the_text_is_rescued_on_request(wire: str, mode: str) -> None:
    leaked = IN_TEXT["hermes"][0]
    script = Scripted(always(Reply(say(f"Let me look.\n{leaked}"))), cuts=5)
    model = model_on(wire, via=script)
    _, left = read(mode, model, tools=TOOLS)
    assert (left.tool_calls, leaked in left.text) == ([], True)
    chunks, stream = read(mode, model, tools=TOOLS, rescue=True)
    assert_sane(chunks)
    assert [(made.name, made.origin) for made in stream.tool_calls] == [("weather", "text:hermes")]
    assert (stream.text.strip(), stream.finish_reason) == ("Let me look.", "tool_calls")
    assert [tool.name for tool in script.requests[1].tools] == ["weather", "trains", "now"]
    _, other = read(mode, model, tools=["now"], rescue=True)
    assert other.tool_calls == [], "only declared tools are found"
    _, bare = read(mode, model, rescue=True)
    assert leaked in bare.text


@sync_and_async
def test_native_calls_are_unchanged_by_rescue(mode: str) -> None:
    script = Scripted(Reply(say("Let me look."), call("weather", {"city": "Rome"}, id="abc123def")))
    chunks, stream = read(mode, Model("openai:gpt", via=script), tools=TOOLS, rescue=True)
    assert_sane(chunks)
    assert [(made.id, made.origin) for made in stream.tool_calls] == [("abc123def", "native")]


# `sim:` models and scripts.


@pytest.mark.parametrize("wire", [None, *(wire for wire in WIRES if wire != "mistral")])
@sync_and_async
def test_sim_models_call_the_declared_tools_on_every_wire(wire: WireName | None, mode: str) -> None:
    model = Model("sim:fast", wire=wire)
    question = "How is the weather in Rome?"
    turn = read(mode, model, question, tools=TOOLS[:1])[1].turn
    assert [(made.name, made.arguments) for made in turn.tool_calls] == [("weather", {"city": "Rome"})]
    history = [question, turn, tool_results(result(turn.tool_calls[0], "sunny"))]
    assert "sunny" in read(mode, model, history, tools=TOOLS[:1])[1].text
    assert model.wire == (wire or "openai-chat")


def test_an_unknown_sim_model_is_an_error() -> None:
    with pytest.raises(penstock.UsageError, match="unknown model 'sim:slow'; use sim:demo or sim:fast"):
        Model("sim:slow")


def test_scripted_models_need_no_key_and_no_base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("openai:gpt", "azure:gpt", "bedrock:claude", "vertex:gemini", "openai-compatible:m"):
        assert Model(name, via=Scripted("Hi.")).complete("Hi.").text == "Hi."


def test_invalid_cuts_are_errors_when_the_script_is_created() -> None:
    with pytest.raises(penstock.UsageError, match="not 'lines'"):
        Scripted("Hi.", cuts="lines")  # type: ignore[arg-type]


# `penstock chat`.


def chat(*arguments: str, body: str = "", env: dict[str, str] | None = None) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(command, ["chat", *arguments], input=body, env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_chat_shows_the_response_to_a_prompt() -> None:
    result = chat("-m", "sim:fast", "How are you?")
    assert result.exit_code == 0
    assert "How are you?" in result.stdout
    assert "■ stop" in result.stdout


def test_chat_reads_standard_input() -> None:
    assert chat("-m", "sim:fast", body="How are you?").stdout == chat("-m", "sim:fast", "How are you?").stdout


def test_chat_as_json_prints_one_event_per_line() -> None:
    result = chat("-m", "sim:fast", "--json", "How are you?")
    chunks = [events.decode(line) for line in result.stdout.splitlines()]
    assert_sane(chunks)
    assert (result.exit_code, result.stderr) == (0, "")
    assert penstock.collect(chunks) == Model("sim:fast").complete("How are you?")


def test_chat_declares_tools_and_shows_their_calls(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(TOOLS[:1]))
    result = chat("-m", "sim:fast", "--tools", str(file), "How is the weather in Rome?")
    assert result.exit_code == 0
    assert "weather" in result.stdout
    assert "Rome" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
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
def test_chat_reports_usage_errors(
    arguments: list[str], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)  # retries without delay
    result = chat(*arguments, env={"OPENAI_API_KEY": ""})
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_chat_reports_refusals_and_cuts_by_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    replies: list[Step] = [Status(401), Reply(say("Let me look."), wait(0.001), drop(clean=True)), Reply("Hi.")]
    with Loopback(replies) as server:
        arguments = ["-m", "openai:gpt", "--base-url", server.base_url("openai-responses"), "Hi."]
        refused, cut, well = (chat(*arguments, env={"OPENAI_API_KEY": KEY}) for _ in replies)
    assert [refused.exit_code, cut.exit_code, well.exit_code] == [3, 1, 0]
    assert "HTTP 401" in refused.stderr
    assert "Let me look." in cut.stdout
    assert KEY not in refused.output + cut.output + well.output


# The model that answered.

NAMED: dict[str, Any] = {
    "openai-chat": [{"choices": [], "model": "", "prompt_filter_results": []},
                    {"model": "m-1", "choices": [{"index": 0, "delta": {"content": "Hi"}}]},
                    {"model": "m-2", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}],
    "anthropic": [{"type": "ping"}, {"type": "message_start", "message": {"model": "m-1", "content": [], "usage": {}}},
                  {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}],
    "openai-responses": [{"type": "response.created", "response": {"id": "r", "status": "in_progress", "model": "m-1"}},
                         {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [],
                                                                     "model": "m-1"}}],
    "gemini": [{"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}], "modelVersion": "m-1"}],
    "ollama": [{"model": "m-1", "message": {"role": "assistant", "content": "H"}, "done": True, "done_reason": "stop"}],
}  # fmt: skip


@pytest.mark.parametrize("wire", NAMED)
def test_a_turn_names_the_model_that_answered(wire: Any) -> None:
    turn = penstock.collect(penstock.decode(NAMED[wire], wire))
    assert turn.model == "m-1"
    assert (turn.finish_reason, turn.unknown, turn.error) == ("stop", (), None)


def test_a_whole_body_names_the_model_that_answered() -> None:
    chat = {"model": "m-1", "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}
    messages = {"type": "message", "role": "assistant", "model": "m-1", "content": [], "stop_reason": "end_turn"}
    assert penstock.collect(penstock.decode(chat, "openai-chat")).model == "m-1"
    assert penstock.collect(penstock.decode(messages, "anthropic")).model == "m-1"


def test_a_provider_may_leave_the_model_out() -> None:
    body = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}
    assert penstock.collect(penstock.decode(body, "openai-chat")).model == ""


@pytest.mark.parametrize("name", ["openai-compatible:asked", "anthropic:asked", "ollama:asked"])
def test_a_stream_names_the_model_that_answered(name: str) -> None:
    model = Model(name, via=Scripted(["Hi.", "Hi."]))
    with model.stream("Hello.") as stream:
        for _ in stream:
            pass
    assert stream.model == stream.turn.model != ""
    assert asyncio.run(model.acomplete("Hello.")).model == stream.model
