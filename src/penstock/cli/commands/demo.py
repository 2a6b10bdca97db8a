"""`penstock demo`: an agent at work, with a simulated provider."""

from __future__ import annotations

import click
from click.core import ParameterSource

from penstock.cli.app import check_number
from penstock.cli.commands.completion import complete_dialect
from penstock.cli.exit_codes import UNSUCCESSFUL
from penstock.cli.model_options import WireOption
from penstock.errors import UsageError

WIRE = "anthropic"


def check_dialect(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    """Checks that calls can be written in this dialect."""
    from penstock.dialects.prompt import find_prompt

    try:
        if name is not None:
            find_prompt(name)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None
    return name


def _crash(speed: float, plain: bool, as_json: bool) -> None:
    """Runs the demo of a crash."""
    from penstock.cli.demo.crash import show_crash, write_crash

    source = click.get_current_context().get_parameter_source
    for option in ("wire", "dialect"):
        if source(option) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--crash has a model of its own: omit --{option}.")
    if not (write_crash(speed) if as_json else show_crash(speed, is_plain=plain)):
        raise SystemExit(UNSUCCESSFUL)


@click.command()
@click.option("--wire", type=WireOption(), default=WIRE, show_default=True, help="The protocol of the provider.")
@click.option("--dialect", metavar="NAME", callback=check_dialect, shell_complete=complete_dialect,
              help="Have the model write its calls into the text: xml, hermes, qwen3_coder …")  # fmt: skip
@click.option("--speed", type=click.FloatRange(min=0.01, max=1000), callback=check_number, default=1.0,
              metavar="FACTOR", help="Run this many times faster.")  # fmt: skip
@click.option("--plain", is_flag=True, help="Print one line per event, without colours or redrawing.")
@click.option("--json", "as_json", is_flag=True, help="Print one event per line as JSON, and nothing else.")
@click.option(
    "--crash", is_flag=True, help="Kill the worker of a run while a tool runs, and watch another worker continue it."
)
def demo(wire: str, dialect: str | None, speed: float, plain: bool, as_json: bool, crash: bool) -> None:
    """Watch an agent at work: a model calls three tools while it is still talking.

    It needs no key and no network: a simulated provider streams over a local connection. The tools are Python functions
    that really run; those without side effects start as soon as their arguments are complete. One is slow, one fails.
    At the end, a chart shows when each tool ran, and how much time the early start saved.

    \b
      penstock demo --wire gemini           the same with another protocol
      penstock demo --dialect hermes        a model that writes its calls into its text
      penstock demo --json | jq .type       every event
      penstock demo --crash                 a run that survives kill -9

    If standard output is not a terminal, or TERM=dumb, the output is that of --plain. NO_COLOR turns colours off.
    """
    if crash:
        _crash(speed, plain, as_json)
        return
    from penstock.cli.demo.performance import open_demo, show_demo, write_demo

    with open_demo(wire, dialect, speed) as (agent, watch):
        done = write_demo(agent, watch) if as_json else show_demo(agent, watch, is_plain=plain)
    if done.reason != "answered":
        raise SystemExit(UNSUCCESSFUL)
