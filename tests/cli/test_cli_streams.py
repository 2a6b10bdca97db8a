"""The command line with closed, piped or poorly encoded streams, and with long or hostile content."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from penstock import Text, ToolCallDelta, ToolCallStart, ToolProgress
from penstock.cli.screen.call_card import CallCard
from penstock.cli.screen.renderer import Renderer
from penstock.cli.screen.run_log import RunLog
from penstock.cli.screen.run_page import RunPage
from penstock.inspector.excerpts import as_text
from penstock.jsontext.shown_text import escape_json
from penstock.messages import decode_messages
from penstock.testing import Loopback, Status
from tests.cli.test_run_command import Terminal
from tests.command import run_command
from tests.growth import assert_linear

PENSTOCK = [sys.executable, "-m", "penstock.cli"]


@pytest.mark.parametrize("command", [["decode", "--wire", "anthropic"], ["check", "-"], ["chat", "-m", "sim:fast"]])
def test_a_closed_standard_input_is_no_traceback(command: list[str]) -> None:
    shell = 'exec "$@" <&-'
    done = subprocess.run(["sh", "-c", shell, "sh", *PENSTOCK, *command], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr


def test_a_closed_standard_output_is_no_traceback() -> None:
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *PENSTOCK, "demo", "--json", "--speed", "50"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", [["--help"], ["check", "--help"], ["demo", "--help"], ["models"]])
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_an_encoding_without_our_symbols_is_no_error(command: list[str], encoding: str) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([*PENSTOCK, *command], capture_output=True, env=env, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def logged(*events: Any) -> str:
    out = io.StringIO()
    log = RunLog(Console(file=out, width=80))
    for event in events:
        log.add(event, 0.0)
    log.close()
    return out.getvalue()


def test_a_log_has_all_lines_of_the_answer() -> None:
    shown = logged(Text(0, "one\ntwo\n\n"), Text(0, "x" * 10_000))
    lines = shown.splitlines()
    assert lines[0].endswith("one")
    assert lines[1].strip() == "two"
    assert lines[3].strip() == "x" * 10_000


class Strange:
    """A value without JSON."""

    def __repr__(self) -> str:
        return "something strange"


@pytest.mark.parametrize("data", [Strange(), {"a": Strange()}, {1, 2}, b"\xff", float("inf"), object, "\ud800"])
def test_a_tool_may_report_anything(data: Any) -> None:
    assert "progress" in logged(ToolProgress("1.0", "c", "look", data))
    assert as_text(data)
    card = CallCard("c", "look")
    card.progress.report = data
    card.progress.phase = "running"
    assert card.rows(80, 0.0)


@pytest.mark.parametrize("done", [float("inf"), float("nan"), 0, 3, -1])
@pytest.mark.parametrize("total", [float("inf"), float("nan"), 0, 3])
def test_a_progress_bar_accepts_any_numbers(done: float, total: float) -> None:
    card = CallCard("c", "look")
    card.progress.report = {"done": done, "total": total}
    card.progress.phase = "running"
    assert card.rows(80, 0.0)


def test_without_a_live_terminal_a_long_argument_costs_linear_time() -> None:
    def output_of(pieces: int) -> None:
        with Renderer(Console(file=io.StringIO(), width=80, force_terminal=True), RunPage()) as show:
            show.add(ToolCallStart(0, "c", "write"))
            show.add(ToolCallDelta(0, '{"text": "'))
            for _ in range(pieces):
                show.add(ToolCallDelta(0, "word "))

    assert_linear(lambda pieces: lambda: output_of(pieces), 500, 8)


def test_json_escapes_bidirectional_controls() -> None:
    assert escape_json("a\u202eb\u2066c\x7f\x85".encode()) == b"a\\u202eb\\u2066c\\u007f\\u0085"


@pytest.mark.parametrize("command", [["demo", "--speed", "nan"], ["replay", "--speed", "nan", __file__]])
def test_nan_is_not_a_speed(command: list[str]) -> None:
    done = subprocess.run([*PENSTOCK, *command], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 2
    assert "nan is not a number" in done.stderr


def test_control_characters_in_a_server_error_are_escaped() -> None:
    with Loopback([Status(400, "A\x1b]0;gotcha\x07B")]) as server:
        command = [*PENSTOCK, "chat", "-m", "openai-compatible:m", "--base-url", server.base_url("openai-chat"), "Hi"]
        done = subprocess.run(command, capture_output=True, check=False, timeout=30)
    assert done.returncode == 3
    assert b"gotcha" in done.stderr
    assert b"\x1b" not in done.stderr
    assert b"\x07" not in done.stderr


def test_sigterm_saves_the_history_and_exits(tmp_path: Path) -> None:
    (tmp_path / "slow_agent.py").write_text(SLOW)
    command = [*PENSTOCK, "run", "slow_agent.py", "Hi", "--history", "talk.json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert any(b"begun" in line for line in iter(child.stdout.readline, b""))
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 128 + signal.SIGTERM
        assert child.stderr is not None
        assert child.stderr.read() == b""
    kept = decode_messages((tmp_path / "talk.json").read_bytes())
    assert [message.role for message in kept] == ["user", "assistant", "tool"]


SLOW = '''
import time
import penstock
from penstock.testing import Reply, Scripted, call


@penstock.tool
def slow():
    """Take a while."""
    yield "begun"
    yield "going on"
    time.sleep(20)


script = Scripted([Reply("Well.", call("slow", {})), "Done."])
agent = penstock.Agent(penstock.Model("openai-compatible:m", via=script), [slow])
'''


def test_control_characters_in_json_events_are_escaped() -> None:
    with Loopback(["a\u202eb\x9bc"]) as server:
        command = [*PENSTOCK, "chat", "-m", "openai-compatible:m", "--base-url", server.base_url("openai-chat"), "Hi"]
        done = subprocess.run([*command, "--json"], capture_output=True, check=True, timeout=30)
    assert b"a\\u202eb\\u009bc" in done.stdout


NASTY = "\x1b]0;gotcha\x07\x1b[2J\x9b\u202e"
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def output_of(*arguments: str, cwd: Path, **env: str) -> str:
    """Everything that a command prints."""
    done = run_command(*arguments, cwd=cwd, env={**os.environ, **env})
    assert b"Traceback" not in done.stderr
    return done.stdout.decode() + done.stderr.decode()


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_control_characters_in_a_recorded_name_are_escaped(tmp_path: Path, options: list[str]) -> None:
    file = tmp_path / "kept.jsonl"
    output_of("record", "-m", "sim:fast", "-o", str(file), "Hi.", cwd=tmp_path)
    file.write_text(file.read_text().replace('"sim:fast"', json.dumps(f"gotcha{NASTY}")))
    shown = output_of("replay", "--speed", "0", *options, str(file), cwd=tmp_path)
    assert ACTING.findall(shown) == []
    assert options or "gotcha\\x1b]0;gotcha" in shown


LEAVING = """
import pathlib
import penstock
from penstock.testing import Reply, Scripted, call

