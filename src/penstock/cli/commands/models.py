"""`penstock models`: the providers, and which of them are set up here."""

from __future__ import annotations

import json
import os
import re

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from penstock.cli.screen.terminal import escape, open_console
from penstock.errors import UsageError
from penstock.providers import PROVIDERS, Provider, find_base_url
from penstock.redaction import without_secrets

HEADINGS = ("provider", "key", "speaks", "at")
MAX_KEY = 30
"""How many columns of them the keys may take: as many as the longest of the variables needs."""
WIDE = 120
"""How many columns a terminal must have to show the addresses too."""
MIDDLING = 70
"""How many it must have to show the wires."""
AWS_KEY = "AWS_ACCESS_KEY_ID"
"""The variable that tells that there are credentials of AWS, where they are in the environment."""
_VARIABLE = re.compile(r"{(\w+)}")


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
    for heading in HEADINGS[:fitting]:
        most = MAX_KEY if heading == "key" else None
        table.add_column(heading, overflow="fold", max_width=most)  # the variables are there to be copied
    for name, row in PROVIDERS.items():
        unset = [*missing_key(row), *missing_address(name, row)]
        told = unset if fitting < len(HEADINGS) else missing_key(row)  # else its column tells what the address lacks
        cells = (
            Text(name, "dim" if unset else "bold"),
            _shown_key(row, told),
            row.wire,
            Text(escape(where(name, row)), "dim"),
        )
        table.add_row(*cells[:fitting])
    console.print(table)
    console.print("sim:demo needs neither key nor network: penstock chat -m sim:demo", style="dim")


def key(row: Provider) -> str:
    """The variable that holds the provider's key; empty if none is set."""
    variables = (*row.keys, AWS_KEY) if row.auth == "aws" else row.keys
    return next((variable for variable in variables if os.environ.get(variable)), "")


def missing_key(row: Provider) -> list[str]:
    """The variable to set for a key, if none is set and one is wanted."""
    if key(row):
        return []
    if row.auth == "aws":
        return [f"{row.keys[0]} (or AWS credentials)"]
    return [row.keys[0]] if row.needs_key else []


def missing_address(name: str, row: Provider) -> list[str]:
    """The variables to set for a base URL, if there is none without them."""
    if url(name, row) is not None:
        return []
    unset = [variable for variable in dict.fromkeys(_VARIABLE.findall(row.base_url)) if not os.environ.get(variable)]
    return unset or [*row.urls[:1]]


def url(name: str, row: Provider) -> str | None:
    """The base URL; None if something is missing for one."""
    try:
        return without_secrets(find_base_url(name, row))
    except UsageError:
        return None


def where(name: str, row: Provider) -> str:
    """The base URL, or what is missing for one."""
    return url(name, row) or row.base_url or "(give a base URL)"


def _shown_key(row: Provider, unset: list[str]) -> Text:
    """The key that is set, and what is to be set."""
    if not key(row) and not unset:
        return Text("not needed", "dim")
    parts = [Text(f"✓ {key(row)}", "green")] if key(row) else []
    return Text(", ").join([*parts, Text(f"set {', '.join(unset)}", "yellow")] if unset else parts)
