"""Recordings: the exact bytes of a response with their timing and the request, without the key; and replays."""

from __future__ import annotations

import asyncio
import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click.testing
import pytest

import penstock
from penstock import Model, ReplayMissError, Retries, Timeouts, events
from penstock.cli.app import penstock as command
from penstock.model.recording import Recording
from penstock.testing import (
    Loopback,
    Raw,
    ReceivedRequest,
    Replay,
    Reply,
    Scripted,
    Status,
    always,
    call,
    drop,
    frames,
    read_recordings,
    say,
    think,
    wait,
)
from penstock.testing.replay import difference
from penstock.testing.reply import Drop, Wait
from penstock.wires import wire_name
from tests.asking import KEY, SOON, aread, every_wire, model_at, model_on, read, sync_and_async
from tests.support import joined

WEATHER = Reply(
    think("Hm… 😀"), say("Let me look, Ada. 🌤"), call("weather", {"city": "Röme"}, id="abc123def"), finish="tool_calls"
)
TOOLS = [{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]


def recorded(path: Path, text: str = "Sunny.", **options: Any) -> Recording:
    """Record one response in this file."""
    Model("openai:gpt", via=Scripted(text), record=path, **options).complete("Hi.")
    return read_recordings(path)[-1]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "recording.jsonl"


# Recording.


@every_wire
@sync_and_async
@pytest.mark.parametrize("how", [None, "bytes"])
def test_a_recording_holds_the_exact_bytes_and_no_key(wire: str, mode: str, how: Any, file: Path) -> None:
    with Loopback(WEATHER, cuts=how) as server:
        model = model_at(server, wire, record=file, headers={"x-proxy-token": KEY})
        _, stream = read(mode, model, tools=TOOLS)
    [kept] = read_recordings(file)
    [request] = server.requests
    assert kept.body == b"".join(frames(wire, WEATHER, request=request))
    assert (kept.request.body, kept.request.wire, kept.request.model) == (request.body, model.wire, model.name)
    assert (kept.response.status, kept.is_whole) == (200, True)
    assert penstock.collect(penstock.decode(kept.body, model.wire)).tool_calls == stream.tool_calls
    times = [kept.response.at, *(piece.at for piece in kept.pieces)]
    assert times == sorted(times)
    assert times[0] >= 0
    assert KEY.encode() not in file.read_bytes()


@sync_and_async
def test_times_are_measured_from_the_request(mode: str, file: Path) -> None:
    with Loopback(Reply(wait(0.2), say("Let me look."), wait(0.2), say(" Sunny.")), pace=0.001) as server:
        read(mode, model_at(server, record=file))
    [kept] = read_recordings(file)
    late = [piece.at for piece in kept.pieces if b" Sun" in piece.data]
    assert 0.4 <= late[0] < 10
    assert json.loads(file.read_bytes().splitlines()[-1])["at"] >= late[0]


def test_headers_that_identify_the_account_are_not_recorded(file: Path) -> None:
    headers = {"set-cookie": "session=1", "x-request-id": "req_1", "x-account": "ada", "openai-organization": "ada"}
    body = b"".join(frames("openai-chat", Reply("Hi.")))
    with Loopback(Raw(body, headers=headers)) as server:
        address = f"{server.base_url('openai-chat')}?key={KEY}"
        model = Model("openai:gpt", address, KEY, wire="openai-chat", record=file)
        assert read("sync", model)[1].text == "Hi."
    [kept] = read_recordings(file)
    assert kept.response.headers["x-request-id"] == "req_1"
    assert not {"set-cookie", "x-account", "openai-organization"} & kept.response.headers.keys()
    assert KEY not in file.read_text(encoding="utf-8")


@sync_and_async
def test_a_key_that_the_response_repeats_is_masked(mode: str, file: Path) -> None:
    with Loopback(Status(200, f"Wrong key: {KEY}")) as server:
        read(mode, model_at(server, record=file))
    assert KEY not in file.read_text(encoding="utf-8")
    assert "Wrong key: ***" in file.read_text(encoding="utf-8")


def test_a_file_holds_one_exchange_after_another(file: Path) -> None:
    script = Scripted(["One.", "Two.", "Three."])
    for _ in range(3):
        Model("openai:gpt", via=script, record=str(file)).complete("Hi.")
    texts = [
        penstock.collect(penstock.decode(kept.body, wire_name(kept.request.wire))).text
        for kept in read_recordings(file)
    ]
    assert texts == ["One.", "Two.", "Three."]


def test_concurrent_exchanges_are_not_mixed(file: Path) -> None:
    async def ask_all(model: Model) -> None:
        await asyncio.gather(*(aread(model, f"number {at}") for at in range(20)))

    def echo(request: ReceivedRequest) -> str:
        return f"You said {request.prompt}, and I say it again: {request.prompt}."

    with Loopback(echo, cuts=3) as server:
        model = model_at(server, record=file)
        asyncio.run(ask_all(model))
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(lambda at: model.complete(f"number {at}"), range(20, 40)))
    kept = read_recordings(file)
    assert len(kept) == 40
    assert all(one.is_whole for one in kept)
    for one in kept:
        message = one.request.body["messages"][0]["content"]
        text = penstock.collect(penstock.decode(one.body, "openai-chat")).text
        assert text == f"You said {message}, and I say it again: {message}."


