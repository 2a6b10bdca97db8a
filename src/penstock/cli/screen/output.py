"""How commands print what happens: rendered for people, or as JSON, a log or the bare answer for scripts."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import click
from msgspec.structs import replace
from rich.console import Console

from penstock.cli.screen.call_card import Span
from penstock.cli.screen.remark import Remark, Shown
from penstock.cli.screen.renderer import Renderer
from penstock.cli.screen.response_page import ResponsePage
from penstock.cli.screen.run_log import RunLog
from penstock.cli.screen.run_page import RunPage
from penstock.cli.screen.terminal import open_console, write_lines
from penstock.events import Error, Finish, StreamChunk
from penstock.jsontext.shown_text import escape
from penstock.run.events import Done, encode

if TYPE_CHECKING:
    from penstock.transport.exchange import Decoding

Format = Literal["json", "plain", "quiet"] | None
"""The output of a run; None renders it, or prints a log if standard output is not a terminal."""

PrintEvent = Callable[[Shown, float], None]
"""Prints an event of a run, which arrived at this time, or a remark about it."""


# -- one response --------------------------------------------------------------------------------------------------


def show_response(
    console: Console,
    wire: str,
    batches: Iterable[Iterable[StreamChunk]],
    *,
    as_json: bool = False,
    live: bool | None = None,
) -> bool:
    """Shows the events of a response as they arrive, batch by batch; returns whether it ended well."""
    ended_well = True
    with _response_output(console, wire, as_json, live) as print_events:
        for batch in batches:
            events = list(batch)
            print_events(*events)
            ended_well = ended_well and not any(map(_is_failure, events))
    return ended_well


@contextmanager
def _response_output(console: Console, wire: str, as_json: bool, live: bool | None) -> Generator[Callable[..., None]]:
    if as_json:
        yield lambda *events: write_lines(map(encode, events))
    else:
        with Renderer(console, ResponsePage(wire), live=live) as renderer:
            yield renderer.add


def decode_batches(decoder: Decoding, pieces: Iterable[bytes]) -> Iterator[list[StreamChunk]]:
    """The events of each piece, and those of the end."""
    for piece in pieces:
        yield decoder.feed(piece)
    yield decoder.close()


def _is_failure(event: StreamChunk) -> bool:
    """Whether the event reports a cut or failed response."""
    return isinstance(event, Error) or (isinstance(event, Finish) and event.reason in ("cut", "error"))


# -- a run ---------------------------------------------------------------------------------------------------------


@contextmanager
def run_output(format: Format) -> Generator[PrintEvent]:
    """Opens the output of a run in this format."""
    match format:
        case "json":
            yield write_json
        case "quiet":
            yield print_answer
        case "plain" | None:
            is_plain = format == "plain"
            with render_run(open_console(is_plain=is_plain), is_plain=is_plain) as print_event:
                yield print_event


@contextmanager
def render_run(
    console: Console,
    spans: Mapping[str, Span] | None = None,
    *,
    is_plain: bool = False,
    is_past: bool = False,
) -> Generator[PrintEvent]:
    """Renders a run on a terminal, or prints it as a log. If it `is_past`, nothing moves, and its times count."""
    last_error: str | None = None

    def without_repetition(event: Shown) -> Shown:
        """The event; a `Done` without its reason, if that was already shown as an error."""
        nonlocal last_error
        if isinstance(event, Error):
            last_error = event.message
        is_repeated = isinstance(event, Done) and event.why == last_error
        return replace(event, why="") if is_repeated else event

    if is_plain or not console.is_terminal or console.is_dumb_terminal:
        log = RunLog(console)
        try:
            yield lambda event, at: log.add(without_repetition(event), at)
        finally:
            log.close()
    else:
        clock = PastClock() if is_past else time.monotonic
        left = "has not ended" if is_past else "interrupted"
        with Renderer(console, RunPage(spans), live=False if is_past else None, clock=clock, left=left) as renderer:

            def add(event: Shown, at: float) -> None:
                if isinstance(clock, PastClock):
                    clock.now = at
                renderer.add(without_repetition(event))

            yield add


class PastClock:
    """The time of the event that is shown."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def write_json(event: Shown, _at: float) -> None:
    """Writes an event as a line of JSON."""
    if not isinstance(event, Remark):
        write_lines([encode(event)])


def print_answer(event: Shown, _at: float) -> None:
    """Prints the final text, and on standard error why it is not an answer. Paused runs are reported elsewhere."""
    if not isinstance(event, Done):
        return
    console = open_console()
    if event.output:
        console.file.write(f"{escape(event.output) if console.is_terminal else event.output}\n")
        console.file.flush()
    if event.reason not in ("answered", "paused"):
        reasons = [reason for reason in (event.reason, event.why) if reason and reason != "error"]
        click.echo(escape(": ".join(["Error", *reasons])), err=True)
