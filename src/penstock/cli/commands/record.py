"""`penstock record` and `penstock replay`: record a response with its timing, and play it again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from penstock.cli.app import check_number
from penstock.cli.exit_codes import UNSUCCESSFUL
from penstock.cli.model_options import (
    CommandError,
    model_options,
    open_model,
    print_error,
    read_prompt,
    read_tools,
)
from penstock.cli.screen.output import decode_batches, show_response
from penstock.cli.screen.terminal import open_console
from penstock.decoder import Decoder
from penstock.errors import PenstockError, UsageError
from penstock.jsontext.shown_text import escape
from penstock.model.recording import Recording, read_recordings
from penstock.wires import WireName, wire_name


@click.command()
@model_options
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="The file that the exchange is appended to.")  # fmt: skip
@click.argument("prompt")
def record(
    name: str, wire: WireName | None, base_url: str | None, system: str, calls: str | list[str],
    tool_file: Path | None,
    timeout: float | None, output: Path, prompt: str,
) -> None:  # fmt: skip
    """Ask a model once, and record the exact bytes of its response with their timing.

    The request is recorded too, without its key. `penstock replay` plays the file, and a model named replay:FILE
    answers from it.
    """
    text = read_prompt(prompt)
    model = open_model(name, wire, base_url, timeout, output)
    console = open_console()
    try:
        with model.stream(text, read_tools(tool_file), calls=calls, system_prompt=system) as stream:
            ended_well = show_response(console, model.wire, ([event] for event in stream))
    except PenstockError as error:
        raise SystemExit(print_error(error, model)) from None
    console.print(escape(f"\nrecorded in {output}: penstock replay {output}"), style="dim", soft_wrap=True)
    raise SystemExit(0 if ended_well else UNSUCCESSFUL)


@click.command()
@click.option("--speed", type=click.FloatRange(min=0), callback=check_number, default=1.0, metavar="FACTOR",
              help="Play this many times faster; 0 plays without waiting.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one event per line as JSON, and nothing else.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def replay(speed: float, as_json: bool, file: Path) -> None:
    """Play recorded responses again, with their original timing."""
    try:
        recordings = read_recordings(file)
    except UsageError as error:
        raise CommandError(str(error)) from None
    if not recordings:
        raise CommandError(f"the recording {str(file)!r} is empty")
    console = open_console()
    ended_well = True
    for recording in recordings:
        if not as_json:
            title = f"{recording.request.model} · {len(recording.body):,} bytes in {len(recording.pieces)} pieces\n"
            console.print(escape(title), style="dim")
        try:
            batches = decode_batches(Decoder(wire_name(recording.request.wire)), paced(recording, speed))
            ended_well = show_response(console, recording.request.wire, batches, as_json=as_json) and ended_well
        except UsageError as error:  # an unknown wire
            raise CommandError(str(error)) from None
    raise SystemExit(0 if ended_well else UNSUCCESSFUL)


def paced(recording: Recording, speed: float) -> Iterator[bytes]:
    """The pieces of a recorded response, with their timing."""
    now = 0.0
    for piece in recording.pieces:
        if speed:
            time.sleep(max(0.0, piece.at - now) / speed)
        now = piece.at
        yield piece.data