def test_a_recording_can_be_written_to_an_open_file() -> None:
    target = io.BytesIO()
    Model("openai:gpt", via=Scripted("Sunny."), record=target).complete("Hi.")
    first, *_, last = target.getvalue().splitlines()
    assert json.loads(first)["type"] == "request"
    assert json.loads(last)["type"] == "end"


@sync_and_async
@pytest.mark.parametrize("place", ["nowhere/recording.jsonl", "."])
def test_a_file_that_cannot_be_written_is_an_error_before_the_request(mode: str, place: str, tmp_path: Path) -> None:
    script = Scripted(always("Hi."))
    with pytest.raises(penstock.UsageError, match="cannot write the recording"):
        read(mode, Model("openai:gpt", via=script, record=tmp_path / place))
    assert script.requests == []


@sync_and_async
def test_a_response_that_broke_off_is_recorded_up_to_there(mode: str, file: Path) -> None:
    reply = Reply(say("Let me look."), call("weather", '{"city": "Ro'), drop())
    with Loopback(always(reply)) as server:
        _, stream = read(mode, model_at(server, "anthropic", record=file))
        [kept] = read_recordings(file)
        assert not kept.is_whole
        chunks, again = read(mode, Model(f"replay:{file}", retries=SOON))
    assert again.turn.parts == stream.turn.parts
    assert (again.text, again.finish_reason, again.tool_calls) == ("Let me look.", "cut", [])
    assert again.turn.invalid_calls[0].why == "cut"
    assert again.error is not None
    assert isinstance(chunks[-1], events.Finish)


@sync_and_async
def test_a_response_that_was_left_is_recorded_up_to_there(mode: str, file: Path) -> None:
    async def leave(model: Model) -> None:
        async with model.astream("Hi.") as stream:
            async for _ in stream:
                break

    with Loopback(Reply(say("Let"), wait(3600))) as server:
        model = model_at(server, record=file)
        if mode == "async":
            asyncio.run(leave(model))
        else:
            with model.stream("Hi.") as stream:
                next(stream)
    [kept] = read_recordings(file)
    assert not kept.is_whole
    assert penstock.collect(penstock.decode(kept.body, "openai-chat")).text == "Let"


