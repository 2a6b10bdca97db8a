"""How the demo goes: who plays, what is seen of it, and when what happened."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from sysconfig import get_path

import httpx2
from rich.console import Console

from penstock.agent.agent import Agent
from penstock.cli.demo_script import INSTRUCTIONS, PACE, PROMPT, TOOLS, Watch, script
from penstock.cli.screen.live_run import shown
from penstock.cli.screen.rows import paragraph, print_rows
from penstock.cli.screen.run_output import write_json
from penstock.cli.screen.terminal import MAX_WIDTH, open_console
from penstock.cli.screen.timeline import Timeline
from penstock.cli.screen.timeline_chart import chart, savings
from penstock.model.model import Model
from penstock.providers import ALIASES, PROVIDERS
from penstock.run.events import Done, StreamEvent
from penstock.testing import Loopback
from penstock.wires import ALIASES as WIRE_ALIASES

NEXT = "Try --wire gemini, --dialect hermes or --json; then {} chat -m sim:demo."


@contextmanager
def cast(wire: str, dialect: str | None = None, speed: float = 1.0) -> Generator[tuple[Agent, Watch]]:
    """The agent, its model behind a server on this machine, and what its tools are handed."""
    pace = PACE / speed
    server = Loopback(script(wire, dialect, pace), pace=pace, strict=True)
    with server, httpx2.Client(trust_env=False) as client:  # whatever proxy there is, the way is not through it
        model = Model(f"{_provider(wire)}:demo", server.base_url(wire), "-", wire=wire, client=client)
        yield Agent(model, TOOLS, INSTRUCTIONS, calls=dialect or "native"), Watch(speed)


def _provider(wire: str) -> str:
    """A provider that speaks this wire: the one that it is named after, or else the first."""
    return wire if wire in {*PROVIDERS, *ALIASES} else next(name for name, row in PROVIDERS.items() if row.wire == wire)


def play(agent: Agent, watch: Watch, console: Console | None = None, *, is_plain: bool = False) -> Done:
    """Run the agent and show it, and then when what happened."""
    console = open_console(is_plain=is_plain) if console is None else console
    timeline = Timeline(watch.spans)
    width = max(min(console.width - 1, MAX_WIDTH), 1)
    edge = width if console.is_terminal else sys.maxsize  # a pipe has none
    print_rows(console, [*paragraph(_heading(agent), "aside", edge), (), *paragraph(f"› {PROMPT}", "title", edge), ()])
    with shown(console, watch.spans, is_plain=is_plain) as see:
        done = _run(agent, watch, timeline.add, see)
    if done.reason == "answered":
        print_rows(console, [(), *chart(timeline, width), (), *savings(timeline.waits, edge)])
        print_rows(console, [(), *paragraph(NEXT.format(ourselves()), "aside", edge)])
    return done


def ourselves() -> str:
    """How this command can be started from here."""
    if shutil.which("penstock"):
        return "penstock"
    started, here = Path(get_path("scripts"), "penstock"), Path.cwd()
    is_below = started.is_file() and started.is_relative_to(here)
    return str(started.relative_to(here)) if is_below else "python -m penstock.cli"


def write(agent: Agent, watch: Watch) -> Done:
    """Run the agent, and write an event a line."""
    return _run(agent, watch, write_json)


def _heading(agent: Agent) -> str:
    model, calls = agent.config.model, agent.config.options["calls"]
    in_text = "" if calls == "native" else f" · calls in the text, as {calls}"
    wire = model.provider if model.provider in WIRE_ALIASES else model.wire  # the one that was asked for
    return f"penstock demo · {wire} at {model.base_url}{in_text}"


def _run(agent: Agent, watch: Watch, *seers: Callable[[StreamEvent, float], None]) -> Done:
    with agent.stream(PROMPT, deps=watch) as run:
        for event in run:
            now = time.monotonic()
            for see in seers:
                see(event, now)
    assert run.done is not None
    return run.done
