"""`penstock check`, as it is used in a shell."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.messages import assistant, decode_messages, encode_messages, result, tool_results, user
from tests.command import run_command
from tests.history.test_history import ASKED, CALLED, GOOD, ROME

ORPHAN: list[dict[str, Any]] = [
    {"role": "user", "content": "How is Rome?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
    {"role": "user", "content": "Hello?"},
]  # fmt: skip


def checked(content: bytes | str, *options: str) -> subprocess.CompletedProcess[bytes]:
    """The command on this file, given as standard input."""
    return run_command("check", "-", *options, input=content)


def test_a_valid_history_has_no_problems() -> None:
    done = checked(encode_messages(GOOD))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"no problems found\n", b"")
    assert checked(encode_messages(GOOD), "--provider", "gemini").stdout == b"no problems found for gemini\n"


def test_a_problem_is_printed_with_its_place() -> None:
    done = checked(json.dumps(ORPHAN))
    assert done.returncode == 1
    assert done.stdout.decode().splitlines() == [
        "messages[1].tool_calls[0]: the call 'c1' of 'weather' has no result (call_without_result)"
    ]
    assert checked(json.dumps(ORPHAN), "--provider", "ollama").returncode == 0
    [problem] = map(json.loads, checked(json.dumps(ORPHAN), "--json").stdout.splitlines())
    assert (problem["kind"], problem["where"]) == ("call_without_result", "messages[1].tool_calls[0]")
    assert "anthropic" in problem["providers"]


def test_a_repaired_history_is_printed_with_its_changes() -> None:
    done = checked(json.dumps(ORPHAN), "--repair")
    assert done.returncode == 0
    assert b"gave the call 'c1' an error" in done.stderr
    mended = json.loads(done.stdout)
    assert [message["role"] for message in mended] == ["user", "assistant", "tool", "user"]
    assert mended[:2] == ORPHAN[:2], "it stays in its own shape"
    assert checked(done.stdout).returncode == 0
    body = json.loads(checked(json.dumps({"model": "m", "messages": ORPHAN}), "--repair").stdout)
    assert (body["model"], body["messages"]) == ("m", mended)
    ours = checked(encode_messages([ASKED, CALLED]), "--repair").stdout
    assert [message.role for message in decode_messages(ours)] == ["user", "assistant", "tool"]


def test_a_history_can_be_printed_for_another_wire() -> None:
    body = json.loads(checked(json.dumps(ORPHAN), "--repair", "--to", "anthropic").stdout)
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "text"]
    done = checked(json.dumps({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}), "--to", "openai-chat")
    assert json.loads(done.stdout) == {"messages": [{"role": "user", "content": "Hi"}]}


def test_problems_go_to_standard_error_beside_a_body() -> None:
    done = checked(encode_messages([ASKED, CALLED]), "--to", "gemini")
    assert done.returncode == 1
    assert b"call_without_result" in done.stderr
    assert "contents" in json.loads(done.stdout)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "it is empty"),
        ("{", "line 1, column 2"),
        ('[{"role": "user", "content": "Hi"}, {"role": "ass', "the JSON is truncated"),
        ("hello", "this is not JSON"),
        ("17", "it is an int"),
        (b"\xff\xfe\x00", "not UTF-8"),
        ('[{"role": "robot", "content": "Hi"}]', "messages[0]: has the role 'robot'"),
        (
            '[{"role": "user", "content": [{"type": "hologram"}]}]',
            "messages[0].content[0]: a part of the type 'hologram'",
        ),
        ('{"penstock_history": 99, "messages": []}', "this history has format 99, and this version reads up to 1"),
        ('{"penstock_history": 1, "messages": [{"role": "user", "parts": [{"type": "smell"}]}]}', "smell"),
    ],
)
def test_a_file_that_is_not_a_history_is_refused(content: bytes | str, why: str) -> None:
    done = checked(content)
    assert done.returncode == 2
    assert why in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""


def test_wrong_options_of_check_are_refused(tmp_path: Path) -> None:
    good = encode_messages([user("Hi"), assistant(ROME), tool_results(result(ROME, "sunny"))])
    for options, why in ((["--provider", "nobody"], "nobody"), (["--to", "smoke-signals"], "smoke-signals")):
        done = checked(good, *options)
        assert done.returncode == 2
        assert why in done.stderr.decode()
        assert b"Traceback" not in done.stderr
    assert run_command("check", str(tmp_path / "missing.json")).returncode == 2


NASTY = "a\x1b]0;title\x07\x1b[2J\x7f\x9bb\u202e\u2066"
NATIVE: dict[str, Any] = {"penstock_history": 1, "messages": [
    {"role": "user", "parts": [{"type": "text", "block": 0, "text": NASTY}]},
    {"role": "assistant", "parts": [
        {"type": "opaque", "block": 0, "wire": NASTY, "kind": NASTY, "data": NASTY},
        {"type": "tool_call", "id": NASTY, "name": NASTY, "arguments": {}}]},
]}  # fmt: skip
CHAT = json.loads(json.dumps(ORPHAN).replace('"c1"', json.dumps(NASTY)).replace("Hello?", json.dumps(NASTY)[1:-1]))


@pytest.mark.parametrize("options", [
    [], ["--json"], ["--repair"], ["--to", "anthropic"], ["--to", "gemini", "--json"],
    ["--repair", "--to", "openai-chat"], ["--provider", NASTY], ["--to", NASTY],
])  # fmt: skip
@pytest.mark.parametrize("history", [NATIVE, CHAT], ids=["ours", "chat"])
def test_control_characters_in_a_history_are_escaped(history: Any, options: list[str]) -> None:
    done = checked(json.dumps(history), *options)
    output = done.stdout.decode() + done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert "title" in output
    assert re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066]", output) == []


def test_escaping_does_not_change_a_repaired_history() -> None:
    [first, *_] = decode_messages(checked(json.dumps(NATIVE), "--repair").stdout)
    assert first == user(NASTY)


def test_repair_and_json_exclude_each_other() -> None:
    done = checked(json.dumps(ORPHAN), "--repair", "--json")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"use one of them" in done.stderr
