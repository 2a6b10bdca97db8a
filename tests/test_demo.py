"""The demo: a real run on every wire and in every dialect, shown in a terminal, in a pipe and as events."""

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
from typing import Any

import pytest
from rich.console import Console

from penstock.cli.demo.performance import command_name, open_demo
from penstock.cli.demo.script import ANSWER, PROMPT, TOOLS
from penstock.cli.demo.timeline import Timeline, chart, savings
from penstock.cli.screen.call_card import CallCard, Span
from penstock.cli.screen.output import render_run
from penstock.cli.screen.renderer import LiveRegion, Renderer
from penstock.cli.screen.rows import plain, wrap
from penstock.cli.screen.run_page import RunPage
from penstock.dialects.prompt import prompts
from penstock.events import (
    Error,
    Reasoning,
    Retry,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from penstock.messages import result
from penstock.run.events import (
    ApprovalRequest,
    Done,
    StepEnd,
    StepStart,
    StreamEvent,
    ToolEnd,
    ToolProgress,
    ToolStart,
    decode,
)
from penstock.wires import ALIASES, WIRES

PENSTOCK = [sys.executable, "-m", "penstock.cli", "demo"]
BARE = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE")}
FAST = 20.0
PATIENCE = 30  # seconds until a live test gives up; it waits for what it expects, not for the time
SAVED = re.compile(
    r"The early start saved (\d+\.\d\d) s\. Request 2 was sent at (\d+\.\d\d) s\. Had the tools waited for the end of "
    r"the response at (\d+\.\d\d) s, it would have been sent at (\d+\.\d\d) \+ (\d+\.\d\d) \((\w+), the longest\) = "
    r"(\d+\.\d\d) s\."
)
NAMES = [tool.name for tool in TOOLS]


def performed(wire: str = "anthropic", dialect: str | None = None) -> tuple[list[StreamEvent], Timeline]:
    """The events of a run in this process, and when what happened."""
    events: list[StreamEvent] = []
    with open_demo(wire, dialect, FAST) as (agent, watch), agent.stream(PROMPT, deps=watch) as run:
        timeline = Timeline(watch.spans)
        for event in run:
            timeline.add(event, time.monotonic())
            events.append(event)
    return events, timeline


def check(events: list[StreamEvent]) -> None:
    """All that the demo promises happens."""
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
def test_it_works_on_every_wire(wire: str) -> None:
    check(performed(wire)[0])


@pytest.mark.parametrize("dialect", sorted(prompts()))
def test_it_works_in_every_dialect(dialect: str) -> None:
    wires = sorted(WIRES)
    events, timeline = performed(wires[len(dialect) % len(wires)], dialect)
    check(events)
    assert not any(isinstance(event, ToolCall) and event.origin == "native" for event in events)
    assert len(timeline.waits) == (3 if prompts()[dialect].is_single else 1)


def test_the_answer_says_what_the_tools_found() -> None:
    results = "\n".join(event.result.text for event in performed()[0] if isinstance(event, ToolEnd))
    for fact in ("4812", "12:04", "tax per item", "1,404", "1,362", "tax-api", "frozen until 18:00"):
        assert fact in results
        assert fact in ANSWER


# What was saved.


def happened() -> list[tuple[StreamEvent, float]]:
    """The events of two tools, the first of which ends long before its end is reported."""
    call_a, call_b = ToolCall("a", "look", {}), ToolCall("b", "write", {})
    return [
        (StepStart(1), 100.0),
        (ToolCallClosed(0, "a", "look", {}), 102.0), (ToolStart("1.0", "a", "look", {}, True), 102.0),
        (call_a, 104.0), (call_b, 104.5),
        (StepEnd(1, "tool_calls"), 106.0), (ToolStart("1.1", "b", "write", {}), 106.0),
        (ToolEnd("1.0", result(call_a, "seen")), 106.0), (ToolEnd("1.1", result(call_b, "no"), "failed"), 107.0),
        (StepStart(2), 107.25), (StepEnd(2, "stop"), 110.0),
    ]  # fmt: skip


def timed() -> Timeline:
    timeline = Timeline({"a": Span(102.0, 105.0)})
    for event, at in happened():
        timeline.add(event, at)
    return timeline


def test_a_tool_took_as_long_as_it_ran_and_not_until_that_was_told() -> None:
    bars = {bar.name: (bar.closed, bar.begin, bar.end, bar.lane) for bar in timed().bars}
    assert bars == {
        "response 1": (None, 0, 6, "response"),
        "look": (2, 2, 5, "done"),
        "write": (4.5, 6, 7, "failed"),
        "response 2": (None, 7.25, 10, "response"),
    }


def test_a_call_is_closed_before_its_tool_begins_even_if_the_reader_hears_of_it_later() -> None:
    timeline = Timeline({"a": Span(101.9, 105.0)})
    for event, at in happened():
        timeline.add(event, at)
    [look] = [bar for bar in timeline.bars if bar.name == "look"]
    assert look.closed == look.begin == pytest.approx(1.9)


def test_what_was_saved_is_reckoned_from_the_longest_tool() -> None:
    [wait] = timed().waits
    assert (wait.longest, wait.longest_seconds, wait.response_end, wait.left, wait.late) == ("look", 3, 6, 7.25, 9)
    assert wait.saved == 1.75
    told = "".join(text for row in savings([wait], 200) for text, _ in row)
    assert "The early start saved 1.75 s." in told
    assert "6.00 + 3.00 (look, the longest) = 9.00 s" in told


def test_nothing_saved_is_said_to_be_nothing() -> None:
    wait = timed().waits[0]
    late = type(wait)(wait.response_end, wait.longest, 1.0, 7.25, 2.0)
    assert savings([late], 80)[0][0][0] == "The early start saved nothing in this run."


def test_little_saved_is_explained_by_calls_that_came_late() -> None:
    wait = timed().waits[0]
    assert (wait.closed, wait.lead) == (2, 4)
    late = type(wait)(wait.response_end, wait.longest, 3.0, 8.9, 5.9)
    told = {of: "".join(text for row in savings([of], 400) for text, _ in row) for of in (wait, late)}
    assert "little to save" not in told[wait]
    assert "the calls came at the very end, 0.10 s before the response ended" in told[late]


@pytest.mark.parametrize("width", [1, 10, 39, 79, 119])
def test_the_chart_fits(width: int) -> None:
    rows = ["".join(text for text, _ in row) for row in chart(timed(), width)]
    assert len(rows) == (6 if width > 60 else 5), "the signs are explained where there is room for it"
    assert all(len(row.rstrip()) <= max(width, 4) for row in rows)


def test_the_chart_shows_when_a_call_waited() -> None:
    rows = ["".join(text for text, _ in row) for row in chart(timed(), 30)]
    assert rows[0].split() == ["0", "s", "5", "s"]
    assert "◆━━━" in rows[2].replace(" ", "")
    assert re.search(r"◆┄+┿━+✗", rows[3])


def test_a_line_goes_down_from_the_end_of_an_answer_to_the_next() -> None:
    axis, first, look, write, second, *_ = ("".join(text for text, _ in row) for row in chart(timed(), 79))
    at = first.index("┑")
    assert set(first[at + 1 : at + 10]) == {" "}, "it is the end of the bar"
    assert [row[at] for row in (look, write, second)] == ["│", "┿", "│"]
    assert "│" not in axis


def test_the_signs_that_were_drawn_are_explained_and_no_others() -> None:
    legend = _text(chart(timed(), 79)[-1])
    assert legend.strip().split("   ") == ["◆ arguments complete", "┄ waiting", "│ end of the response"]
    timeline = Timeline()
    timeline.add(StepStart(1), 0.0)
    timeline.add(StepEnd(1, "stop"), 1.0)
    assert len(chart(timeline, 79)) == 2
    timeline.add(StepStart(2), 2.0)
    timeline.add(StepEnd(2, "stop"), 3.0)
    assert _text(chart(timeline, 79)[-1]).strip() == "│ end of the response"


# A real process.


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    command = [*PENSTOCK, *arguments]
    return subprocess.run(command, check=False, capture_output=True, env=BARE | env, timeout=PATIENCE)


def test_in_a_pipe_each_thing_is_a_line_and_the_saving_adds_up() -> None:
    done = run("--speed", "4")
    assert (done.returncode, done.stderr) == (0, b"")
    told = done.stdout.decode()
    assert "\x1b" not in told
    found = SAVED.search(" ".join(told.split()))
    assert found is not None
    saved, left, response_end, again, longest, name, late = found.groups()
    assert (name, again) == ("search_logs", response_end)
    assert round(float(response_end) + float(longest), 2) == float(late)
    assert round(float(late) - float(left), 2) == float(saved) > 0
    lines = {what: float(at) for at, what in re.findall(r"^ +(\d+\.\d\d)  (\w+ +\w+)", told, re.MULTILINE)}
    spaced = {" ".join(what.split()): at for what, at in lines.items()}
    assert spaced["asked request"] == float(left)
    assert spaced["answered tool_calls"] == float(response_end)
    assert spaced["result search_logs"] - spaced["started search_logs"] == pytest.approx(float(longest), abs=0.25)


def test_a_pipe_has_no_edge_and_the_title_is_the_wire_that_was_asked_for() -> None:
    told = run("--speed", "20", "--wire", "mistral", "--dialect", "hermes", COLUMNS="40").stdout.decode().splitlines()
    assert re.fullmatch(r"penstock demo · mistral at \S+ · calls in the text, as hermes", told[0])
    assert told[2] == f"› {PROMPT}"
    assert any(line.startswith("Request 2 was sent at") and line.endswith(" s.") for line in told)


@pytest.mark.parametrize(("path", "scripts", "told"), [
    ("bin", "here/venv/bin", "penstock"), ("", "here/venv/bin", "venv/bin/penstock"),
    ("", "bin", "python -m penstock.cli"), ("", "here/empty", "python -m penstock.cli"),
])  # fmt: skip
def test_the_last_words_name_a_command_that_can_be_started_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, scripts: str, told: str
) -> None:
    for folder in ("here/venv/bin", "bin"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "penstock").touch(mode=0o755)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", str(tmp_path / path) if path else "")
    monkeypatch.setattr("penstock.cli.demo.performance.get_path", lambda _: str(tmp_path / scripts))
    assert command_name() == told


