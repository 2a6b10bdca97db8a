"""Recordings: the exact bytes of an answer, when they came, and to what; without the key, and played again."""

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
from penstock.model.recording import Recording, read_recordings
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
    """The recording of one answer, in this file."""
    Model("openai:gpt", via=Scripted(text), record=path, **options).stream_text_and_classify("Hi.")
    return read_recordings(path)[-1]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "recording.jsonl"


# What is kept.


@every_wire
@sync_and_async
@pytest.mark.parametrize("how", [None, "bytes"])
def test_the_bytes_are_kept_as_they_came_and_the_key_is_not(wire: str, mode: str, how: Any, file: Path) -> None:
    with Loopback(WEATHER, cuts=how) as server:
        model = model_at(server, wire, record=file, headers={"x-proxy-token": KEY})
        _, stream = read(mode, model, tools=TOOLS)
    [kept] = read_recordings(file)
    [asked] = server.requests
    assert kept.body == b"".join(frames(wire, WEATHER, request=asked))
    assert (kept.request.body, kept.request.wire, kept.request.model) == (asked.body, model.wire, model.name)
    assert (kept.response.status, kept.is_whole) == (200, True)
    assert penstock.collect(penstock.decode(kept.body, model.wire)).tool_calls == stream.tool_calls
    times = [kept.response.at, *(piece.at for piece in kept.pieces)]
    assert times == sorted(times)
    assert times[0] >= 0
    assert KEY.encode() not in file.read_bytes()


@sync_and_async
def test_the_times_run_from_the_request(mode: str, file: Path) -> None:
    with Loopback(Reply(wait(0.2), say("Let me look."), wait(0.2), say(" Sunny.")), pace=0.001) as server:
        read(mode, model_at(server, record=file))
    [kept] = read_recordings(file)
    late = [piece.at for piece in kept.pieces if b" Sun" in piece.data]
    assert 0.4 <= late[0] < 10
    assert json.loads(file.read_bytes().splitlines()[-1])["at"] >= late[0]


def test_what_tells_who_asked_is_not_kept(file: Path) -> None:
    headers = {"set-cookie": "session=1", "x-request-id": "req_1", "x-account": "ada", "openai-organization": "ada"}
    body = b"".join(frames("openai-chat", Reply("Hi.")))
    with Loopback(Raw(body, headers=headers)) as server:
        address = server.base_url("openai-chat").replace("//", f"//ada:{KEY}@")
        model = Model("openai:gpt", address, "", wire="openai-chat", record=file)
        assert read("sync", model)[1].text == "Hi."
    [kept] = read_recordings(file)
    assert kept.response.headers["x-request-id"] == "req_1"
    assert not {"set-cookie", "x-account", "openai-organization"} & kept.response.headers.keys()
    assert KEY not in file.read_text(encoding="utf-8")


@sync_and_async
def test_a_key_that_the_answer_repeats_is_masked(mode: str, file: Path) -> None:
    with Loopback(Status(200, f"Wrong key: {KEY}")) as server:
        read(mode, model_at(server, record=file))
    assert KEY not in file.read_text(encoding="utf-8")
    assert "Wrong key: ***" in file.read_text(encoding="utf-8")


def test_a_file_holds_one_exchange_after_another(file: Path) -> None:
    line = Scripted(["One.", "Two.", "Three."])
    for _ in range(3):
        Model("openai:gpt", via=line, record=str(file)).stream_text_and_classify("Hi.")
    texts = [
        penstock.collect(penstock.decode(kept.body, wire_name(kept.request.wire))).text
        for kept in read_recordings(file)
    ]
    assert texts == ["One.", "Two.", "Three."]


def test_exchanges_at_the_same_time_are_not_mixed(file: Path) -> None:
    async def ask_all(model: Model) -> None:
        await asyncio.gather(*(aread(model, f"number {at}") for at in range(20)))

    def echo(asked: ReceivedRequest) -> str:
        return f"You said {asked.prompt}, and I say it again: {asked.prompt}."

    with Loopback(echo, cuts=3) as server:
        model = model_at(server, record=file)
        asyncio.run(ask_all(model))
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(lambda at: model.stream_text_and_classify(f"number {at}"), range(20, 40)))
    kept = read_recordings(file)
    assert len(kept) == 40
    assert all(one.is_whole for one in kept)
    for one in kept:
        said = one.request.body["messages"][0]["content"]
        text = penstock.collect(penstock.decode(one.body, "openai-chat")).text
        assert text == f"You said {said}, and I say it again: {said}."


def test_a_recording_may_go_to_an_open_file() -> None:
    target = io.BytesIO()
    Model("openai:gpt", via=Scripted("Sunny."), record=target).stream_text_and_classify("Hi.")
    first, *_, last = target.getvalue().splitlines()
    assert json.loads(first)["type"] == "request"
    assert json.loads(last)["type"] == "end"


