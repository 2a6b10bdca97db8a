"""`penstock inspect`: a web page that shows what a provider sent, frame by frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.commands.completion import complete_file
from penstock.cli.exit_signals import exit_signals
from penstock.cli.model_options import CommandError, WireOption
from penstock.errors import PenstockError, UsageError
from penstock.jsontext.shown_text import escape
from penstock.wires import WireName

if TYPE_CHECKING:
    from penstock.inspector.inspections import Inspections


@click.command()
@click.argument("file", required=False, metavar="[FILE]", shell_complete=complete_file)
@click.option("--gateway", metavar="URL", help="Open the page of a gateway or server that is running.")
@click.option("--wire", type=WireOption(), help="The protocol of FILE if it is not a recording; detected if not given.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), metavar="PORT",
              help="The port to listen on; 0 picks a free one.")  # fmt: skip
@click.option("--open/--no-open", "opens", default=True, help="Whether to open the page in a browser.")
def inspect(file: str | None, gateway: str | None, wire: WireName | None, host: str, port: int, opens: bool) -> None:
    """Show a recording, or the exchanges of a gateway, on a web page.

    FILE is a recording (`penstock record`, or record= of a model), or the body of a response as the provider sent it.
    The page shows each frame with its time, the events that it decodes to, what was sent on to the client, and what is
    unusual about it.

    \b
      penstock inspect weather.jsonl
      penstock inspect --gateway http://127.0.0.1:4000
    """
    if (file is None) == (gateway is None):
        raise CommandError("pass either a recording or --gateway URL")
    try:
        if gateway is not None:
            _open_gateway(gateway, opens)
        else:
            _serve(str(file), wire, host, port, opens)
    except PenstockError as error:
        raise CommandError(str(error)) from None


def _open_gateway(url: str, opens: bool) -> None:
    from urllib.error import HTTPError, URLError
    from urllib.request import urlopen

    address = url.rstrip("/").removesuffix("/v1").removesuffix("/inspect") + "/inspect"
    if not address.startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is not the URL of a gateway: write http://HOST:PORT")
    try:
        with urlopen(address, timeout=10) as response:  # the scheme was checked
            is_page = b"Penstock inspector" in response.read(4096)
    except HTTPError as error:
        error.close()
        raise UsageError(
            f"{address} returned status {error.code}: the inspector of this server is not enabled"
        ) from None
    except (URLError, OSError, ValueError) as error:
        raise UsageError(f"cannot reach {address}: {getattr(error, 'reason', error)}") from None
    if not is_page:
        raise UsageError(f"{address} is not an inspector page: pass the URL of a penstock gateway or server")
    _show(address, opens)


def _serve(file: str, wire: WireName | None, host: str, port: int, opens: bool) -> None:
    from penstock.asgi.access import is_loopback
    from penstock.asgi.server import address_of, listen, run_server
    from penstock.inspector.app import LIMITS, app

    if not is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines, and a recording may hold private data: use 127.0.0.1"
        )
    inspections = _read(file, wire)
    with listen(host, port) as listener:
        _show(f"{address_of(listener)}/inspect", opens)
        click.echo("Ctrl-C stops", err=True)
        served = app(inspections)
        run_server(served, listener, LIMITS, exit_signals(), access=served.access, on_stop=inspections.close)


def _read(file: str, wire: WireName | None) -> Inspections:
    from pathlib import Path

    from penstock.cli.wire_detection import detect_wire
    from penstock.inspector.inspections import Inspections, read_file
    from penstock.model.recording import FILE_START, DataLine, Recording, RequestLine, ResponseLine, data_line

    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file!r}: {error.strerror}") from None
    if data.startswith(FILE_START):
        return read_file(file)
    known = wire or detect_wire([data])[0] or "openai-chat"
    pieces: tuple[DataLine, ...] = (data_line(0.0, data),)
    body = Recording(RequestLine(known, Path(file).name, "", None), ResponseLine(0.0, 200), pieces, True)
    inspections = Inspections()
    inspections.load([body])
    return inspections


def _show(address: str, opens: bool) -> None:
    click.echo(escape(address))
    if opens:
        import webbrowser

        webbrowser.open_new_tab(address)
