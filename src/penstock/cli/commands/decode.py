"""`penstock decode`: a recorded or arriving response as events."""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedReader
from typing import TYPE_CHECKING

import click

from penstock.cli.commands.completion import complete_dialect
from penstock.cli.exit_codes import UNSUCCESSFUL
from penstock.cli.model_options import CommandError, WireOption, split_names
from penstock.cli.screen.output import decode_batches, show_response
from penstock.cli.screen.terminal import open_console
from penstock.declarations import read_declarations
from penstock.decoder import Decoder
from penstock.errors import UsageError
from penstock.healing.settings import Healing, Repair
from penstock.inspector.oddities import GENERATED_ID
from penstock.jsontext.shown_text import escape
from penstock.wires import WireName

if TYPE_CHECKING:
    from penstock.healing.decoding import HealedDecoding
    from penstock.transport.exchange import Decoding

READ_BYTES = 64 * 1024


@click.command()
@click.option("--wire", type=WireOption(), help="The protocol of the response; detected if not given.")
@click.option("--json", "as_json", is_flag=True, help="Print one event per line as JSON, and nothing else.")
@click.option(
    "--tools",
    multiple=True,
    metavar="NAMES",
    callback=split_names,
    help="Names of the declared tools (a,b,c): needed where a provider sends names in pieces.",
)
@click.option(
    "--calls",
    multiple=True,
    metavar="DIALECTS",
    callback=split_names,
    shell_complete=complete_dialect,
    help="Read the text in a dialect, or in several (a,b): the model writes its calls there.",
)
@click.option("--rescue", is_flag=True, help="Find calls of the tools (--tools) in the text.")
@click.option(
    "--repair",
    type=click.Choice(["off", "safe", "guess"]),
    default="off",
    show_default=True,
    help="Repair damaged arguments: safe if only one repair is possible, guess also others.",
)
@click.option("--frames", is_flag=True, help="Show every frame with its events, and what is unusual about it.")
@click.argument("stream", metavar="[FILE|-]", type=click.File("rb"), default="-")
def decode(
    wire: WireName | None,
    as_json: bool,
    tools: list[str],
    calls: list[str],
    rescue: bool,
    repair: Repair,
    frames: bool,
    stream: BufferedReader,
) -> None:
    """Decode a provider's response and show its events.

    FILE is the body of the response, streamed or whole, as the provider sent it. Without FILE, or with -, standard
    input is read and shown while it arrives:

    \b
      curl -N https://… | penstock decode

    Text, reasoning and the arguments of calls are shown as they arrive, and what is unusual about the stream is listed
    at the end. In a pipe, a call is printed when it is complete. Colours need a terminal; NO_COLOR turns them off,
    FORCE_COLOR=1 on. `penstock inspect FILE` shows the frames on a web page.

    \b
    Exit code:
      0  the response is complete
      1  it was cut, has an error, or cannot be decoded
      2  the command line is not valid, or the file cannot be read
    """
    if rescue and not tools:
        raise CommandError("--rescue needs --tools: a call in the text is one of a declared tool")
    if frames and (rescue or calls or repair != "off"):
        raise CommandError("--frames shows what the server sent: leave out --calls, --rescue and --repair")
    if calls and (rescue or repair != "off"):
        raise CommandError("--calls is for a model without native calls: leave out --rescue and --repair")
    is_typed = stream.isatty()
    if is_typed:
        click.echo("Reading from the terminal; Ctrl-D ends the input.", err=True)
    pieces = iter(lambda: stream.read1(READ_BYTES), b"")  # whatever is there: a pipe may still be filling
    if wire is None:
        wire, pieces = _detect(pieces)
    if frames:
        from penstock.cli.screen.frames import show_frames

        if not show_frames(open_console(), wire, pieces, as_json=as_json):
            raise SystemExit(UNSUCCESSFUL)
        return
    id_prefix = "call_" if as_json else GENERATED_ID
    decoder = (
        _text_decoder(wire, tools, calls, id_prefix) if calls else _decoder(wire, tools, rescue, repair, id_prefix)
    )
    live = False if is_typed else None  # a live region would draw over what is typed
    if not show_response(open_console(), wire, decode_batches(decoder, pieces), as_json=as_json, live=live):
        raise SystemExit(UNSUCCESSFUL)


def _text_decoder(wire: WireName, tools: list[str], calls: list[str], id_prefix: str) -> Decoding:
    """A decoder with calls in the text."""
    from penstock.dialects.stage import TextCalls
    from penstock.model.text_calls import StagedDecoding

    try:
        stage = TextCalls(calls, tools, reasoning=True, id_prefix=id_prefix)
    except UsageError as error:
        raise CommandError(str(error)) from None
    return StagedDecoding(Decoder(wire, tools, id_prefix=id_prefix), stage)


def _decoder(
    wire: WireName, tools: list[str], rescue: bool, repair: Repair, id_prefix: str
) -> Decoder | HealedDecoding:
    decoder = Decoder(wire, tools, id_prefix=id_prefix)
    if not rescue and repair == "off":
        return decoder
    from penstock.healing.decoding import HealedDecoding, response_context

    declared = tuple(read_declarations(tools))
    healing = Healing(rescue=rescue, repair=repair, reasoning=False, finish_reasons=False, usage=False)
    return HealedDecoding(decoder, response_context(wire, declared, (), healing, id_prefix=id_prefix))


def _detect(pieces: Iterator[bytes]) -> tuple[WireName, Iterator[bytes]]:
    from penstock.adapters.wire_detector import ANY_WIRE
    from penstock.cli.wire_detection import detect_wire

    try:
        wire, pieces = detect_wire(pieces)
    except UsageError as error:
        raise CommandError(str(error)) from None
    found = f"detected wire: {wire}" if wire else "an error body; it reads the same on every wire"
    click.secho(escape(found), dim=True, err=True)
    return wire or ANY_WIRE, pieces