@penstock.tool(approval=True)
def wait() -> str:
    'Wait for somebody.'

def answer(asked):
    [folder] = [place for place in pathlib.Path().glob("kept*") if place.is_dir()]
    folder.rmdir()
    return Reply(call("wait", {}))

agent = penstock.Agent(penstock.Model("openai-compatible:m", via=Scripted(answer)), [wait])
"""


def test_control_characters_in_a_file_name_are_escaped(tmp_path: Path) -> None:
    file = f"kept{NASTY}.jsonl"
    assert ACTING.findall(output_of("record", "-m", "sim:fast", "-o", file, "Hi.", cwd=tmp_path)) == []
    assert ACTING.findall(output_of("replay", "--speed", "0", file, cwd=tmp_path)) == []
    assert ACTING.findall(output_of("chat", "-m", f"replay:{file}", "Other.", cwd=tmp_path)) == []
    (tmp_path / "agents.py").write_text(LEAVING)
    for option in ("--history", "--state"):
        (tmp_path / f"kept{NASTY}").mkdir()
        shown = output_of("run", "agents.py", "Hi.", option, f"kept{NASTY}/talk.json", cwd=tmp_path)
        assert "could not be saved in" in shown
        assert ACTING.findall(shown) == []


def test_control_characters_in_a_model_name_are_escaped(tmp_path: Path) -> None:
    name = f"openai-compatible:m{NASTY}"
    (tmp_path / "agents.py").write_text(
        f"import penstock\nagent = penstock.Agent(penstock.Model({name!r}, 'http://127.0.0.1:9'))\n"
    )
    for command in (["run", "agents.py"], ["chat", "-m", name, "--base-url", "http://127.0.0.1:9"]):
        with Terminal(tmp_path, *command) as terminal:
            seen = terminal.expect("Ctrl-D to leave")
            assert "m\\x1b]0;gotcha\\x07\\x1b[2J\\x9b\\u202e" in seen
            assert "\x1b]0" not in seen
            assert "\x1b[2J" not in seen


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_control_characters_in_an_address_are_escaped(tmp_path: Path, options: list[str]) -> None:
    shown = output_of("models", *options, cwd=tmp_path, AZURE_OPENAI_ENDPOINT=f"https://gotcha{NASTY}", COLUMNS="400")
    assert "gotcha" in shown
    assert ACTING.findall(shown) == []
