"""`penstock models`: the providers of models, and which of them are set up."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.commands.completion import complete_provider
from penstock.cli.model_options import CommandError
from penstock.cli.screen.rows import encodable
from penstock.cli.screen.terminal import open_console
from penstock.errors import UsageError
from penstock.jsontext.shown_text import escape
from penstock.providers import ALIASES, PROVIDERS, Provider, find_base_url, find_provider
from penstock.redaction import without_secrets

HEADINGS = ("provider", "key", "wire", "address")
MAX_KEY = 30
"""The columns for keys: as many as the longest variable needs."""
WIDE = 120
"""The columns that a terminal must have to show addresses."""
MEDIUM = 70
"""The columns that a terminal must have to show wires."""
AWS_KEY = "AWS_ACCESS_KEY_ID"
"""The variable that shows that the environment has AWS credentials."""
LOCAL_MODELS = {
    "sim": {
        "sim:demo": "a simulated model that answers at the pace of a real one and calls the tools that you declare",
        "sim:fast": "the same without pauses, for tests",
        "key": "not needed, nor is a network",
        "try": "penstock chat -m sim:demo",
    },
    "replay": {
        "replay:FILE": "answers from a recording (see `penstock record`)",
        "key": "not needed, nor is a network",
        "try": "penstock chat -m replay:FILE",
    },
}
"""Models without a provider, with their details."""
_VARIABLE = re.compile(r"{(\w+)}")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--dialects", is_flag=True, help="List the dialects in which a model can write calls into its text.")
@click.argument("provider", required=False, shell_complete=complete_provider)
def models(as_json: bool, dialects: bool, provider: str | None) -> None:
    """List the providers, and whether their keys are set.

    A model is named PROVIDER:MODEL, as in openai:gpt-5, where MODEL is the provider's own name for it. Penstock has no
    list of models: the provider's documentation has it. With PROVIDER, only that one is shown, with its details.

    Keys are read from the environment variables that are shown here; they are never printed.
    """
    if dialects:
        _print_dialects(as_json)
        return
    scheme = (provider or "").partition(":")[0]
    if scheme in LOCAL_MODELS and not as_json:
        _print_labelled(open_console(), LOCAL_MODELS[scheme])
        return
    rows = PROVIDERS if provider is None else _find(provider)
    if as_json:
        table = [{"provider": name, "wire": row.wire, "url": url(name, row), "key": key(row)}
                 for name, row in rows.items()]  # fmt: skip
        click.echo(json.dumps(table, indent=1))
    elif provider is None:
        _print_table(open_console())
    else:
        for name, row in rows.items():
            _print_details(open_console(), name, row)


def _print_dialects(as_json: bool) -> None:
    from penstock.dialects.prompt import prompts
    from penstock.dialects.registry import ALIASES as DIALECT_ALIASES

    known = prompts()
    names = sorted([*known, *(alias for alias, dialect in DIALECT_ALIASES.items() if dialect in known)])
    click.echo(json.dumps(names, indent=1) if as_json else escape("\n".join(names)))


def _find(provider: str) -> dict[str, Provider]:
    try:
        return dict([find_provider(provider.partition(":")[0])])
    except UsageError as error:
        raise CommandError(str(error)) from None


def _print_table(console: Console) -> None:
    table = Table(box=SIMPLE_HEAD, header_style="bold")
    count = 4 if console.width >= WIDE else 3 if console.width >= MEDIUM else 2
    for heading in HEADINGS[:count]:
        width = MAX_KEY if heading == "key" else None
        table.add_column(heading, overflow="fold", max_width=width)  # variables must be whole to be copied
    for name, row in PROVIDERS.items():
        missing = [*missing_key(row), *missing_address(name, row)]
        unset = missing if count < len(HEADINGS) else missing_key(row)  # the address column shows the others
        cells = (
            Text(name, "dim" if missing else "bold"),
            _key_text(row, unset, console),
            row.wire,
            Text(escape(address(name, row)), "dim"),
        )
        table.add_row(*cells[:count])
    console.print(table)
    console.print("Name a model as PROVIDER:MODEL, as in openai:gpt-5; `penstock models PROVIDER` shows more.")
    console.print("sim:demo needs neither key nor network: penstock chat -m sim:demo", style="dim")


def _print_details(console: Console, name: str, row: Provider) -> None:
    aliases = [alias for alias, target in ALIASES.items() if target == name]
    details = {
        "model": f"{name}:MODEL",
        "also called": ", ".join(aliases),
        "key": _key_details(row, console),
        "wire": row.wire,
        "address": address(name, row),
        "set address": ", ".join([*missing_address(name, row)] or row.urls),
        "note": _with_command_options(row.about),
        "try": f"penstock chat -m {name}:MODEL{'' if row.base_url else ' --base-url URL'}",
    }
    _print_labelled(console, details)


def _print_labelled(console: Console, details: Mapping[str, str]) -> None:
    for label, text in details.items():
        if text:
            console.print(Text(f"{label:<12}", "dim") + Text(escape(text)), soft_wrap=True)


def _with_command_options(about: str) -> str:
    """The note of a provider, with command-line options in place of Python arguments."""
    return re.sub(r'\bwire="([\w-]+)"', r"--wire \1", about).replace("base_url", "--base-url URL")


def _key_details(row: Provider, console: Console) -> str:
    """The key of a provider; if it is missing, all variables that may contain it."""
    if key(row) or row.auth == "aws":
        return _key_text(row, missing_key(row), console).plain
    return f"{'missing' if row.needs_key else 'optional'}: {' or '.join(row.keys)}"


def key(row: Provider) -> str:
    """The variable that holds the provider's key; empty if none is set."""
    variables = (*row.keys, AWS_KEY) if row.auth == "aws" else row.keys
    return next((variable for variable in variables if os.environ.get(variable)), "")


def missing_key(row: Provider) -> list[str]:
    """The variable to set for the key, if one is needed and none is set."""
    if key(row):
        return []
    if row.auth == "aws":
        return [f"{row.keys[0]} (or AWS credentials)"]
    return [row.keys[0]] if row.needs_key else []


def missing_address(name: str, row: Provider) -> list[str]:
    """The variables to set for a missing base URL."""
    if url(name, row) is not None:
        return []
    unset = [variable for variable in dict.fromkeys(_VARIABLE.findall(row.base_url)) if not os.environ.get(variable)]
    return unset or [*row.urls[:1]]


def url(name: str, row: Provider) -> str | None:
    """The base URL; None if a variable for it is missing."""
    try:
        return without_secrets(find_base_url(name, row))
    except UsageError:
        return None


def address(name: str, row: Provider) -> str:
    """The base URL, or what it is made of."""
    return url(name, row) or row.base_url or "(needs a base URL)"


def _key_text(row: Provider, unset: list[str], console: Console) -> Text:
    """The key in use, and the missing variables."""
    if not key(row) and not unset:
        return Text("not needed", "dim")
    parts = [Text(encodable(console, f"✓ {key(row)}"), "green")] if key(row) else []
    return Text(", ").join([*parts, Text(f"missing: {', '.join(unset)}", "yellow")] if unset else parts)
