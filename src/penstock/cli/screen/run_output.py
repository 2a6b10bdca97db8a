"""In which manner a run is told: as a show or a log for people, as JSON or as the bare answer for scripts."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal

import click

from penstock.cli.screen.live_run import shown
from penstock.cli.screen.terminal import open_console, visible, write_lines
from penstock.run.events import Done, StreamEvent, encode

Manner = Literal["json", "plain", "quiet"] | None
"""How a run is told; None is as a show, or as a log where there can be none."""


@contextmanager
def telling(manner: Manner) -> Generator[Callable[[StreamEvent, float], None]]:
    """What takes the events and the moments at which they came."""
    match manner:
        case "json":
            yield write_json
        case "quiet":
            yield say_answer
        case "plain" | None:
            is_plain = manner == "plain"
            with shown(open_console(is_plain=is_plain), is_plain=is_plain) as see:
                yield see


def write_json(event: StreamEvent, _at: float) -> None:
    """Write an event as a line."""
    write_lines([encode(event)])


def say_answer(event: StreamEvent, _at: float) -> None:
    """Print the final text, as it is unless a terminal would obey it; and if it is no answer, say so beside it.

    What a run that is paused waits for is said by whoever leaves it waiting.
    """
    if not isinstance(event, Done):
        return
    out = open_console()
    if event.output:
        out.file.write(f"{visible(event.output) if out.is_terminal else event.output}\n")
        out.file.flush()
    if event.reason not in ("answered", "paused"):
        told = [word for word in (event.reason, event.why) if word and word != "error"]
        click.echo(visible(": ".join(["Error", *told])), err=True)
