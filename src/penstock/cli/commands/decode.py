"""`penstock decode`: a recorded or arriving response as events."""

from __future__ import annotations

from io import BufferedReader

import click

from penstock.cli.oddities import MADE_UP
from penstock.cli.screen.output import decode_batches, show_response
from penstock.cli.screen.terminal import open_console
from penstock.decoder import Decoder
from penstock.wires import ALIASES, WIRES, wire_name

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
    name = wire_name(wire)
    decoder = Decoder(name, tools) if as_json else Decoder(name, tools, id_prefix=MADE_UP)
    live = False if stream.isatty() else None  # what is typed would be drawn over
    if not show_response(open_console(), wire, decode_batches(decoder, pieces), as_json=as_json, live=live):
        raise SystemExit(1)
