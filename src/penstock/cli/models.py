"""`penstock models`: the providers, and which of them are set up here."""

from __future__ import annotations

import json
import os

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from penstock.cli.screen import open_console
from penstock.errors import UsageError
from penstock.masking import without_secrets
from penstock.providers import PROVIDERS, Provider, find_base_url

WIDE = 120
"""How many columns a terminal must have to show the addresses too."""
MIDDLING = 70
"""How many it must have to show the wires."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def models(as_json: bool) -> None:
    """List the providers, where they are, and whether their keys are set.

    A model is named provider:model, as in openai:gpt-5. Keys are read from the variables that are shown; they are never
    printed.
    """
    if as_json:
        rows = [
            {"provider": name, "wire": row.wire, "url": url(name, row), "key": key(row)}
            for name, row in PROVIDERS.items()
        ]
        click.echo(json.dumps(rows, indent=1))
        return
    console = open_console()
    table = Table(box=SIMPLE_HEAD, header_style="bold")
    fitting = 4 if console.width >= WIDE else 3 if console.width >= MIDDLING else 2
    for heading in ("provider", "key", "speaks", "at")[:fitting]:
        table.add_column(heading, overflow="fold")  # the variables are there to be copied
    for name, row in PROVIDERS.items():
        style = "bold" if is_ready(row) else "dim"
        cells = (Text(name, style), _shown_key(row), row.wire, Text(where(name, row), "dim"))
        table.add_row(*cells[:fitting])
    console.print(table)
    console.print("sim:demo needs neither key nor network: penstock chat -m sim:demo", style="dim")


def key(row: Provider) -> str:
    """The variable that holds the provider's key; empty if none is set."""
    return next((variable for variable in row.keys if os.environ.get(variable)), "")


def is_ready(row: Provider) -> bool:
    return bool(key(row)) or not row.needs_key


def url(name: str, row: Provider) -> str | None:
    """The base URL; None if something is missing for one."""
    try:
        return without_secrets(find_base_url(name, row))
    except UsageError:
        return None


def where(name: str, row: Provider) -> str:
    """The base URL, or what is missing for one."""
    return url(name, row) or row.base_url or "(give a base URL)"


def _shown_key(row: Provider) -> Text:
    if found := key(row):
        return Text(f"✓ {found}", "green")
    if not row.needs_key:
        return Text("not needed", "dim")
    return Text(f"set {row.keys[0]}", "yellow")