@sync_and_async
def test_a_retried_response_is_recorded_and_replayed_as_two_exchanges(mode: str, file: Path) -> None:
    retries = Retries(first_delay=0.001, after_start=True)
    with Loopback([Reply(say("Let me loo"), drop()), Reply("Let me look.")]) as server:
        chunks, _ = read(mode, model_at(server, record=file, retries=retries))
    assert [kept.is_whole for kept in read_recordings(file)] == [False, True]
    again, stream = read(mode, Model(f"replay:{file}", retries=retries))
    kinds = [type(chunk) for chunk in joined(again)]
    assert kinds == [type(chunk) for chunk in joined(chunks)]
    assert (stream.text, events.Retry in kinds) == ("Let me look.", True)


# Replaying.


@every_wire
@sync_and_async
def test_a_replay_gives_the_same_turn(wire: str, mode: str, file: Path) -> None:
    script = Scripted([WEATHER, "Sunny."])
    model = model_on(wire, via=script, record=file)
    turns = [read(mode, model, words, tools=TOOLS)[1].turn for words in ("How is it?", "And now?")]
    again = Model(f"replay:{file}")
    assert (again.wire, again.model) == (model.wire, model.model)
    for words, turn in (("And now?", turns[1]), ("How is it?", turns[0])):  # in any order
        assert read(mode, again, words, tools=TOOLS)[1].turn == turn


@pytest.mark.parametrize(
    "name",
    ["anthropic:claude", "anthropic/claude", "gemini:flash", "openrouter/meta-llama/llama-3:free", "sim:fast"],
)
def test_a_recording_is_replayed_whatever_the_name_of_its_model(name: str, file: Path) -> None:
    via = None if name.startswith("sim:") else Scripted("Sunny.")
    model = Model(name, via=via, record=file)
    turn = model.complete("Hi.", max_tokens=5)
    again = Model(f"replay:{file}")
    assert again.model == model.model
    assert again.complete("Hi.", max_tokens=5) == turn


def test_calls_in_the_text_are_found_in_a_replay(file: Path) -> None:
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    model = Model("openai:gpt", via=Scripted(text), record=file)
    turn = model.complete("Hi.", TOOLS, calls="hermes")
    assert turn.tool_calls[0].origin == "text:hermes"
    assert Model(f"replay:{file}").complete("Hi.", TOOLS, calls="hermes") == turn


def test_each_recorded_response_is_replayed_once(file: Path) -> None:
    model = Model("openai:gpt", via=Scripted(["One.", "Two."]), record=file)
    for _ in range(2):
        model.complete("Hi.")
    again = Model(f"replay:{file}")
    assert [again.complete("Hi.").text for _ in range(2)] == ["One.", "Two."]
    with pytest.raises(ReplayMissError, match="the recording has only 2 responses"):
        again.complete("Hi.")


@sync_and_async
def test_a_miss_names_the_first_difference(mode: str, file: Path) -> None:
    recorded(file, wire="openai-chat")
    again = Model(f"replay:{file}")
    with pytest.raises(ReplayMissError) as missed:
        read(mode, again, "Ho.")
    place = '$.messages[0].content is "Hi." in the recording, and "Ho." in the request'
    assert str(missed.value) == f"the recording has no response for this request: {place}"
    with pytest.raises(ReplayMissError, match=r"\$\.temperature is only in the request"):
        read(mode, again, "Hi.", temperature=1)
    assert read(mode, again, "Hi.")[1].text == "Sunny."


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ({"a": 1}, {"a": 2}, "$.a is 1 in the recording, and 2 in the request"),
        ({"a": 1, "b": 1}, {"b": 2}, "$.a is only in the recording"),
        ({}, {"b": 2}, "$.b is only in the request"),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "$.a[1].b is 2 in the recording, and 3 in the request"),
        ({"a": [1]}, {"a": [1, 2]}, "$.a has 1 entries in the recording, and 2 in the request"),
        ({"a": [1]}, {"a": {"b": 1}}, '$.a is [1] in the recording, and {"b":1} in the request'),
        ({"a": "x" * 500}, {"a": None}, f'$.a is "{"x" * 79}… in the recording, and null in the request'),
    ],
)
def test_the_first_difference_is_found(one: Any, other: Any, message: str) -> None:
    assert difference(one, other) == message


