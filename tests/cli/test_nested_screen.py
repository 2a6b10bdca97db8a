"""Agents in agents on the screen: an inner run stands inside the frame of its call, and is indented in a log."""

from __future__ import annotations

import io
import re
from typing import Any

from rich.console import Console

from penstock import Nested, ToolEnd, tool
from penstock.cli.screen.output import render_run
from penstock.cli.screen.rows import plain
from penstock.cli.screen.run_page import RunPage
from penstock.run.events import innermost
from penstock.testing import Reply, call
from tests.scripted_runs import events_of, made


@tool
def look() -> str:
    """Look."""
    return "seen"


def events() -> list[Any]:
    def second(first: Reply, last: str) -> Any:
        return lambda request: last if request.results else first

    deep = made(second(Reply(call("look", {})), "deep answer"), look)
    helper = made(second(Reply(call("deep", {"prompt": "deeper"})), "helped"), deep.as_tool("deep", "Go deeper."))
    calls = Reply(call("helper", {"prompt": "one"}), call("helper", {"prompt": "two"}))
    return events_of(made(second(calls, "All done."), helper.as_tool("helper", "Help.")), "sync")


def shown(page: RunPage) -> list[str]:
    return [plain(row) for row in [*page.take(60, 1.0), *page.moving(60, 1.0)]]


def test_an_inner_run_stands_inside_the_frame_of_its_call() -> None:
    page = RunPage()
    for event in events():
        page.add(event, 0.0)
    page.settle("left")
    rows = shown(page)
    assert "│  › one" in rows
    assert "│  ╭─ deep" in rows
    assert "│  │  ╭─ look" in rows
    assert any(row.startswith("│  │  ╰─ ✓") and "seen" in row for row in rows)
    assert any(row.startswith("│  ╰─ ✓") and "deep answer" in row for row in rows)
    assert sum(row.startswith("╰─ ✓") and "helped" in row for row in rows) == 2
    assert rows[-1] == "All done."


def test_an_inner_run_that_is_cut_short_is_settled_with_its_call() -> None:
    page = RunPage()
    for event in events():
        if isinstance(event, ToolEnd):
            break
        if not (isinstance(event, Nested) and isinstance(innermost(event), ToolEnd)):
            page.add(event, 0.0)
    page.settle("left")
    rows = shown(page)
    assert any(row.startswith("╰─ ■ left") for row in rows)
    assert any(row.startswith("│  ╰─ ■ interrupted") for row in rows)


def test_a_log_names_and_indents_inner_runs() -> None:
    file = io.StringIO()
    with render_run(Console(file=file, width=200), is_plain=True) as print_event:
        for event in events():
            print_event(event, 0.0)
    lines = [re.sub(r" in \d+\.\d\d s: ", ": ", line[8:]) for line in file.getvalue().splitlines()]
    assert "started    helper" in lines
    assert "prompt       helper: one" in lines
    assert "prompt       helper 2: two" in lines
    assert "started      helper: deep" in lines
    assert "result         helper › deep: look: seen" in lines
    assert "result         helper 2 › deep: look: seen" in lines
    assert "text         helper: helped" in lines
    assert lines[-3:] == ["text       All done.", "answered   stop", "done       answered"]
