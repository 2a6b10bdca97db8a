"""`penstock demo`: a stream that comes with penstock, decoded at the pace at which a model writes."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Iterator
from importlib.resources import as_file, files

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.decode import batches
from penstock.cli.screen import MAX_WIDTH, open_console, visible
from penstock.cli.view import View
from penstock.decoder import Decoder
from penstock.turn import Turn, TurnBuilder, collect

WIRE = "anthropic"
STREAM = files("penstock.cli") / "demo.sse"
BYTES_PER_SECOND = 2_500
LONGEST_PIECE = 90


@click.command()
@click.option("--speed", type=click.FloatRange(min=0, min_open=True), default=1.0, help="Play so many times as fast.")
@click.option("--no-wait", is_flag=True, help="Do not wait at all, as if the output were no terminal.")
def demo(speed: float, no_wait: bool) -> None:
    """Watch a stream with two parallel tool calls being decoded.

    The response of a travel assistant, cut into pieces at odd places, comes in at the pace at which a model writes. At
    the end stands the turn that it adds up to.
    """
    console = open_console()
    body = STREAM.read_bytes()
    pieces = odd_pieces(body)
    console.print(f"{len(body):,} bytes of {WIRE}, cut into {len(pieces)} pieces at odd places:\n", style="dim")
    waits = console.is_terminal and not no_wait
    turn = play(console, paced(pieces, BYTES_PER_SECOND * speed) if waits else pieces)
    console.print(table_of(turn, min(console.width, MAX_WIDTH)))
    check_cuts(console, body, turn)


def odd_pieces(body: bytes) -> list[bytes]:
    """The body cut without regard to lines, frames or characters, in the same way every time."""
    dice = random.Random(0)
    pieces: list[bytes] = []
    while body:
        size = dice.randint(1, LONGEST_PIECE)
        pieces.append(body[:size])
        body = body[size:]
    return pieces


def paced(pieces: Iterable[bytes], bytes_per_second: float) -> Iterator[bytes]:
    """The pieces as a slow line delivers them."""
    for piece in pieces:
        time.sleep(len(piece) / bytes_per_second)
        yield piece


def play(console: Console, pieces: Iterable[bytes]) -> Turn:
    """Show the stream as it comes, and fold it."""
    view, builder = View(console, WIRE), TurnBuilder()
    try:
        for events in batches(Decoder(WIRE), pieces):
            for event in events:
                view.add(event)
                builder.add(event)
            view.flush()
    except KeyboardInterrupt:
        view.cancel()
        raise
    view.close()
    return builder.build()


def table_of(turn: Turn, width: int) -> Table:
    """What the events add up to."""
    table = Table("the turn", "", box=SIMPLE_HEAD, title_justify="left", width=width, header_style="bold")
    table.add_row("type", turn.type)
    table.add_row("text", Text(visible(turn.text)))
    for call in turn.tool_calls:
        table.add_row("call", Text(visible(call.name), "bold cyan"))
        for name, value in call.arguments.items():
            table.add_row(f"  {visible(name)}", Text(visible(json.dumps(value, ensure_ascii=False)), "cyan"))
    return table


def check_cuts(console: Console, body: bytes, turn: Turn) -> None:
    """Decode it in two other cuttings, and say that they do not show."""
    cuttings = [body], [body[at : at + 1] for at in range(len(body))]
    same = all(
        collect(event for events in batches(Decoder(WIRE), pieces) for event in events) == turn for pieces in cuttings
    )
    if same:
        console.print("✓ the same turn comes out if it is fed whole, or byte by byte", style="green")
    else:
        console.print("✗ another turn comes out if it is fed whole, or byte by byte", style="red")
    with as_file(STREAM) as path:
        console.print(f"\nTo look closer: penstock decode --wire {WIRE} --json {path}", style="dim", soft_wrap=True)
