"""`penstock record` and `penstock replay`: keep an answer with its timing, and play it again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from penstock.cli.app import check_number
from penstock.cli.questions import Mistake, complain, model_options, open_model, read_tools, what_to_ask
from penstock.cli.screen.output import decode_batches, show_response
from penstock.cli.screen.terminal import escape, open_console
from penstock.decoder import Decoder
from penstock.errors import PenstockError, UsageError
from penstock.model.recording import Recording, read_recordings
from penstock.wires import wire_name


@click.command()
@model_options
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Where the exchange is added.")  # fmt: skip
@click.argument("prompt")
def record(
    name: str, wire: str | None, base_url: str | None, system: str, calls: str, tool_file: Path | None,
    timeout: float | None, output: Path, prompt: str,
) -> None:  # fmt: skip
    """Ask a model once, show its answer, and keep the exact bytes of it with their timing.

    The request is kept too, without its key. `penstock replay` plays the file, and a model named replay:FILE answers
    from it.
    """
    asked = what_to_ask(prompt)
    model = open_model(name, wire, base_url, timeout, output)
    console = open_console()
    try:
        with model.stream(asked, read_tools(tool_file), calls=calls, system_prompt=system) as stream:
            ended_well = show_response(console, model.wire, ([event] for event in stream))
    except PenstockError as error:
        raise SystemExit(complain(error, model)) from None
    console.print(escape(f"\nkept in {output}: penstock replay {output}"), style="dim", soft_wrap=True)
    raise SystemExit(0 if ended_well else 1)


@click.command()
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    callback=check_number,
    default=1.0,
    help="Play so many times as fast; 0 does not wait.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one event a line, as JSON, and nothing else.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def replay(speed: float, as_json: bool, file: Path) -> None:
    """Play the answers in a recording again, at the pace at which they came."""
    try:
        recordings = read_recordings(file)
    except UsageError as error:
        raise Mistake(str(error)) from None
    if not recordings:
        raise Mistake(f"there is nothing in the recording {str(file)!r}")
    console = open_console()
    ended_well = True
    for found in recordings:
        if not as_json:
            told = f"{found.asked.model} · {len(found.body):,} bytes in {len(found.pieces)} pieces\n"
            console.print(escape(told), style="dim")
        try:
            events = decode_batches(Decoder(wire_name(found.asked.wire)), paced(found, speed))
            ended_well = show_response(console, found.asked.wire, events, as_json=as_json) and ended_well
        except UsageError as error:  # it is of no wire that there is
            raise Mistake(str(error)) from None
    raise SystemExit(0 if ended_well else 1)


def paced(recording: Recording, speed: float) -> Iterator[bytes]:
    """The pieces of a recorded answer, each when it came."""
    now = 0.0
    for piece in recording.pieces:
        if speed:
            time.sleep(max(0.0, piece.at - now) / speed)
        now = piece.at
        yield piece.data