LINES: list[dict[str, Any]] = [
    {"type": "request", "wire": "openai-chat", "model": "openai:gpt", "url": "", "penstock": 2,
     "body": {"model": "gpt", "messages": [{"role": "user", "content": "Hi."}], "stream": True,
              "stream_options": {"include_usage": True}}},
    {"type": "response", "at": 1.0, "status": 200},
    {"type": "data", "at": 2.0, "text": 'data: {"choices": [{"index": 0, "delta": {"content": "Let me"}}]}\n\n'},
    {"type": "data", "at": 5.0, "text": 'data: {"choices": [{"index": 0, "delta": {"content": " look."}}]}\n\n'},
    {"type": "data", "at": 5.0, "base64": "ZGF0YTogW0RPTkVdCgo="},
    {"type": "end", "at": 5.0},
]  # fmt: skip


def written(file: Path, *lines: Any) -> Path:
    file.write_text(
        "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines), encoding="utf-8"
    )
    return file


def beats(file: Path, **options: Any) -> list[Any]:
    replay = Replay(file, **options)
    opened = next(Model("openai:gpt", via=replay, wire="openai-chat").ask("Hi.").commands())
    return list(replay._respond(opened).actions)  # type: ignore[arg-type]


def test_a_replay_has_the_recorded_speed_another_or_no_delays(file: Path) -> None:
    written(file, *LINES)
    waits = {
        speed: [beat.seconds for beat in beats(file, speed=speed) if isinstance(beat, Wait)] for speed in (0, 1, 4)
    }
    assert waits == {0: [], 1: [2, 3, 0], 4: [0.5, 0.75, 0]}
    assert b"".join(beats(file)).endswith(b"data: [DONE]\n\n")


@sync_and_async
def test_a_replay_with_a_speed_takes_time(mode: str, file: Path) -> None:
    written(file, *LINES)
    model = Model("openai:gpt", via=Replay(file, speed=50), wire="openai-chat", timeouts=Timeouts(idle=0.01))
    _, stream = read(mode, model)
    assert (stream.text, stream.finish_reason) == ("Let me", "cut")
    assert stream.error.message == "no data received for 0.01 seconds (timeouts.idle)"


@sync_and_async
@pytest.mark.parametrize("how", ["bytes", 4])
def test_a_replay_can_have_other_cuts(mode: str, how: Any, file: Path) -> None:
    written(file, *LINES)
    pieces = beats(file, cuts=how)
    assert b"".join(pieces) == b"".join(beats(file))
    assert len(pieces) > 3
    chunks, stream = read(mode, Model("openai:gpt", via=Replay(file, cuts=how), wire="openai-chat"))
    expected, _ = read(mode, Model("openai:gpt", via=Replay(file), wire="openai-chat"))
    assert (joined(chunks), stream.text) == (joined(expected), "Let me look.")
    with pytest.raises(penstock.UsageError, match="not 'lines'"):
        Replay(file, cuts="lines")  # type: ignore[arg-type]


def test_a_recording_without_an_end_is_interrupted(file: Path) -> None:
    assert isinstance(beats(written(file, *LINES[:-1]))[-1], Drop)
    assert len(beats(written(file, *LINES[:3], json.dumps(LINES[3])[:40]))) == 2, "a line that is cut is left out"
    assert len(beats(written(file, *LINES[:-1], json.dumps(LINES[-1])))) == 3, "the last line may lack its end"
    assert [kept.is_whole for kept in read_recordings(written(file, *LINES[:3], *LINES))] == [False, True]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["what is this\n"], "line 1 of .* does not belong to a recording"),
        ([*LINES[:2], {"type": "went"}], "line 3 of .* does not belong to a recording"),
        ([LINES[-1]], "line 1: the end of an exchange that has no beginning"),
        ([{**LINES[0], "penstock": 99}], r"written by a newer version of penstock \(format 99, this version reads 2\)"),
        ([], "the recording .* is empty"),
        ([LINES[0]], "the recording .* is empty"),
    ],
)
def test_a_file_that_is_not_a_recording_is_an_error(lines: list[Any], message: str, file: Path) -> None:
    with pytest.raises(penstock.UsageError, match=message):
        Model(f"replay:{written(file, *lines)}")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(penstock.UsageError, match=r"cannot read the recording .*nowhere.*: No such file"):
        Model(f"replay:{tmp_path / 'nowhere'}")
    with pytest.raises(penstock.UsageError, match="cannot read the recording"):
        Model(f"replay:{tmp_path}")


