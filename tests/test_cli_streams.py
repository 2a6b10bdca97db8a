"""The command line where its streams are closed, poor or piped, and where what is shown is long or strange."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from typing import Any

import pytest
from rich.console import Console

from penstock.cli.card import Card
from penstock.cli.log import Log
from penstock.cli.screen import as_text, harmless
from penstock.cli.show import Show
from penstock.events import Text, ToolCallDelta, ToolCallStart
from penstock.happenings import ToolProgress

PENSTOCK = [sys.executable, "-m", "penstock.cli"]


@pytest.mark.parametrize("command", [["decode", "--wire", "anthropic"], ["check", "-"], ["chat", "-m", "sim:fast"]])
def test_without_an_input_nothing_breaks(command: list[str]) -> None:
    shell = 'exec "$@" <&-'
    done = subprocess.run(["sh", "-c", shell, "sh", *PENSTOCK, *command], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr


def test_without_an_output_nothing_breaks() -> None:
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *PENSTOCK, "demo", "--json", "--speed", "50"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", [["--help"], ["check", "--help"], ["demo", "--help"], ["models"]])
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_poor_encoding_breaks_nothing(command: list[str], encoding: str) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([*PENSTOCK, *command], capture_output=True, env=env, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def logged(*events: Any) -> str:
    out = io.StringIO()
    log = Log(Console(file=out, width=80))
    for event in events:
        log.add(event, 0.0)
    log.close()
    return out.getvalue()


def test_a_log_has_the_whole_answer_line_by_line() -> None:
    shown = logged(Text(0, "one\ntwo\n\n"), Text(0, "x" * 10_000))
    lines = shown.splitlines()
    assert lines[0].endswith("one")
    assert lines[1].strip() == "two"
    assert lines[3].strip() == "x" * 10_000


class Strange:
    """What has no JSON."""

    def __repr__(self) -> str:
        return "something strange"


@pytest.mark.parametrize("data", [Strange(), {"a": Strange()}, {1, 2}, b"\xff", float("inf"), object, "\ud800"])
def test_a_tool_may_report_anything(data: Any) -> None:
    assert "progress" in logged(ToolProgress("1.0", "c", "look", data))
    assert as_text(data)
    card = Card("c", "look")
    card.progress.report = data
    card.progress.phase = "running"
    assert card.rows(80, 0.0)


@pytest.mark.parametrize("done", [float("inf"), float("nan"), 0, 3, -1])
@pytest.mark.parametrize("total", [float("inf"), float("nan"), 0, 3])
def test_a_bar_is_drawn_of_what_can_be_drawn(done: float, total: float) -> None:
    card = Card("c", "look")
    card.progress.report = {"done": done, "total": total}
    card.progress.phase = "running"
    assert card.rows(80, 0.0)


def test_where_nothing_moves_a_long_argument_costs_what_it_is_long() -> None:
    def seconds(pieces: int) -> float:
        began = time.process_time()
        with Show(Console(file=io.StringIO(), width=80, force_terminal=True)) as show:
            show.add(ToolCallStart(0, "c", "write"))
            show.add(ToolCallDelta(0, '{"text": "'))
            for _ in range(pieces):
                show.add(ToolCallDelta(0, "word "))
        return time.process_time() - began

    small, large = (min(seconds(pieces) for _ in range(3)) for pieces in (500, 4000))
    assert large <= 8 * small * 2.5


def test_json_for_a_terminal_turns_nothing_around() -> None:
    assert harmless("a\u202eb\u2066c\x7f\x85".encode()) == b"a\\u202eb\\u2066c\\u007f\\u0085"
