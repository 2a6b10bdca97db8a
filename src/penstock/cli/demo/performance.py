"""Runs the demo: an agent with a simulated provider on this machine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from sysconfig import get_path

import httpx2
from rich.console import Console

from penstock.agent.agent import Agent
from penstock.cli.demo.script import INSTRUCTIONS, PACE, PROMPT, TOOLS, Watch, script
from penstock.cli.demo.timeline import Timeline, chart, savings
from penstock.cli.screen.output import render_run, write_json
from penstock.cli.screen.rows import paragraph, write_rows
from penstock.cli.screen.terminal import MAX_WIDTH, open_console
from penstock.model.logs import screen_drawn
from penstock.model.model import Model
from penstock.providers import ALIASES, PROVIDERS
from penstock.run.events import Done, StreamEvent
from penstock.testing import Loopback
from penstock.wires import ALIASES as WIRE_ALIASES
from penstock.wires import wire_name

NEXT_STEPS = "Try --wire {wire}, --dialect {dialect} or --json; then {command} chat -m sim:demo."


@contextmanager
def open_demo(wire: str, dialect: str | None = None, speed: float = 1.0) -> Generator[tuple[Agent, Watch]]:
    """The agent, with a provider that is simulated on this machine, and the dependencies of its tools."""
    pace = PACE / speed
    server = Loopback(script(wire, dialect, pace), pace=pace, strict=True)
    with server, httpx2.Client(trust_env=False) as client:  # not through a proxy
        model = Model(f"{_provider(wire)}:demo", server.base_url(wire), "-", wire=wire_name(wire), client=client)
        yield Agent(model, TOOLS, INSTRUCTIONS, calls=dialect or "native"), Watch(speed)


def _provider(wire: str) -> str:
    """A provider that uses this wire: the one of the same name, or the first."""
    if wire in {*PROVIDERS, *ALIASES}:
        return wire
    usual = [name for name, row in PROVIDERS.items() if row.wire == wire]
    return [*usual, *(name for name, row in PROVIDERS.items() if wire in row.other_wires)][0]


def show_demo(agent: Agent, watch: Watch, console: Console | None = None, *, is_plain: bool = False) -> Done:
    """Runs the agent, shows the run, and then its timeline, on standard output unless another console is passed."""
    console = console or open_console(is_plain=is_plain)
    timeline = Timeline(time.time() - time.monotonic())
    width = max(min(console.width - 1, MAX_WIDTH), 1)
    edge = width if console.is_terminal else None
    write_rows(console, [*paragraph(_title(agent), "aside", edge), (), *paragraph(f"› {PROMPT}", "title", edge), ()])
    with render_run(console, watch.spans, is_plain=is_plain) as print_event:
        done = _run(agent, watch, timeline.add, print_event)
    if done.reason == "answered":
        write_rows(console, [(), *chart(timeline, width), (), *savings(timeline.waits, edge)])
        write_rows(console, [(), *paragraph(_next_steps(agent), "aside", edge)])
    return done


def write_demo(agent: Agent, watch: Watch) -> Done:
    """Runs the agent, and writes one event per line as JSON."""
    return _run(agent, watch, write_json)


def command_name() -> str:
    """How the penstock command is started from the current directory."""
    if shutil.which("penstock"):
        return "penstock"
    installed, here = Path(get_path("scripts"), "penstock"), Path.cwd()
    is_below = installed.is_file() and installed.is_relative_to(here)
    return str(installed.relative_to(here)) if is_below else "python -m penstock.cli"


def _next_steps(agent: Agent) -> str:
    """Suggests a wire and a dialect other than those of this demo."""
    wire = "gemini" if agent.config.model.wire != "gemini" else "openai-chat"
    dialect = "hermes" if agent.config.calls != "hermes" else "xml"
    return NEXT_STEPS.format(wire=wire, dialect=dialect, command=command_name())


def _title(agent: Agent) -> str:
    model, calls = agent.config.model, agent.config.calls
    in_text = "" if calls == "native" else f" · calls in the text, as {calls}"
    wire = model.provider if model.provider in WIRE_ALIASES else model.wire  # the name that --wire had
    return f"penstock demo · {wire} at {model.base_url}{in_text}"


def _run(agent: Agent, watch: Watch, *outputs: Callable[[StreamEvent, float], None]) -> Done:
    with agent.stream(PROMPT, deps=watch) as run, screen_drawn():  # one of its tools fails on purpose
        for event in run:
            now = time.monotonic()
            for output in outputs:
                output(event, now)
    assert run.done is not None
    return run.done