@sync_and_async
@pytest.mark.parametrize("place", ["nowhere/recording.jsonl", "."])
def test_a_file_that_cannot_be_written_is_told_before_anything_is_asked(mode: str, place: str, tmp_path: Path) -> None:
    line = Scripted(always("Hi."))
    with pytest.raises(penstock.UsageError, match="cannot write the recording"):
        read(mode, Model("openai:gpt", via=line, record=tmp_path / place))
    assert line.requests == []


@sync_and_async
def test_an_answer_that_broke_off_is_kept_as_far_as_it_came(mode: str, file: Path) -> None:
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
def test_an_answer_that_was_left_is_kept_as_far_as_it_was_read(mode: str, file: Path) -> None:
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
def test_an_answer_that_was_begun_anew_is_two_exchanges_and_is_replayed_as_such(mode: str, file: Path) -> None:
    retries = Retries(first_delay=0.001, after_start=True)
    with Loopback([Reply(say("Let me loo"), drop()), Reply("Let me look.")]) as server:
        chunks, _ = read(mode, model_at(server, record=file, retries=retries))
    assert [kept.is_whole for kept in read_recordings(file)] == [False, True]
    again, stream = read(mode, Model(f"replay:{file}", retries=retries))
    kinds = [type(chunk) for chunk in joined(again)]
    assert kinds == [type(chunk) for chunk in joined(chunks)]
    assert (stream.text, events.Retry in kinds) == ("Let me look.", True)


# Played again.


@every_wire
@sync_and_async
def test_a_replay_gives_the_same_turn(wire: str, mode: str, file: Path) -> None:
    line = Scripted([WEATHER, "Sunny."])
    model = model_on(wire, via=line, record=file)
    turns = [read(mode, model, words, tools=TOOLS)[1].turn for words in ("How is it?", "And now?")]
    again = Model(f"replay:{file}")
    assert (again.wire, again.model) == (model.wire, model.model)
    for words, turn in (("And now?", turns[1]), ("How is it?", turns[0])):  # in whatever order
        assert read(mode, again, words, tools=TOOLS)[1].turn == turn


@pytest.mark.parametrize(
    "name",
    ["anthropic:claude", "anthropic/claude", "gemini:flash", "openrouter/meta-llama/llama-3:free", "sim:fast"],
)
def test_a_recording_is_replayed_however_its_model_was_named(name: str, file: Path) -> None:
    via = None if name.startswith("sim:") else Scripted("Sunny.")
    model = Model(name, via=via, record=file)
    turn = model.stream_text_and_classify("Hi.", max_tokens=5)
    again = Model(f"replay:{file}")
    assert again.model == model.model
    assert again.stream_text_and_classify("Hi.", max_tokens=5) == turn


def test_calls_in_the_text_are_found_in_a_replay_too(file: Path) -> None:
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    model = Model("openai:gpt", via=Scripted(text), record=file)
    turn = model.stream_text_and_classify("Hi.", TOOLS, calls="hermes")
    assert turn.tool_calls[0].origin == "text:hermes"
    assert Model(f"replay:{file}").stream_text_and_classify("Hi.", TOOLS, calls="hermes") == turn


def test_the_same_request_gets_one_answer_after_another_and_then_none(file: Path) -> None:
    model = Model("openai:gpt", via=Scripted(["One.", "Two."]), record=file)
    for _ in range(2):
        model.stream_text_and_classify("Hi.")
    again = Model(f"replay:{file}")
    assert [again.stream_text_and_classify("Hi.").text for _ in range(2)] == ["One.", "Two."]
    with pytest.raises(ReplayMissError, match="the recording has only 2 responses"):
        again.stream_text_and_classify("Hi.")


@sync_and_async
def test_a_miss_says_what_differs_first(mode: str, file: Path) -> None:
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
    ("one", "other", "said"),
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
def test_the_first_difference_is_found(one: Any, other: Any, said: str) -> None:
    assert difference(one, other) == said


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


def test_a_replay_keeps_the_recorded_pace_a_chosen_one_or_none(file: Path) -> None:
    written(file, *LINES)
    waits = {
        speed: [beat.seconds for beat in beats(file, speed=speed) if isinstance(beat, Wait)] for speed in (0, 1, 4)
    }
    assert waits == {0: [], 1: [2, 3, 0], 4: [0.5, 0.75, 0]}
    assert b"".join(beats(file)).endswith(b"data: [DONE]\n\n")


