"""`penstock demo --crash`: real workers, one of which is killed, and the chart of what happened."""

from __future__ import annotations

import re
import subprocess
import sys

import click.testing
import pytest

from penstock import Done, StepEnd, StepStart, ToolCall, ToolEnd, ToolStart, Usage
from penstock.cli.app import penstock as command
from penstock.cli.demo.crash import Crash, CrashTimeline, crash_chart
from penstock.cli.screen.rows import plain, width_of
from penstock.messages import result
from penstock.run.events import LogEvent, RunStart, Taken

PENSTOCK = [sys.executable, "-m", "penstock.cli", "demo", "--crash"]
PATIENCE = 120  # seconds until a live test gives up; it waits for what it expects, not for the time


def test_a_run_survives_its_worker_and_each_tool_acts_once() -> None:
    done = subprocess.run(
        [*PENSTOCK, "--speed", "4"], capture_output=True, encoding="utf-8", check=False, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, "")
    pids = re.search(r"workers (\d+) and (\d+) share the log", done.stdout)
    assert pids is not None
    victim, heir = re.findall(r"taken +by pid (\d+) on", done.stdout)
    assert {victim, heir} == {*pids.groups()}
    assert f"kill -9 {victim}: the worker dies while refund runs" in done.stdout
    after = re.search(r"the reader is back, and asks for the events after number (\d+)", done.stdout)
    assert after is not None
    assert "the bank knows the key: not booked again" in done.stdout
    last = re.search(r"The run survived kill -9: 1 refund, 1 mail, events 1 to (\d+) read once each\.", done.stdout)
    assert last is not None
    assert int(last[1]) > int(after[1])
    assert re.search(rf"worker 1, pid {victim} +━+✗ +│", done.stdout)
    assert re.search(rf"worker 2, pid {heir} +━+✓", done.stdout)
    assert re.search(r"refund +━+✗┄+━+✓", done.stdout)
    assert re.search(r"reader +━+┄+━+✓", done.stdout)


@pytest.mark.parametrize("option", ["--wire", "--dialect"])
def test_the_demo_of_a_crash_has_its_own_model(option: str) -> None:
    name = "gemini" if option == "--wire" else "hermes"
    done = click.testing.CliRunner().invoke(command, ["demo", "--crash", option, name])
    assert done.exit_code == 2
    assert f"--crash has a model of its own: omit {option}" in done.stderr


def test_a_reader_that_missed_an_event_is_not_right() -> None:
    done = Done("answered", "Done.", (), Usage(1, 1))
    assert Crash("run", numbers=[1, 2, 3], done=done).is_right
    assert not Crash("run", numbers=[1, 3], done=done).is_right
    assert not Crash("run", numbers=[1, 2, 2], done=done).is_right
    assert not Crash("run", numbers=[1, 2, 3]).is_right


# -- the chart ---------------------------------------------------------------------------------------------------------


def happened() -> list[tuple[int, float, LogEvent]]:
    events: list[tuple[float, LogEvent]] = [
        (100.0, RunStart(())), (100.0, Taken(1, "vm:11:a")), (100.0, StepStart(1)), (102.0, StepEnd(1, "tool_calls")),
        (102.0, ToolStart("1.0", "a", "refund", {})), (106.0, Taken(2, "vm:12:b")),
        (108.0, ToolEnd("1.0", result(ToolCall("a", "refund", {}), "ok"))), (108.0, StepStart(2)),
        (110.0, StepEnd(2, "stop")), (110.0, Done("answered", "Ok.", (), Usage(1, 1))),
    ]  # fmt: skip
    return [(number, at, event) for number, (at, event) in enumerate(events, 1)]


def test_the_chart_shows_who_drove_the_run_when() -> None:
    timeline = CrashTimeline(happened(), killed=104.0, reconnected=105.0)
    assert {lane.name: [(one.begin, one.end) for one in lane.segments] for lane in timeline.lanes} == {
        "worker 1, pid 11": [(0, 4)],
        "worker 2, pid 12": [(6, 10)],
        "response 1": [(0, 2)],
        "refund": [(2, 4), (6, 8)],
        "response 2": [(8, 10)],
        "reader": [(0, 4), (5, 10)],
    }
    rows = [plain(row).rstrip() for row in crash_chart(timeline, 18 + 41)]
    assert rows[1] == "worker 1, pid 11  ━━━━━━━━━━━━━━━━✗       │"
    assert rows[2] == "worker 2, pid 12                          ━━━━━━━━━━━━━━━━✓"
    assert rows[4] == "refund                    ━━━━━━━━✗┄┄┄┄┄┄┄━━━━━━━━✓"
    assert rows[6] == "reader            ━━━━━━━━━━━━━━━━━┄┄┄━━━━━━━━━━━━━━━━━━━━✓"


@pytest.mark.parametrize("width", [20, 30, 60, 100])
def test_the_chart_fits_any_width(width: int) -> None:
    chart = crash_chart(CrashTimeline(happened(), killed=104.0, reconnected=105.0), width)
    assert max(map(width_of, chart)) <= width
