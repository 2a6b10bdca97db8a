"""`penstock decode`: a recorded or arriving response as events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BufferedReader
from typing import Any

import click

from penstock.cli.oddities import MADE_UP
from penstock.cli.screen import open_console, write_lines
from penstock.cli.view import View
from penstock.decoder import Decoder
from penstock.events import Error, Finish, StreamChunk, encode
from penstock.wires import ALIASES, WIRES

READ_BYTES = 64 * 1024


def split_names(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> list[str]:
    """Names given in several options, or in one with commas."""
    return [name.strip() for names in given for name in names.split(",") if name.strip()]


@click.command()
@click.option(
    "--wire", required=True, type=click.Choice([*WIRES, *ALIASES]), help="The format that the response is in."
)
@click.option("--json", "as_json", is_flag=True, help="Print one event a line, as JSON, and nothing else.")
@click.option(
    "--tools",
    multiple=True,
    metavar="NAMES",
    callback=split_names,
    help="The tools that the request declared (a,b,c): tells names apart that arrive in pieces.",
)
@click.argument("stream", metavar="[FILE|-]", type=click.File("rb"), default="-")
def decode(wire: str, as_json: bool, tools: list[str], stream: BufferedReader) -> None:
    """Show what a provider's response says, event by event.

    FILE holds the body of the response, streamed or whole, as it came; without it, or with -, the body is read from
    standard input while it arrives:

    \b
      curl -N https://… | penstock decode --wire openai-chat

    Text flows as text, a call grows until it is whole (✓) or must not run (✗), and what is odd about the stream is
    called out, and summed up at the end. The colours go away if the output is no terminal or NO_COLOR is set;
    FORCE_COLOR=1 keeps them.

    \b
    Exit code:
      0  the stream ended well
      1  it was cut, or there was an error in it
      2  the command was not understood, or the file cannot be read
    """
    if stream.isatty():
        click.echo("Reading from the terminal; Ctrl-D ends it.", err=True)
    pieces = iter(lambda: stream.read1(READ_BYTES), b"")  # what is there, at once: a pipe may still be filling
    ended_well = show_json(wire, tools, pieces) if as_json else show_readable(wire, tools, pieces)
    if not ended_well:
        raise SystemExit(1)


def show_json(wire: str, tools: Iterable[Any], pieces: Iterable[bytes]) -> bool:
    """Print an event a line; whether the stream ended well."""
    ended_well = True
    for events in batches(Decoder(wire, tools), pieces):
        write_lines(map(encode, events))
        ended_well = ended_well and not any(map(is_bad_end, events))
    return ended_well


def show_readable(wire: str, tools: Iterable[Any], pieces: Iterable[bytes]) -> bool:
    """Print the view for people; whether the stream ended well."""
    view = View(open_console(), wire)
    ended_well = True
    try:
        for events in batches(Decoder(wire, tools, id_prefix=MADE_UP), pieces):
            for event in events:
                view.add(event)
            view.flush()
            ended_well = ended_well and not any(map(is_bad_end, events))
    except KeyboardInterrupt:
        view.cancel()
        raise
    view.close()
    return ended_well


def batches(decoder: Decoder, pieces: Iterable[bytes]) -> Iterator[list[StreamChunk]]:
    """The events of each piece, and those of the end."""
    for piece in pieces:
        yield decoder.feed(piece)
    yield decoder.close()


def is_bad_end(event: StreamChunk) -> bool:
    """Whether the event says that the stream was cut or went wrong."""
    return isinstance(event, Error) or (isinstance(event, Finish) and event.reason in ("cut", "error"))