@sync_and_async
def test_a_replay_at_a_pace_takes_its_time(mode: str, file: Path) -> None:
    written(file, *LINES)
    model = Model("openai:gpt", via=Replay(file, speed=50), wire="openai-chat", timeouts=Timeouts(idle=0.01))
    _, stream = read(mode, model)
    assert (stream.text, stream.finish_reason) == ("Let me", "cut")
    assert stream.error.message == "no data received for 0.01 seconds (timeouts.idle)"


@sync_and_async
@pytest.mark.parametrize("how", ["bytes", 4])
def test_a_replay_may_be_cut_anew(mode: str, how: Any, file: Path) -> None:
    written(file, *LINES)
    pieces = beats(file, cuts=how)
    assert b"".join(pieces) == b"".join(beats(file))
    assert len(pieces) > 3
    chunks, stream = read(mode, Model("openai:gpt", via=Replay(file, cuts=how), wire="openai-chat"))
    expected, _ = read(mode, Model("openai:gpt", via=Replay(file), wire="openai-chat"))
    assert (joined(chunks), stream.text) == (joined(expected), "Let me look.")
    with pytest.raises(penstock.UsageError, match="not 'lines'"):
        Replay(file, cuts="lines")  # type: ignore[arg-type]


def test_a_recording_without_an_end_was_broken_off(file: Path) -> None:
    assert isinstance(beats(written(file, *LINES[:-1]))[-1], Drop)
    assert len(beats(written(file, *LINES[:3], json.dumps(LINES[3])[:40]))) == 2, "a line that is cut is left out"
    assert len(beats(written(file, *LINES[:-1], json.dumps(LINES[-1])))) == 3, "the last line may lack its end"
    assert [kept.is_whole for kept in read_recordings(written(file, *LINES[:3], *LINES))] == [False, True]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["what is this\n"], "line 1 of .* does not belong to a recording"),
        ([*LINES[:2], {"type": "went"}], "line 3 of .* does not belong to a recording"),
        ([LINES[-1]], "line 1: the end of an exchange that has no beginning"),
        ([{**LINES[0], "penstock": 99}], r"written by a newer version of penstock \(format 99, this version reads 2\)"),
        ([], "the recording .* is empty"),
        ([LINES[0]], "the recording .* is empty"),
    ],
)
def test_a_file_that_is_no_recording_is_told(lines: list[Any], said: str, file: Path) -> None:
    with pytest.raises(penstock.UsageError, match=said):
        Model(f"replay:{written(file, *lines)}")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
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


def test_record_keeps_an_answer_and_replay_shows_it_again(file: Path) -> None:
    shown = run("record", "-m", "sim:fast", "-o", str(file), "How are you?")
    assert shown.exit_code == 0
    assert f"penstock replay {file}" in shown.stdout.replace("\n", "")
    again = run("replay", "--speed", "0", str(file))
    assert again.exit_code == 0
    answer = shown.stdout.partition("\nrecorded in")[0].strip()
    assert answer in again.stdout
    assert "sim:fast" in again.stdout
    assert run("chat", "-m", f"replay:{file}", "How are you?").stdout.strip() == answer


def test_record_adds_to_a_file_and_replay_shows_all(file: Path) -> None:
    for words in ("Are you Ada?", "Are you Bob?"):
        assert run("record", "-m", "sim:fast", "-o", str(file), words).exit_code == 0
    shown = run("replay", "--speed", "0", str(file)).stdout
    assert "Are you Ada?" in shown.partition("Are you Bob?")[0]


def test_replay_prints_an_event_a_line(file: Path) -> None:
    recorded(file)
    found = [events.decode(line) for line in run("replay", "--json", "--speed", "0", str(file)).stdout.splitlines()]
    assert penstock.collect(found).text == "Sunny."


def test_record_keeps_no_key(file: Path) -> None:
    with Loopback("Sunny.") as server:
        url = server.base_url("anthropic")
        shown = run("record", "-m", "anthropic:claude", "--base-url", url, "-o", str(file), "Hi.",
                    env={"ANTHROPIC_API_KEY": KEY})  # fmt: skip
    assert (shown.exit_code, "Sunny." in shown.stdout) == (0, True)
    assert KEY not in file.read_text(encoding="utf-8") + shown.output


def test_replay_tells_an_answer_that_broke_off_by_its_exit_code(file: Path) -> None:
    written(file, *LINES[:3])
    shown = run("replay", "--speed", "0", str(file))
    assert (shown.exit_code, "Let me" in shown.stdout, "cut" in shown.stdout) == (1, True, True)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
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
def test_record_and_replay_say_what_is_wrong(
    arguments: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)  # tried again without a pause
    written(tmp_path / "JUNK", "what is this\n")
    written(tmp_path / "WIRE", {**LINES[0], "wire": "smoke"}, *LINES[1:])
    monkeypatch.chdir(tmp_path)
    shown = run(*arguments)
    assert shown.exit_code == code
    assert said in shown.stderr
