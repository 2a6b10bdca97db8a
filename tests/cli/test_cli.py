"""The command line: decode, its output for people and for scripts, and how commands end."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click.testing
import pytest
from rich.console import Console

from penstock import (
    Finish,
    Retry,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    UsageError,
    events,
)
from penstock.adapters.wire_detector import is_understood
from penstock.cli.app import penstock as command
from penstock.cli.screen.output import show_response
from penstock.cli.screen.response_page import Choices
from penstock.cli.wire_detection import detect_wire
from penstock.inspector.oddities import Oddities
from penstock.wires import ALIASES, WIRES
from tests.budget import sample
from tests.cases import each
from tests.support import Vector, decode_pieces, pieces_of, vectors

WIRE = "openai-chat"
PENSTOCK = [sys.executable, "-m", "penstock.cli"]
PLAIN = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE")}
PATIENCE = 20  # seconds until a live test gives up; it waits for what it expects, not for the time


def data(frame: Any) -> str:
    return f"data: {json.dumps(frame)}\n\n"


def chunk(delta: Any, finish: str | None = None, choice: int = 0) -> str:
    return data({"choices": [{"index": choice, "delta": delta, "finish_reason": finish}]})


def piece(index: int, arguments: str, **entry: Any) -> str:
    function = {"arguments": arguments} | ({"name": entry.pop("name")} if "name" in entry else {})
    return chunk({"tool_calls": [{"index": index, "function": function, **entry}]})


USAGE = data({"choices": [], "usage": {"prompt_tokens": 1200, "completion_tokens": 7}})
DONE = "data: [DONE]\n\n"
GOOD = (
    chunk({"reasoning_content": "Look it up."})
    + chunk({"content": "One "})
    + chunk({"content": "moment."})
    + piece(0, '{"city": ', id="call_a", name="get_weather")
    + piece(0, '"Paris"}')
    + chunk({}, "tool_calls")
    + USAGE
    + DONE
)


def run(*arguments: str, body: str | bytes = GOOD, env: dict[str, str] | None = None) -> click.testing.Result:
    return click.testing.CliRunner().invoke(command, arguments, input=body, env=env)


def decode(body: str | bytes, *arguments: str) -> str:
    return run("decode", "--wire", WIRE, *arguments, body=body).stdout


def odd(body: str) -> list[str]:
    """The last list, without its bullets."""
    _, _, output = decode(body).partition("odd about this stream\n")
    return [line.removeprefix("  • ") for line in output.splitlines()]


# --json: for scripts.


def test_json_has_one_event_per_line() -> None:
    result = run("decode", "--wire", WIRE, "--json")
    assert [events.decode(line) for line in result.stdout.splitlines()] == decode_pieces(WIRE, [GOOD.encode()])
    assert result.exit_code == 0
    assert result.stderr == ""


def test_json_escapes_control_characters_and_keeps_their_value() -> None:
    nasty = "a\x1b[2Jb\x9b31mc\x7fd\u2028e"
    result = run("decode", "--wire", WIRE, "--json", body=chunk({"content": nasty}))
    assert re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f]", result.stdout) == []
    first = events.decode(result.stdout.split("\n")[0])
    assert isinstance(first, Text)
    assert first.text == nasty


def test_a_file_is_decoded_like_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "body.sse"
    file.write_text(GOOD)
    assert run("decode", "--wire", WIRE, str(file)).stdout == run("decode", "--wire", WIRE, "-").stdout == decode(GOOD)


@pytest.mark.parametrize("calls", [["--calls", "hermes,qwen3_coder"], ["--calls", "hermes", "--calls", "qwen3-coder"]])
def test_the_text_is_read_in_several_dialects(calls: list[str]) -> None:
    text = '<tool_call>{"name": "a", "arguments": {}}</tool_call><function=b><parameter=x>1</parameter></function>'
    body = chunk({"content": text}, "stop") + USAGE + DONE
    found = [events.decode(line) for line in decode(body, "--json", *calls).splitlines()]
    assert [event.name for event in found if isinstance(event, ToolCall)] == ["a", "b"]


@pytest.mark.parametrize(("arguments", "message"), [
    (("decode", "--calls", "hermez"), "unknown dialect 'hermez', did you mean 'hermes'?"),
    (("decode", "--calls", "hermes", "--tools", "a", "--rescue"), "--calls is for a model without native calls"),
    (("chat", "-m", "vllm:unknown", "--calls", "auto", "--base-url", "http://127.0.0.1:9/v1", "Hi."),
     "the dialect of the model 'unknown' is not known"),
    (("chat", "-m", "vllm:unknown", "--calls", "xml,auto", "--base-url", "http://127.0.0.1:9/v1", "Hi."),
     "calls must be 'native', 'auto', a dialect, or several dialects"),
])  # fmt: skip
def test_wrong_dialects_on_the_command_line_are_named(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_tools_complete_a_name_that_arrives_in_pieces() -> None:
    body = piece(0, "", id="a", name="get") + piece(0, "{}", id="a", name="_weather") + chunk({}, "tool_calls") + DONE
    names = [event.name for line in decode(body, "--json", "--tools", "get_weather, get").splitlines()
             if isinstance(event := events.decode(line), ToolCallStart)]  # fmt: skip
    assert names == ["get_weather"]


# How it ends.


@pytest.mark.parametrize("flag", [(), ("--json",)])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (GOOD, 0),
        (GOOD[:-200], 1),
        ("", 1),
        (chunk({"content": "Half"}) + data({"error": {"message": "Overloaded"}}), 1),
        (chunk({"content": "One"}, "stop") + chunk({"content": "Two"}, choice=1), 1),
        ("<html>Bad Gateway</html>", 1),
        (b"\x1f\x8b\x08\x00 compressed", 1),
        (b"\x00\xff" * 100, 1),
    ],
)
def test_the_exit_code_says_whether_the_stream_ended_well(flag: tuple[str, ...], body: str | bytes, code: int) -> None:
    assert run("decode", "--wire", WIRE, *flag, body=body).exit_code == code


@pytest.mark.parametrize(("arguments", "message"), [
    (("decode", "--wire", "antropic"), "unknown wire 'antropic', did you mean 'anthropic'?\n"),
    (("decode", "--wire", "telex"), "unknown wire 'telex'; use one of: anthropic, bedrock, "),
    (("decod",), "unknown command 'decod', did you mean 'decode'?\n"),
    (("juggle",), "unknown command 'juggle'.\n"),
    (("help",), "unknown command 'help', did you mean 'penstock --help'?\n"),
    (("version",), "unknown command 'version', did you mean 'penstock --version'?\n"),
])  # fmt: skip
def test_an_unknown_name_gets_one_suggestion(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


# Without --wire.


def test_the_wire_is_detected_and_named() -> None:
    result = run("decode")
    assert (result.exit_code, result.stdout) == (0, decode(GOOD))
    assert result.stderr == "detected wire: openai-chat\n"


@pytest.mark.parametrize("size", [sys.maxsize, 40, 1])
def test_every_vector_that_any_wire_understands_is_detected(size: int) -> None:
    for vector in vectors() if size == sys.maxsize else sample(vectors(), few=80):
        wire, body = ALIASES.get(vector.wire, vector.wire), vector.body()
        pieces = [body] if size == sys.maxsize else list(pieces_of(body, size))
        if any(map(is_understood, decode_pieces(wire, pieces, vector.tools))):
            detected, rest = detect_wire(iter(pieces))
            assert (detected, b"".join(rest)) == (wire, body), vector.name


@pytest.mark.parametrize("body", ['{"error": {"message": "Overloaded"}}', '{"error": "Overloaded"}'])
def test_an_error_body_needs_no_wire(body: str) -> None:
    result = run("decode", body=body)
    assert result.exit_code == 1
    assert "✗ error: Overloaded" in result.stdout
    assert result.stderr == "an error body; it reads the same on every wire\n"


@pytest.mark.parametrize("body", ['{"hello": "world"}', "hello\n", "# Penstock\n\nStreaming tool calls.\n"])
def test_a_body_that_no_wire_understands_is_quoted(body: str) -> None:
    result = run("decode", body=body)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"begins with '{body[:10].strip()}" in result.stderr
    assert all(wire in result.stderr for wire in WIRES)


@pytest.mark.parametrize("body", ["", "\n \n"])
def test_an_empty_body_is_reported(body: str) -> None:
    result = run("decode", body=body)
    assert (result.exit_code, result.stderr) == (2, "Error: the input is empty\n")


def test_a_recording_is_not_decoded(tmp_path: Path) -> None:
    file = tmp_path / "recording.jsonl"
    assert run("record", "-m", "sim:demo", "-o", str(file), "Hi").exit_code == 0
    result = run("decode", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "penstock replay FILE" in result.stderr


FAILED = {"type": "error", "error": {"code": "insufficient_quota", "message": "No credit"}}


@pytest.mark.parametrize(
    ("body", "wire"),
    [
        (data({"type": "response.created", "response": {"id": "resp_1"}}) + data(FAILED), "openai-responses"),
        (data({"candidates": [{"content": {}, "index": 0}]}), "gemini"),
    ],
)
def test_a_response_without_content_has_the_only_wire_that_knows_its_frames(body: str, wire: str) -> None:
    assert run("decode", body=body).stderr == f"detected wire: {wire}\n"


@pytest.mark.parametrize("flag", [(), ("--json",)])
def test_a_response_of_unknown_frames_is_not_a_success(flag: tuple[str, ...]) -> None:
    frames = [
        {"kind": "words", "words": "Hi"},
        {"kind": "end", "why": "COMPLETE"},
    ]
    body = "".join(json.dumps(frame) + "\n" for frame in frames)
    assert run("decode", *flag, "--wire", "cohere", body=body).exit_code == 1
    result = run("decode", *flag, body=body)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no wire understands this response" in result.stderr


def test_detection_gives_up_after_a_megabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.wire_detection.MAX_BYTES", 100)
    pieces = iter([b": ping\n\n"] * 1000)
    with pytest.raises(UsageError, match="no wire understands"):
        detect_wire(pieces)
    assert len(list(pieces)) > 900


@pytest.mark.parametrize(("file", "why"), [("nowhere.sse", "No such file"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_named(file: str, why: str) -> None:
    result = run("decode", "--wire", WIRE, file)
    assert result.exit_code == 2
    assert f"'{file}': {why}" in result.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("decode", "--help"), ("demo", "--help"), ("--version",)])
def test_every_help_names_the_command(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    assert "penstock" in result.stdout


def test_decode_help_lists_the_wires_and_the_exit_codes() -> None:
    output = run("decode", "--help").stdout
    assert all(wire in output for wire in WIRES)
    assert "Exit code" in output


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [
        ("click", ["models"]),
        ("rich", ["models"]),
        ("tomlkit", ["gateway", "--for", "codex"]),
        ("ruamel", ["gateway", "--for", "llm"]),
    ],
)
def test_without_the_extra_it_says_what_to_install(missing: str, arguments: list[str]) -> None:
    asked = f"sys.argv[1:] = {arguments!r}"
    code = f"import sys; sys.modules[{missing!r}] = None; {asked}; from penstock.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.endswith("pip install 'penstock-llm[cli]'\n")
    assert result.stderr.count("\n") == 1


# The readable view.


def test_a_response_is_rendered_block_by_block() -> None:
    assert decode(GOOD) == (
        "┊ Look it up.\n"
        "\n"
        "One moment.\n"
        "\n"
        "╭─ get_weather  call_a\n"
        '│  {"city": "Paris"}\n'
        "╰─ ✓ whole  the finish confirmed it\n"
        "\n"
        "■ tool_calls · 1,200 tokens in, 7 out\n"
    )


def test_one_token_is_singular() -> None:
    usage = data({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
    assert "■ stop · 1 token in, 1 out\n" in decode(chunk({"content": "Hi"}, "stop") + usage + DONE)


def test_an_invalid_call_shows_its_reason_and_its_repair() -> None:
    output = decode(piece(0, '{"a": 1}{"a": 1}', id="x", name="f") + chunk({}, "tool_calls") + USAGE + DONE)
    assert '╰─ ✗ duplicated: the arguments were sent 2 times\n   probably meant: {"a":1}\n' in output
    assert "  • 1 call that must not run: f (duplicated)\n" in output


def test_interleaved_calls_are_shown_one_after_the_other() -> None:
    body = piece(0, '{"a"', id="x", name="f") + piece(1, "{", id="y", name="g") + piece(0, ": 1}") + piece(1, "}")
    output = decode(body + chunk({}, "tool_calls") + USAGE + DONE)
    whole = "╰─ ✓ whole  the finish confirmed it\n"
    assert output.startswith(f'╭─ f  x\n│  {{"a": 1}}\n{whole}╭─ g  y\n│  {{}}\n{whole}')
    assert "2 jumps between interleaved calls" in output


def test_refusals_errors_and_state_are_shown() -> None:
    output = decode(
        chunk({"refusal": "Not that."})
        + piece(0, "{}", id="x", name="f", extra_content={"signature": "abc"})
        + data({"error": {"message": "Overloaded\nagain", "code": "overloaded_error"}})
    )
    assert "▌ refusal: Not that.\n" in output
    assert "· extra_content: 19 bytes of state to send back untouched\n" in output
    assert "✗ error overloaded_error: Overloaded\\nagain  can be retried\n" in output
    assert "\n■ error\n" in output


def test_choices_are_shown_one_after_the_other() -> None:
    pieces = [("One", "Uno"), (" two", " dos"), (" three", " tres")]
    body = "".join(chunk({"content": first}) + chunk({"content": second}, choice=1) for first, second in pieces)
    output = decode(body + chunk({}, "stop") + chunk({}, "stop", 1) + USAGE + DONE)
    assert output == (
        "One two three\n\n■ stop\n\n── choice 1 ──\n\nUno dos tres\n\n■ stop\n  usage  1,200 tokens in, 7 out\n"
    )


def test_held_back_choices_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.screen.response_page.MAX_HELD", 2)
    choices = Choices()
    assert choices.feed(Text(0, "a")) == [Text(0, "a")]
    held = [Text(1, str(number), 1) for number in range(3)]
    assert [choices.feed(event) for event in held] == [[], [], held]
    assert choices.feed(Text(0, "b")) == []
    assert choices.feed(Finish("stop", choice=1)) == [Finish("stop", choice=1), Text(0, "b")]
    assert choices.close() == []


NASTY = "\x1b]0;title\x07 \x1b[2J \x9b31m \r \x00 \x7f \u202e"


def test_control_characters_in_a_response_are_escaped() -> None:
    body = (
        chunk({"reasoning_content": NASTY})
        + chunk({"content": f"{NASTY}\n\tend"})
        + chunk({"refusal": NASTY})
        + piece(0, NASTY, id=f"id{NASTY}", name=f"name{NASTY}")
        + data({NASTY: NASTY})
        + f"data: {NASTY}x\n\n"
        + data({"error": {"message": NASTY, "code": NASTY}})
        + chunk({}, NASTY)
    )
    output = decode(body)
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", output) == []
    assert "\\x1b]0;title\\x07 \\x1b[2J \\x9b31m \\r \\x00 \\x7f \\u202e\n\tend\n" in output


def test_markup_in_text_is_text() -> None:
    assert decode(chunk({"content": "[bold]x[/bold] [/] :smile: \\[red]"})).startswith(
        "[bold]x[/bold] [/] :smile: \\[red]\n"
    )


def test_a_long_unknown_frame_is_shortened() -> None:
    output = decode(data({"beat": "x" * 5000}))
    assert "? a frame without any known content: {" in output
    assert "more characters)" in output
    assert max(map(len, output.splitlines())) < 250


def test_a_flood_of_unknown_frames_is_counted() -> None:
    output = decode(data({"beat": 1}) * 50)
    assert output.count("? a frame without any known content") == 10
    assert "50 unknown frames; the first: a frame without any known content: " in output


# What is odd about a stream.


CALL = piece(0, "{}", id="x", name="f")
END = chunk({}, "tool_calls") + USAGE + DONE


IN_TEXT = 'call>{"name": "f", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (GOOD, []),
        (CALL + chunk({}, "stop") + USAGE + DONE, ['the finish reason was "stop", although calls are present']),
        (chunk({"content": "Hi"}) + END, ['the finish reason was "tool_calls", although no calls are present']),
        (chunk({"content": "Hi"}, "tired") + USAGE + DONE, ['the finish reason "tired" is unknown']),
        (CALL + USAGE + DONE, ["no finish reason was sent, only the end mark"]),
        (chunk({"content": "Hi"}, "stop") + DONE, ["usage missing"]),
        (chunk({"content": "Hi"}), ["the stream was cut: it ended without a finish reason"]),
        (chunk({"reasoning": "Hm"}, "stop") + USAGE + DONE, ["it has neither text nor calls"]),
        (piece(0, "{}", name="f") + END, ["1 call id was generated, as none was sent: generated-0 for f"]),
        (CALL + piece(1, "{}", id="x", name="g") + END,
         ["1 call id was sent again for another call: x, renamed to x_2"]),
        (chunk({"content": "a\x00"}) + chunk({"content": "b\x1b"}, "stop") + USAGE + DONE,
         ["2 pieces with control characters, shown escaped; the first: in the text"]),
        (chunk({"content": "\ufffd"}, "stop") + USAGE + DONE,
         ["1 piece with a broken character (U+FFFD): in the text"]),
        (chunk({"content": "Look. <tool_"}) + chunk({"content": f"{IN_TEXT}"}, "stop") + USAGE + DONE,
         ['1 call in the text: f as hermes; calls="hermes", rescue=True or `penstock gateway` finds it (quirk 86)']),
        (chunk({"content": f"Like `<tool_{IN_TEXT}`, or a <tool_call>."}, "stop") + USAGE + DONE, []),
    ],
)  # fmt: skip
def test_oddities_are_listed_at_the_end(body: str, expected: list[str]) -> None:
    assert odd(body) == expected


def test_a_wire_that_understands_nothing_is_questioned() -> None:
    doubt = "1 error: not_understood nothing in this body was understood: is it really openai-chat?"
    assert doubt in odd(data({"type": "message_start"}))


def test_a_wire_without_a_finish_reason_for_calls_may_send_stop() -> None:
    oddities = Oddities({"STOP": "stop"})
    for event in (events.ToolCall("x", "f", {}), events.Usage(1, 1), Finish("tool_calls", "STOP")):
        oddities.add(event)
    assert oddities.build() == []


def test_a_retry_withdraws_the_response_above() -> None:
    output = rendered([Text(0, "Hel"), Retry("overloaded"), Text(1, "Hello"), Finish("stop", "stop")])
    assert output.startswith("Hel\n\n↻ retry (overloaded): ignore the response above\n\nHello\n")
    assert "1 retry: the response was withdrawn: overloaded" in output


def test_calls_without_a_start_event_are_shown() -> None:
    output = rendered([ToolCallInvalid(0, "x", "", '{"a"', "unnamed", "the call has no name"), Finish("stop", "stop")])
    assert output.startswith('╭─ (no name)  x\n│  {"a"\n╰─ ✗ unnamed: the call has no name\n')


def test_arguments_that_the_provider_changes_at_the_end_are_odd() -> None:
    oddities = Oddities({})
    oddities.add(ToolCallDelta(0, '{"a": 1'))
    oddities.add(events.ToolCall("x", "f", {"a": 2}, '{"a": 2}', sealed_by="call_end"))
    assert "1 call with arguments that changed at its end: f" in oddities.build()


# Laws.


def rendered(stream: Sequence[events.StreamChunk], wire: str = WIRE, width: int = 0, *, is_batch: bool = True) -> str:
    """What is printed: plain text, or, with a width, what a terminal of that width gets."""
    file = io.StringIO()
    is_terminal = bool(width)
    console = Console(file=file, force_terminal=is_terminal, color_system=None, width=width or None)
    show_response(console, wire, [stream] if is_batch else ([event] for event in stream))
    return file.getvalue()


@each("vector", vectors(), ids=lambda vector: vector.name, parts=4, few=300)
def test_every_vector_renders_the_same_in_any_batches_and_any_width(vector: Vector) -> None:
    whole = decode_pieces(vector.wire, [vector.body()], vector.tools)
    output = rendered(whole, vector.wire)
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f]", output) == []
    assert rendered(decode_pieces(vector.wire, pieces_of(vector.body(), 1), vector.tools), vector.wire) == output
    assert rendered(whole, vector.wire, is_batch=False) == output
    narrow = rendered(whole, vector.wire, width=40)
    assert re.sub(r"[\s┊│▌]", "", narrow) == re.sub(r"[\s┊│▌]", "", output)


def test_lines_break_at_words() -> None:
    words = ["The", " quick", " brown", " fox", " jumps over", " the lazy", " dog", "ged person", " W" + "o" * 30]
    output = rendered([*(Text(0, word) for word in words), Unknown("x")], width=23)
    assert output.startswith(
        "The quick brown fox \njumps over the lazy \ndogged person Wooooooo\noooooooooooooooooooooo\no\n"
    )


# Real processes.


@contextmanager
def process(
    *arguments: str, output: int = subprocess.PIPE, env: dict[str, str] = PLAIN
) -> Generator[subprocess.Popen[bytes]]:
    command = [*PENSTOCK, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE, env=env) as child:
        try:
            yield child
        finally:
            child.kill()


def read_until(source: int, expected: bytes) -> bytes:
    """What comes until this was seen."""
    seen, deadline = b"", time.monotonic() + PATIENCE
    while expected not in seen:
        ready, _, _ = select.select([source], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{expected!r} did not come, only {seen!r}"
        try:
            new = os.read(source, 65536)
        except OSError:  # how a terminal says that nobody is at its other end any more
            new = b""
        assert new, f"{expected!r} did not come, only {seen!r}"
        seen += new
    return seen


@pytest.mark.parametrize("flag", [(), ("--json",)])
def test_a_live_pipe_shows_events_before_the_input_ends(flag: tuple[str, ...]) -> None:
    with process("decode", "--wire", WIRE, *flag) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for word in ("First", "second"):
            child.stdin.write(chunk({"content": word}).encode())
            child.stdin.flush()
            read_until(child.stdout.fileno(), word.encode())
        child.stdin.close()
        assert child.wait(PATIENCE) == 1


def piped(env: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    command = [*PENSTOCK, "decode", "--wire", WIRE]
    return subprocess.run(command, input=GOOD.encode(), check=False, capture_output=True, env=env)


def test_piped_output_is_plain() -> None:
    result = piped(PLAIN)
    assert result.returncode == 0
    assert result.stdout.decode() == decode(GOOD)
    assert result.stderr == b""


@contextmanager
def terminal(*arguments: str, **env: str) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    """The command with its output on a terminal of its own, and the other end of it."""
    ours, theirs = pty.openpty()
    try:
        settings = PLAIN | {"TERM": "xterm-256color", "COLUMNS": "80"} | env
        with process(*arguments, output=theirs, env=settings) as child:
            os.close(theirs)
            yield child, ours
    finally:
        os.close(ours)


def test_in_a_terminal_a_call_grows_in_colour() -> None:
    with terminal("decode", "--wire", WIRE) as (child, screen):
        assert child.stdin is not None
        for frame, expected in [
            (piece(0, '{"city": ', id="call_a", name="get_weather"), b'{"city": '),
            (piece(0, '"Par'), b'"Par'),
            (piece(0, 'is"}'), b'is"}'),
            (chunk({}, "tool_calls") + DONE, b"\xe2\x9c\x93 whole"),
        ]:
            child.stdin.write(frame.encode())
            child.stdin.flush()
            assert b"\x1b[" in read_until(screen, expected)


def test_no_color_turns_colours_off() -> None:
    with terminal("decode", "--wire", WIRE, NO_COLOR="1") as (child, screen):
        assert child.stdin is not None
        child.stdin.write(GOOD.encode())
        child.stdin.close()
        output = read_until(screen, b"7 out\x1b[K\r\n")
        assert re.findall(b"\x1b\\[[\\d;]*m", output) == []


@pytest.mark.parametrize("flag", [(), ("--json",)])
def test_ctrl_c_ends_quietly(flag: tuple[str, ...]) -> None:
    with process("decode", "--wire", WIRE, *flag) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdin.write(chunk({"content": "Half a"}).encode())
        child.stdin.flush()
        read_until(child.stdout.fileno(), b"Half a")
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE) == 130
        assert child.stdout.read() in (b"", b"\n")
        assert child.stderr.read() == b""


@pytest.mark.parametrize("flag", [(), ("--json",)])
def test_a_reader_that_goes_away_ends_it_quietly(flag: tuple[str, ...], tmp_path: Path) -> None:
    body = tmp_path / "body.sse"
    body.write_text(chunk({"content": "many words "}) * 20_000)
    with process("decode", "--wire", WIRE, *flag, str(body)) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.read(10)
        child.stdout.close()
        assert child.wait(PATIENCE) == 141
        assert child.stderr.read() == b""


def test_symbols_become_ascii_in_an_ascii_pipe() -> None:
    result = piped(PLAIN | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert result.returncode == 0
    assert b"\n'- + whole  the finish confirmed it\n" in result.stdout


def test_import_penstock_imports_neither_click_nor_rich() -> None:
    code = "import sys, penstock, penstock.cli; sys.exit(bool({'click', 'rich'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