# `penstock record` and `penstock replay`.


def run(*arguments: str, env: dict[str, str] | None = None) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(command, arguments, env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def test_record_writes_a_response_and_replay_shows_it(file: Path) -> None:
    result = run("record", "-m", "sim:fast", "-o", str(file), "How are you?")
    assert result.exit_code == 0
    assert f"penstock replay {file}" in result.stdout.replace("\n", "")
    again = run("replay", "--speed", "0", str(file))
    assert again.exit_code == 0
    answer = result.stdout.partition("\nrecorded in")[0].strip()
    assert answer in again.stdout
    assert "sim:fast" in again.stdout
    assert run("chat", "-m", f"replay:{file}", "How are you?").stdout.strip() == answer


def test_record_appends_to_a_file_and_replay_shows_all(file: Path) -> None:
    for words in ("Are you Ada?", "Are you Bob?"):
        assert run("record", "-m", "sim:fast", "-o", str(file), words).exit_code == 0
    result = run("replay", "--speed", "0", str(file)).stdout
    assert "Are you Ada?" in result.partition("Are you Bob?")[0]


def test_replay_as_json_prints_one_event_per_line(file: Path) -> None:
    recorded(file)
    chunks = [events.decode(line) for line in run("replay", "--json", "--speed", "0", str(file)).stdout.splitlines()]
    assert penstock.collect(chunks).text == "Sunny."


def test_record_does_not_write_the_key(file: Path) -> None:
    with Loopback("Sunny.") as server:
        url = server.base_url("anthropic")
        result = run("record", "-m", "anthropic:claude", "--base-url", url, "-o", str(file), "Hi.",
                    env={"ANTHROPIC_API_KEY": KEY})  # fmt: skip
    assert (result.exit_code, "Sunny." in result.stdout) == (0, True)
    assert KEY not in file.read_text(encoding="utf-8") + result.output


def test_replay_reports_an_interrupted_response_by_its_exit_code(file: Path) -> None:
    written(file, *LINES[:3])
    result = run("replay", "--speed", "0", str(file))
    assert (result.exit_code, "Let me" in result.stdout, "cut" in result.stdout) == (1, True, True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["record", "-m", "antropic:claude", "-o", "FILE", "Hi."], 2, "did you mean 'anthropic'"),
        (["record", "-m", "sim:fast", "-o", "/nowhere/at/all", "Hi."], 2, "cannot write the recording"),
        (["record", "-m", "sim:fast", "Hi."], 2, "--output"),
        (["record", "-m", "vllm:m", "--base-url", "127.0.0.1:9", "-o", "FILE", "Hi."], 3, "connection to 127.0.0.1:9"),
        (["replay", "/nowhere/at/all"], 2, "does not exist"),
        (["replay", "JUNK"], 2, "does not belong to a recording"),
        (["replay", "WIRE"], 2, "unknown wire 'smoke'"),
        (["replay", "--json", "WIRE"], 2, "unknown wire 'smoke'"),
    ],
)
def test_record_and_replay_report_usage_errors(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)  # retries without delay
    written(tmp_path / "JUNK", "what is this\n")
    written(tmp_path / "WIRE", {**LINES[0], "wire": "smoke"}, *LINES[1:])
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