def test_json_is_an_event_a_line() -> None:
    done = run("--speed", "20", "--json", "--wire", "gemini", "--dialect", "hermes")
    assert (done.returncode, done.stderr) == (0, b"")
    check([decode(line) for line in done.stdout.splitlines()])


def test_a_proxy_is_not_asked() -> None:
    nowhere = "http://127.0.0.1:9"
    done = run("--speed", "20", http_proxy=nowhere, HTTP_PROXY=nowhere, ALL_PROXY=nowhere)
    assert done.returncode == 0, done.stdout


def test_ascii_is_enough() -> None:
    done = run("--speed", "20", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert b"\\u" not in done.stdout
    assert re.search(rb"search_logs +\*[=|]+\+", done.stdout)


def test_colours_can_be_kept_in_a_pipe_and_nothing_is_drawn_anew() -> None:
    told = run("--speed", "20", FORCE_COLOR="1").stdout.decode()
    assert "\x1b[1;36msearch_logs" in told
    assert set(re.findall("\x1b\\[[\\d;?]*([A-Za-z])", told)) == {"m"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--wire", "antropic"), "unknown wire 'antropic', did you mean 'anthropic'?\n"),
        (("--dialect", "herms"), "unknown dialect 'herms', did you mean 'hermes'?\n"),
        (("--dialect", "foo"), "unknown dialect 'foo'; use 'xml', which any model can write\n"),
        (("--dialect", "plain"), "'xml' has them"),
        (("--speed", "0"), "speed"),
    ],
)
def test_a_mistake_says_what_there_is(arguments: tuple[str, ...], told: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert told in done.stderr.decode()
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
    """What a terminal gets, to the end, or until this was seen."""
    seen, deadline = b"", time.monotonic() + PATIENCE
    while not until or until not in seen:
        ready, _, _ = select.select([source], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{until!r} did not come, only {seen!r}"
        try:
            new = os.read(source, 65536)
        except OSError:  # how a terminal says that nobody is at its other end any more
            new = b""
        if not new:
            break
        seen += new
    assert until in seen
    return seen


def test_in_a_terminal_calls_grow_and_tools_run_side_by_side() -> None:
    with terminal("--speed", "2") as (child, screen):
        told = read(screen).decode()
        assert child.wait(PATIENCE) == 0
    half_written = set(re.findall("│  .*▌", re.sub("\x1b\\[[\\d;]*m", "", told)))
    assert len(half_written) > 2
    assert "writing" in told
    assert "started early" in told
    assert "of 7 shards" in told
    assert "\x1b[36m" in told
    assert "The early start saved" in told
    assert told.index("\x1b[?25l") < told.rindex("\x1b[?25h")


def test_no_color_is_obeyed_in_a_terminal() -> None:
    with terminal("--speed", "20", NO_COLOR="1") as (child, screen):
        told = read(screen).decode()
        assert child.wait(PATIENCE) == 0
    assert re.findall("\x1b\\[[\\d;]*m", told) == []
    assert "The early start" in told


@pytest.mark.parametrize(("arguments", "env"), [(("--plain",), {}), ((), {"TERM": "dumb"})])
def test_plain_neither_colours_nor_moves(arguments: tuple[str, ...], env: dict[str, str]) -> None:
    with terminal(*arguments, "--speed", "20", **env) as (child, screen):
        told = read(screen)
        assert child.wait(PATIENCE) == 0
    assert b"\x1b" not in told
    assert b"started    search_logs early" in told


def test_nothing_is_wider_than_a_narrow_terminal() -> None:
    with terminal("--speed", "20", COLUMNS="40") as (child, screen):
        told = read(screen).decode()
        assert child.wait(PATIENCE) == 0
    lines = re.sub("\x1b\\[[\\d;?]*[A-Za-z]", "", told).replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 40


@pytest.mark.parametrize("arguments", [(), ("--plain",), ("--json",)])
def test_ctrl_c_ends_it_quietly(arguments: tuple[str, ...]) -> None:
    with terminal(*arguments) as (child, screen):
        seen = read(screen, b"recent_deploys")
        child.send_signal(signal.SIGINT)
        told = seen + read(screen)
        assert child.wait(PATIENCE) == 130
        assert child.stderr is not None
        assert child.stderr.read() == b""
    assert told.rfind(b"\x1b[?25h") >= told.rfind(b"\x1b[?25l")


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


def page(*events: StreamEvent, width: int = 60) -> tuple[list[str], list[str]]:
    """What stands and what moves after these events, which came a second apart."""
    made = RunPage()
    for at, event in enumerate(events):
        made.add(event, float(at))
    standing, moving = made.take(width, float(len(events))), made.moving(width, float(len(events)))
    return [_text(row) for row in standing], [_text(row) for row in moving]


def _text(row: Any) -> str:
    return "".join(text for text, _ in row)


def test_full_lines_stand_and_the_last_one_moves() -> None:
    words = [Text(0, f"word{number} ") for number in range(20)]
    standing, moving = page(StepStart(1), *words, width=30)
    assert " ".join([*standing, *moving]).split() == [f"word{number}" for number in range(20)]
    assert len(moving) == 1


def test_text_after_a_call_stands_below_it_when_the_tool_has_ended() -> None:
    call = ToolCall("a", "look", {"city": "Rome"})
    started = ToolStart("1.1", "a", "look", {}, True)
    events: list[StreamEvent] = [StepStart(1), Text(0, "First."), call, started, Text(2, "Then.")]
    standing, moving = page(*events)
    assert standing == ["First."]
    assert moving[1:4] == ["╭─ look", "│  city      Rome", f"╰─ {moving[3][3]} 2.0 s  started early"]
    assert moving[-1] == "Then."
    standing, moving = page(*events, ToolEnd("1.1", result(call, "Sunny.")), StepEnd(1, "tool_calls"))
    assert standing == ["First.", "", "╭─ look", "│  city      Rome", "╰─ ✓ 2.0 s  Sunny.", "", "Then."]
    assert moving == []


def test_a_call_that_waits_says_for_what() -> None:
    call = ToolCall("a", "pay", {})
    assert page(StepStart(1), call)[1] == ["╭─ pay", "╰─ · waits for the end of the response"]
    assert page(call, ApprovalRequest("a", "pay", {}))[1][-1] == "╰─ ? waits for your approval"
    assert page(call, ApprovalRequest("a", "pay", {}, "deferred"))[1][-1] == "╰─ ? waits for its result from elsewhere"


def test_a_call_that_is_left_open_is_not_broken_off() -> None:
    made = RunPage()
    made.add(ApprovalRequest("a", "pay", {"amount": 5}), 0.0)
    made.add(ToolCall("b", "look", {}, block=7), 0.0)
    made.settle("interrupted")
    standing, moving = made.take(60, 1.0), made.moving(60, 1.0)
    assert [_text(row) for row in standing] == [
        "╭─ pay", "│  amount    5", "╰─ ? waits for your approval", "╭─ look", "╰─ ■ interrupted",
    ]  # fmt: skip
    assert moving == []


def test_a_resumed_call_is_shown_with_its_arguments() -> None:
    call = ToolCall("a", "pay", {"amount": 5})
    standing, _ = page(ToolStart("1.0", "a", "pay", {"amount": 5}), ToolEnd("1.0", result(call, "Paid.")))
    assert standing == ["╭─ pay", "│  amount    5", "╰─ ✓ 1.0 s  Paid."]


def test_errors_and_restarts_are_shown() -> None:
    standing, _ = page(
        Text(0, "Hal"), Retry("overloaded"), Error("it broke", "500"), Done("error", "", (), Usage(), "no")
    )
    assert standing == [
        "Hal", "", "↻ retry (overloaded): ignore the response above", "", "✗ error 500: it broke", "",
        "■ error: no",
    ]  # fmt: skip


@pytest.mark.parametrize("is_plain", [True, False])
def test_what_an_error_said_is_not_said_again_at_the_end(is_plain: bool) -> None:
    screen = console(width=100)
    with render_run(screen, is_plain=is_plain) as see:
        see(Error("no key", "MissingKeyError"), 0.0)
        see(Done("error", "", (), Usage(), "no key"), 0.0)
    assert isinstance(screen.file, io.StringIO)
    told = screen.file.getvalue()
    assert told.count("no key") == 1
    assert re.search(r"(■|done +) ?error(\n|\x1b)", told)


def test_the_model_is_waited_for_in_sight() -> None:
    assert page(StepStart(1))[1][0].endswith(" 1.0 s  waiting for the model")


def test_a_long_argument_shows_where_it_is_written() -> None:
    card = CallCard("a", "write")
    card.write('{"text": "' + "\\n".join(f"line {number}" for number in range(50)))
    rows = [_text(row) for row in card.rows(40, 0.0)]
    assert "line 49▌" in rows[-2]
    assert len(rows) == 8


def test_what_a_tool_or_a_model_says_cannot_act_on_the_terminal() -> None:
    nasty = "\x1b]0;title\x07\x1b[2J\x9b31m\r"
    call = ToolCall("a", nasty, {nasty: nasty})
    events: list[StreamEvent] = [
        StepStart(1), Reasoning(0, nasty), Text(1, nasty), ToolCallStart(2, "a", nasty),
        ToolCallDelta(2, '{"a": "\x1b'), call, ToolStart("1.2", "a", nasty, {}), ToolProgress("1.2", "a", nasty, nasty),
    ]  # fmt: skip
    standing, moving = page(*events)
    ended, _ = page(*events, ToolEnd("1.2", result(call, nasty)), Error(nasty))
    assert re.findall("[\x00-\x1f\x7f-\x9f]", "".join([*standing, *moving, *ended])) == []


def test_only_what_changed_is_written_again() -> None:
    screen = console()
    region = LiveRegion(screen)
    region.draw([], [(("one", ""),), (("two", ""),)])
    region.draw([], [(("one", ""),), (("two", ""),)])
    region.draw([], [(("one", ""),), (("three", ""),)])
    assert isinstance(screen.file, io.StringIO)
    assert screen.file.getvalue() == "one\x1b[K\ntwo\x1b[K\n\x1b[J" + "\x1b[1A\rthree\x1b[K\n\x1b[J"


def test_a_region_is_never_higher_than_the_terminal() -> None:
    screen = console(height=5)
    LiveRegion(screen).draw([], [((f"row {number}", ""),) for number in range(20)])
    assert isinstance(screen.file, io.StringIO)
    assert re.findall(r"row (\d+)", screen.file.getvalue()) == ["16", "17", "18", "19"]


def test_the_cursor_comes_back_whatever_happens() -> None:
    screen = console()

    def break_off() -> None:
        with Renderer(screen, RunPage()) as show:
            show.add(ToolCallStart(0, "a", "look"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert isinstance(screen.file, io.StringIO)
    told = screen.file.getvalue()
    assert told.endswith("╰─ ■ interrupted\x1b[K\n\x1b[J\x1b[?25h")


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
