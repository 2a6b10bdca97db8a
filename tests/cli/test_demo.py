"""The demo on every wire and in every dialect: in a terminal, in a pipe and as JSON; and how runs are rendered."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace
from rich.console import Console

from penstock import (
    ApprovalRequest,
    Done,
    Error,
    Reasoning,
    Retry,
    StepEnd,
    StepStart,
    StreamChunk,
    StreamEvent,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallStart,
    ToolEnd,
    ToolProgress,
    ToolStart,
    Usage,
)
from penstock.cli.demo.performance import command_name, open_demo
from penstock.cli.demo.script import ANSWER, PROMPT, TOOLS
from penstock.cli.demo.timeline import Timeline, chart, savings
from penstock.cli.screen.call_card import CallCard
from penstock.cli.screen.output import render_run
from penstock.cli.screen.renderer import LiveRegion, Renderer
from penstock.cli.screen.response_page import ResponsePage
from penstock.cli.screen.rows import plain, wrap
from penstock.cli.screen.run_page import RunPage
from penstock.dialects.prompt import prompts
from penstock.messages import result
from penstock.run.events import ToolEnding, decode
from penstock.wires import ALIASES, WIRES
from tests.cases import each
from tests.command import run_command

PENSTOCK = [sys.executable, "-m", "penstock.cli", "demo"]
BARE = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE")}
FAST = 20.0
PATIENCE = 30  # seconds until a live test gives up; it waits for what it expects, not for the time
SAVED = re.compile(
    r"The early start saved (\d+\.\d\d) s\. Request 2 was sent at (\d+\.\d\d) s\. Had the tools waited for the end of "
    r"the response at (\d+\.\d\d) s, it would have been sent at (\d+\.\d\d) \+ (\d+\.\d\d) \((\w+)\) \+ (\d+\.\d\d) "
    r"\((\w+)\) = (\d+\.\d\d) s\."
)
NAMES = [tool.name for tool in TOOLS]


def run_demo(wire: str = "anthropic", dialect: str | None = None) -> tuple[list[StreamEvent], Timeline]:
    """The events of a run in this process, and its timeline."""
    events: list[StreamEvent] = []
    with open_demo(wire, dialect, FAST) as (agent, watch), agent.stream(PROMPT, deps=watch) as run:
        timeline = Timeline(time.time() - time.monotonic())
        for event in run:
            timeline.add(event, time.monotonic())
            events.append(event)
    return events, timeline


def check(events: list[StreamEvent]) -> None:
    """Checks that everything that the demo promises happens."""
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.reason, done.output) == ("answered", ANSWER)
    assert {event.name for event in events if isinstance(event, ToolCall)} == set(NAMES)
    endings = {event.result.name: event.ending for event in events if isinstance(event, ToolEnd)}
    assert endings == {"search_logs": "done", "recent_deploys": "done", "open_incident": "failed"}
    early = {event.name: event.is_early for event in events if isinstance(event, ToolStart)}
    assert early == {"search_logs": True, "recent_deploys": True, "open_incident": False}
    assert any(isinstance(event, Reasoning) for event in events)
    assert any(isinstance(event, ToolProgress) for event in events)


@pytest.mark.parametrize("wire", [*WIRES, *ALIASES])
def test_the_demo_works_on_every_wire(wire: str) -> None:
    check(run_demo(wire)[0])


@each("dialect", sorted(prompts()), few=16)
def test_the_demo_works_in_every_dialect(dialect: str) -> None:
    wires = sorted(WIRES)
    events, timeline = run_demo(wires[len(dialect) % len(wires)], dialect)
    check(events)
    assert not any(isinstance(event, ToolCall) and event.origin == "native" for event in events)
    assert len(timeline.waits) == (3 if prompts()[dialect].is_single else 1)


def test_the_answer_of_the_demo_matches_its_tool_results() -> None:
    results = "\n".join(event.result.text for event in run_demo()[0] if isinstance(event, ToolEnd))
    for fact in ("4812", "12:04", "tax per item", "1,404", "1,362", "tax-api", "frozen until 18:00"):
        assert fact in results
        assert fact in ANSWER


# What was saved.


EPOCH = 1_000_000_000.0  # when the clock of the events was 0


def happened(looked: float = 102.0) -> list[tuple[StreamEvent, float]]:
    """The events of a read and an effect. The read began at `looked`, and ends long before its end is reported."""
    call_a, call_b = ToolCall("a", "look", {}), ToolCall("b", "write", {})
    return [
        (StepStart(1), 100.0),
        (ToolCallClosed(0, "a", "look", {}), 102.0), (ToolStart("1.0", "a", "look", {}, True, order="read"), 102.0),
        (call_a, 104.0), (call_b, 104.5),
        (StepEnd(1, "tool_calls"), 106.0), (ToolStart("1.1", "b", "write", {}), 106.0),
        (ToolEnd("1.0", result(call_a, "seen"), started=EPOCH + looked, seconds=3.0), 106.0),
        (ToolEnd("1.1", result(call_b, "no"), "failed", started=EPOCH + 106.0, seconds=1.0), 107.0),
        (StepStart(2), 107.25), (StepEnd(2, "stop"), 110.0),
    ]  # fmt: skip


def timed() -> Timeline:
    timeline = Timeline(EPOCH)
    for event, at in happened():
        timeline.add(event, at)
    return timeline


def test_a_bar_ends_when_its_tool_ended_not_when_that_was_reported() -> None:
    bars = {bar.name: (bar.closed, bar.begin, bar.end, bar.lane) for bar in timed().bars}
    assert bars == {
        "response 1": (None, 0, 6, "response"),
        "look": (2, 2, 5, "done"),
        "write": (4.5, 6, 7, "failed"),
        "response 2": (None, 7.25, 10, "response"),
    }


def test_a_call_closes_before_its_tool_begins_even_if_its_event_arrives_later() -> None:
    timeline = Timeline(EPOCH)
    for event, at in happened(101.9):
        timeline.add(event, at)
    [look] = [bar for bar in timeline.bars if bar.name == "look"]
    assert look.closed == look.begin == pytest.approx(1.9)


def test_the_time_saved_is_computed_from_the_tools_that_follow_each_other() -> None:
    [wait] = timed().waits
    assert ([tool.name for tool in wait.last.chain], wait.response_end, wait.left) == (["look", "write"], 6, 7.25)
    assert (wait.late, wait.saved) == (10, 2.75)
    output = "".join(text for row in savings([wait], 200) for text, _ in row)
    assert "The early start saved 2.75 s." in output
    assert "6.00 + 3.00 (look) + 1.00 (write) = 10.00 s" in output


def test_a_run_that_saved_nothing_says_so() -> None:
    late = replace(timed().waits[0], left=10.5)
    assert savings([late], 80)[0][0][0] == "The early start saved nothing in this run."


def test_a_small_saving_is_explained_by_late_calls() -> None:
    wait = timed().waits[0]
    assert (wait.closed, wait.lead) == (2, 4)
    late = replace(wait, left=9.9, closed=5.9)
    output = {of: "".join(text for row in savings([of], 400) for text, _ in row) for of in (wait, late)}
    assert "little to save" not in output[wait]
    assert "the calls came at the very end, 0.10 s before the response ended" in output[late]


@pytest.mark.parametrize("width", [1, 10, 39, 79, 119])
def test_the_chart_fits_any_width(width: int) -> None:
    rows = ["".join(text for text, _ in row) for row in chart(timed(), width)]
    assert len(rows) == (6 if width > 60 else 5), "the signs are explained where there is room for it"
    assert all(len(row.rstrip()) <= max(width, 4) for row in rows)


def test_the_chart_shows_when_a_call_waited() -> None:
    rows = ["".join(text for text, _ in row) for row in chart(timed(), 30)]
    assert rows[0].split() == ["0", "s", "5", "s"]
    assert "◆━━━" in rows[2].replace(" ", "")
    assert re.search(r"◆┄+┿━+✗", rows[3])


def test_a_line_connects_the_end_of_a_response_with_the_next_one() -> None:
    axis, first, look, write, second, *_ = ("".join(text for text, _ in row) for row in chart(timed(), 79))
    at = first.index("┑")
    assert set(first[at + 1 : at + 10]) == {" "}, "it is the end of the bar"
    assert [row[at] for row in (look, write, second)] == ["│", "┿", "│"]
    assert "│" not in axis


def test_the_legend_has_the_signs_of_the_chart_and_no_others() -> None:
    legend = _text(chart(timed(), 79)[-1])
    assert legend.strip().split("   ") == ["◆ arguments complete", "┄ waiting", "│ end of the response"]
    timeline = Timeline(EPOCH)
    timeline.add(StepStart(1), 0.0)
    timeline.add(StepEnd(1, "stop"), 1.0)
    assert len(chart(timeline, 79)) == 2
    timeline.add(StepStart(2), 2.0)
    timeline.add(StepEnd(2, "stop"), 3.0)
    assert _text(chart(timeline, 79)[-1]).strip() == "│ end of the response"


# A real process.


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return run_command("demo", *arguments, env=BARE | env)


def test_in_a_pipe_the_demo_is_a_log_and_the_saving_adds_up() -> None:
    done = run("--speed", "4")
    assert (done.returncode, done.stderr) == (0, b"")
    output = done.stdout.decode()
    assert "\x1b" not in output
    found = SAVED.search(" ".join(output.split()))
    assert found is not None
    saved, left, response_end, begin, looked, look, opened, last, late = found.groups()
    assert (begin, look, last) == (response_end, "search_logs", "open_incident"), "an effect follows the reads"
    assert round(float(response_end) + float(looked) + float(opened), 2) == float(late)
    assert round(float(late) - float(left), 2) == float(saved) > 0
    lines = {what: float(at) for at, what in re.findall(r"^ +(\d+\.\d\d)  (\w+ +\w+)", output, re.MULTILINE)}
    spaced = {" ".join(what.split()): at for what, at in lines.items()}
    assert spaced["asked request"] == float(left)
    assert spaced["answered tool_calls"] == float(response_end)
    assert f"search_logs in {looked} s: " in output


def test_lines_are_not_broken_in_a_pipe_and_the_title_names_the_wire() -> None:
    output = run("--speed", "20", "--wire", "mistral", "--dialect", "hermes", COLUMNS="40").stdout.decode().splitlines()
    assert re.fullmatch(r"penstock demo · mistral at \S+ · calls in the text, as hermes", output[0])
    assert output[2] == f"› {PROMPT}"
    assert any(line.startswith("Request 2 was sent at") and line.endswith(" s.") for line in output)


@pytest.mark.parametrize(("path", "scripts", "expected"), [
    ("bin", "here/venv/bin", "penstock"), ("", "here/venv/bin", "venv/bin/penstock"),
    ("", "bin", "python -m penstock.cli"), ("", "here/empty", "python -m penstock.cli"),
])  # fmt: skip
def test_the_next_steps_name_a_command_that_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, scripts: str, expected: str
) -> None:
    for folder in ("here/venv/bin", "bin"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "penstock").touch(mode=0o755)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", str(tmp_path / path) if path else "")
    monkeypatch.setattr("penstock.cli.demo.performance.get_path", lambda _: str(tmp_path / scripts))
    assert command_name() == expected


def test_json_has_one_event_per_line() -> None:
    done = run("--speed", "20", "--json", "--wire", "gemini", "--dialect", "hermes")
    assert (done.returncode, done.stderr) == (0, b"")
    check([decode(line) for line in done.stdout.splitlines()])


def test_the_demo_uses_no_proxy() -> None:
    nowhere = "http://127.0.0.1:9"
    done = run("--speed", "20", http_proxy=nowhere, HTTP_PROXY=nowhere, ALL_PROXY=nowhere)
    assert done.returncode == 0, done.stdout


def test_the_demo_renders_in_ascii() -> None:
    done = run("--speed", "20", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert b"\\u" not in done.stdout
    assert re.search(rb"search_logs +\*[=|]+\+", done.stdout)


def test_force_color_colours_a_pipe_without_redrawing() -> None:
    output = run("--speed", "20", FORCE_COLOR="1").stdout.decode()
    assert "\x1b[1;36msearch_logs" in output
    assert set(re.findall("\x1b\\[[\\d;?]*([A-Za-z])", output)) == {"m"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--wire", "antropic"), "unknown wire 'antropic', did you mean 'anthropic'?\n"),
        (("--dialect", "herms"), "unknown dialect 'herms', did you mean 'hermes'?\n"),
        (("--dialect", "foo"), "unknown dialect 'foo'; use 'xml', which any model can write\n"),
        (("--dialect", "plain"), "use 'xml' instead"),
        (("--speed", "0"), "speed"),
    ],
)
def test_a_wrong_option_of_the_demo_gets_a_suggestion(arguments: tuple[str, ...], expected: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert expected in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


@contextmanager
def terminal(*arguments: str, **env: str) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    """The demo with its output on a terminal of its own, and the other end of it."""
    ours, theirs = pty.openpty()
    settings = BARE | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "30"} | env
    child = subprocess.Popen([*PENSTOCK, *arguments], stdout=theirs, stderr=subprocess.PIPE, env=settings)
    os.close(theirs)
    try:
        yield child, ours
    finally:
        child.kill()
        child.communicate()
        os.close(ours)


def read(source: int, until: bytes = b"") -> bytes:
    """What a terminal receives, to the end or until this."""
    seen, deadline = b"", time.monotonic() + PATIENCE
    while not until or until not in seen:
        ready, _, _ = select.select([source], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{until!r} did not come, only {seen!r}"
        try:
            new = os.read(source, 65536)
        except OSError:  # the other end of the terminal is closed
            new = b""
        if not new:
            break
        seen += new
    assert until in seen
    return seen


def test_in_a_terminal_calls_grow_and_tools_run_side_by_side() -> None:
    with terminal("--speed", "2") as (child, screen):
        output = read(screen).decode()
        assert child.wait(PATIENCE) == 0
    half_written = set(re.findall("│  .*▌", re.sub("\x1b\\[[\\d;]*m", "", output)))
    assert len(half_written) > 2
    assert "writing" in output
    assert "started early" in output
    assert "of 7 shards" in output
    assert "\x1b[36m" in output
    assert "The early start saved" in output
    assert output.index("\x1b[?25l") < output.rindex("\x1b[?25h")


def test_no_color_turns_colours_off_in_a_terminal() -> None:
    with terminal("--speed", "20", NO_COLOR="1") as (child, screen):
        output = read(screen).decode()
        assert child.wait(PATIENCE) == 0
    assert re.findall("\x1b\\[[\\d;]*m", output) == []
    assert "The early start" in output


@pytest.mark.parametrize(("arguments", "env"), [(("--plain",), {}), ((), {"TERM": "dumb"})])
def test_plain_output_has_no_colours_and_no_redrawing(arguments: tuple[str, ...], env: dict[str, str]) -> None:
    with terminal(*arguments, "--speed", "20", **env) as (child, screen):
        output = read(screen)
        assert child.wait(PATIENCE) == 0
    assert b"\x1b" not in output
    assert b"started    search_logs early" in output


def test_nothing_is_wider_than_a_narrow_terminal() -> None:
    with terminal("--speed", "20", COLUMNS="40") as (child, screen):
        output = read(screen).decode()
        assert child.wait(PATIENCE) == 0
    lines = re.sub("\x1b\\[[\\d;?]*[A-Za-z]", "", output).replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 40


@pytest.mark.parametrize("arguments", [(), ("--plain",), ("--json",)])
def test_ctrl_c_ends_it_quietly(arguments: tuple[str, ...]) -> None:
    with terminal(*arguments) as (child, screen):
        seen = read(screen, b"recent_deploys")
        child.send_signal(signal.SIGINT)
        output = seen + read(screen)
        assert child.wait(PATIENCE) == 130
        assert child.stderr is not None
        assert child.stderr.read() == b""
    assert output.rfind(b"\x1b[?25h") >= output.rfind(b"\x1b[?25l")


@pytest.mark.parametrize("argument", ["--plain", "--json"])
def test_a_reader_that_goes_away_ends_it_quietly(argument: str) -> None:
    command = [*PENSTOCK, argument, "--speed", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=BARE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.wait(PATIENCE) == 141
        assert child.stderr.read() == b""


# The parts that show any run.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def console(width: int = 40, height: int = 12) -> Console:
    return Console(file=Terminal(), force_terminal=True, color_system=None, width=width, height=height)


def rows_after(*events: StreamEvent, width: int = 60) -> tuple[list[str], list[str]]:
    """The final and the moving rows after these events, which arrive a second apart."""
    page = RunPage()
    for at, event in enumerate(events):
        page.add(event, float(at))
    final, moving = page.blocks.take(width, float(len(events))), page.moving(width, float(len(events)))
    return [_text(row) for row in final], [_text(row) for row in moving]


def _text(row: Any) -> str:
    return "".join(text for text, _ in row)


def test_full_lines_are_final_and_the_last_one_is_redrawn() -> None:
    words = [Text(0, f"word{number} ") for number in range(20)]
    final, moving = rows_after(StepStart(1), *words, width=30)
    assert " ".join([*final, *moving]).split() == [f"word{number}" for number in range(20)]
    assert len(moving) == 1


def test_text_after_a_call_becomes_final_when_the_tool_has_ended() -> None:
    call = ToolCall("a", "look", {"city": "Rome"})
    started = ToolStart("1.1", "a", "look", {}, True)
    events: list[StreamEvent] = [StepStart(1), Text(0, "First."), call, started, Text(2, "Then.")]
    final, moving = rows_after(*events)
    assert final == ["First."]
    assert moving[1:4] == ["╭─ look", "│  city      Rome", f"╰─ {moving[3][3]} 2.0 s  started early"]
    assert moving[-1] == "Then."
    final, moving = rows_after(*events, ToolEnd("1.1", result(call, "Sunny."), seconds=2.04), StepEnd(1, "tool_calls"))
    assert final == ["First.", "", "╭─ look", "│  city      Rome", "╰─ ✓ 2.0 s  Sunny.", "", "Then."]
    assert moving == []


def test_a_waiting_call_names_its_reason() -> None:
    call = ToolCall("a", "pay", {})
    assert rows_after(StepStart(1), call)[1] == ["╭─ pay", "╰─ · waits for the end of the response"]
    assert rows_after(call, ApprovalRequest("a", "pay", {}))[1][-1] == "╰─ ? waits for your approval"
    deferred = ApprovalRequest("a", "pay", {}, "deferred")
    assert rows_after(call, deferred)[1][-1] == "╰─ ? waits for its result from elsewhere"
    assert rows_after(StepStart(1), call, StepEnd(1, "tool_calls"))[1][-1] == "╰─ · waits for other calls"


def test_a_skipped_call_no_longer_waits_for_approval() -> None:
    call = ToolCall("a", "push", {})
    skipped = ToolEnd("1.0", result(call, "Not run: commit (b) was declined."), "skipped")
    final, moving = rows_after(StepStart(1), call, ApprovalRequest("a", "push", {}), skipped)
    assert (final, moving) == (["╭─ push", "╰─ ■ Not run: commit (b) was declined."], [])


@pytest.mark.parametrize("ending", get_args(ToolEnding))
def test_every_ending_of_a_call_is_shown(ending: ToolEnding) -> None:
    call = ToolCall("a", "push", {})
    final, moving = rows_after(StepStart(1), call, ToolEnd("1.0", result(call, "So it ended."), ending))
    assert ("So it ended." in final[-1], moving) == (True, [])


def test_a_call_that_waits_for_approval_is_not_interrupted_at_the_end() -> None:
    page = RunPage()
    page.add(ApprovalRequest("a", "pay", {"amount": 5}), 0.0)
    page.add(ToolCall("b", "look", {}, block=7), 0.0)
    page.settle("interrupted")
    final, moving = page.blocks.take(60, 1.0), page.moving(60, 1.0)
    assert [_text(row) for row in final] == [
        "╭─ pay", "│  amount    5", "╰─ ? waits for your approval", "╭─ look", "╰─ ■ interrupted",
    ]  # fmt: skip
    assert moving == []


def test_the_cost_of_a_run_is_shown_at_its_end() -> None:
    done = Done("answered", "Hi.", (), Usage(1200, 34, cost=0.0123))
    final, _ = rows_after(StepStart(1), Text(0, "Hi."), StepEnd(1, "stop"), done)
    assert final == ["Hi.", "", "· 1,234 tokens, $0.0123"]
    assert rows_after(StepStart(1), Text(0, "Hi."), Done("answered", "Hi.", (), Usage(1200, 34)))[0] == ["Hi."]
    file = io.StringIO()
    with render_run(Console(file=file, width=200), is_plain=True) as print_event:
        print_event(done, 0.0)
    assert file.getvalue() == "  0.00  done       answered (1,234 tokens, $0.0123)\n"


def test_a_resumed_call_is_shown_with_its_arguments() -> None:
    call = ToolCall("a", "pay", {"amount": 5})
    final, _ = rows_after(
        ToolStart("1.0", "a", "pay", {"amount": 5}), ToolEnd("1.0", result(call, "Paid."), seconds=1.0)
    )
    assert final == ["╭─ pay", "│  amount    5", "╰─ ✓ 1.0 s  Paid."]


def test_a_call_that_a_retry_withdrew_does_not_hold_back_what_follows() -> None:
    final, moving = rows_after(ToolCallStart(0, "a", "look"), Retry("overloaded"), Text(1, "Again."))
    assert final == ["╭─ look", "╰─ ■ withdrawn", "", "↻ retry (overloaded): ignore the response above"]
    assert moving == ["", "Again."]


def test_errors_and_retries_are_shown() -> None:
    final, _ = rows_after(
        Text(0, "Hal"), Retry("overloaded"), Error("it broke", "500"), Done("error", "", (), Usage(), "no")
    )
    assert final == [
        "Hal", "", "↻ retry (overloaded): ignore the response above", "", "✗ error 500: it broke", "",
        "■ error: no",
    ]  # fmt: skip


@pytest.mark.parametrize("is_plain", [True, False])
def test_the_end_of_a_run_does_not_repeat_its_error(is_plain: bool) -> None:
    screen = console(width=100)
    with render_run(screen, is_plain=is_plain) as see:
        see(Error("no key", "MissingKeyError"), 0.0)
        see(Done("error", "", (), Usage(), "no key"), 0.0)
    assert isinstance(screen.file, io.StringIO)
    output = screen.file.getvalue()
    assert output.count("no key") == 1
    assert re.search(r"(■|done +) ?error(\n|\x1b)", output)


def test_waiting_for_the_model_shows_a_timer() -> None:
    assert rows_after(StepStart(1))[1][0].endswith(" 1.0 s  waiting for the model")


def test_a_long_argument_shows_its_last_lines_while_it_grows() -> None:
    card = CallCard("a", "write")
    card.write('{"text": "' + "\\n".join(f"line {number}" for number in range(50)))
    rows = [_text(row) for row in card.rows(40, 0.0)]
    assert "line 49▌" in rows[-2]
    assert len(rows) == 8


def test_control_characters_of_models_and_tools_are_escaped() -> None:
    nasty = "\x1b]0;title\x07\x1b[2J\x9b31m\r"
    call = ToolCall("a", nasty, {nasty: nasty})
    events: list[StreamEvent] = [
        StepStart(1), Reasoning(0, nasty), Text(1, nasty), ToolCallStart(2, "a", nasty),
        ToolCallDelta(2, '{"a": "\x1b'), call, ToolStart("1.2", "a", nasty, {}), ToolProgress("1.2", "a", nasty, nasty),
    ]  # fmt: skip
    final, moving = rows_after(*events)
    ended, _ = rows_after(*events, ToolEnd("1.2", result(call, nasty)), Error(nasty))
    assert re.findall("[\x00-\x1f\x7f-\x9f]", "".join([*final, *moving, *ended])) == []


def test_only_changed_rows_are_redrawn() -> None:
    screen = console()
    region = LiveRegion(screen)
    region.draw([], [(("one", ""),), (("two", ""),)])
    region.draw([], [(("one", ""),), (("two", ""),)])
    region.draw([], [(("one", ""),), (("three", ""),)])
    assert isinstance(screen.file, io.StringIO)
    assert screen.file.getvalue() == "one\x1b[K\ntwo\x1b[K\n\x1b[J" + "\x1b[1A\rthree\x1b[K\n\x1b[J"


def test_a_live_region_is_never_higher_than_the_terminal() -> None:
    screen = console(height=5)
    LiveRegion(screen).draw([], [((f"row {number}", ""),) for number in range(20)])
    assert isinstance(screen.file, io.StringIO)
    assert re.findall(r"row (\d+)", screen.file.getvalue()) == ["16", "17", "18", "19"]


def test_the_cursor_is_shown_again_after_an_exception() -> None:
    screen = console()

    def break_off() -> None:
        with Renderer(screen, RunPage()) as show:
            show.add(ToolCallStart(0, "a", "look"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert isinstance(screen.file, io.StringIO)
    output = screen.file.getvalue()
    assert output.endswith("╰─ ■ interrupted\x1b[K\n\x1b[J\x1b[?25h")


@pytest.mark.parametrize("event", [Text(0, "So"), ToolCallStart(0, "a", "look")])
@pytest.mark.parametrize("page", [RunPage, lambda: ResponsePage("openai-chat")])
def test_ctrl_c_leaves_one_mark(page: Any, event: StreamChunk) -> None:
    screen = console()

    def interrupt() -> None:
        with Renderer(screen, page()) as show:
            show.add(event)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert isinstance(screen.file, io.StringIO)
    assert screen.file.getvalue().count("■ interrupted") == 1


def test_lines_break_at_words_and_lose_nothing() -> None:
    text = "one two  three\n\nfour" + "x" * 30
    assert [plain(row) for row in wrap([(text, "")], 10)] == [
        "one two  ",
        "three",
        "",
        "fourxxxxxx",
        "xxxxxxxxxx",
        "xxxxxxxxxx",
        "xxxx",
    ]
