"""`penstock demo`: an agent at work, with the provider in the box."""

from __future__ import annotations

import click

from penstock.cli.app import check_number
from penstock.cli.commands.completion import complete_dialect
from penstock.errors import UsageError
from penstock.wires import ALIASES, WIRES

WIRE = "anthropic"


def check_dialect(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    """A dialect in which calls can be written for a model."""
    from penstock.dialects.prompt import find_prompt

    try:
        if name is not None:
            find_prompt(name)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None
    return name


@click.command()
@click.option("--wire", type=click.Choice([*WIRES, *ALIASES]), default=WIRE, show_default=True, help="The protocol.")
@click.option(
    "--dialect",
    metavar="NAME",
    callback=check_dialect,
    shell_complete=complete_dialect,
    help="Write the calls into the text: xml, hermes, qwen3_coder …",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.01, max=1000),
    callback=check_number,
    default=1.0,
    help="Play so many times as fast.",
)
@click.option("--plain", is_flag=True, help="One line for each thing that happens: no colours, nothing drawn anew.")
@click.option("--json", "as_json", is_flag=True, help="Print one event a line, as JSON, and nothing else.")
def demo(wire: str, dialect: str | None, speed: float, plain: bool, as_json: bool) -> None:
    """Watch an agent at work: a model calls three tools while it is still talking.

    No key, no network: the provider is in the box, and streams over a connection on this machine. The tools are small
    Python functions that really run, those that change nothing as soon as their arguments are written. One is slow, one
    fails. At the end stands when each of them ran, and what the early start has saved.

    \b
      penstock demo --wire gemini           the same on another wire
      penstock demo --dialect hermes        a model that writes its calls into its text
      penstock demo --json | jq .type       every event

    Without a terminal, or with TERM=dumb, it is --plain; NO_COLOR is obeyed.
    """
    from penstock.cli.demo.performance import open_demo, show_demo, write_demo

    with open_demo(wire, dialect, speed) as (agent, watch):
        done = write_demo(agent, watch) if as_json else show_demo(agent, watch, is_plain=plain)
    if done.reason != "answered":
        raise SystemExit(1)
