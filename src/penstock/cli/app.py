"""The root command: which commands there are, each imported when it is called, and how they end when interrupted."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from penstock.cli import INTERRUPTED

READER_GONE = 141  # what a shell reports for a command whose reader went away (`| head`)

COMMANDS = {
    "demo": ("demo", "Watch an agent at work: a model calls three tools while it is still talking."),
    "chat": ("chat", "Talk to a model, and watch its answers come."),
    "run": ("run", "Run an agent of yours, and watch it work."),
    "decode": ("decode", "Show what a provider's response says, event by event."),
    "check": ("check", "Find what a provider would refuse in a history, before it does."),
    "record": ("record", "Ask a model once, show its answer, and keep the exact bytes of it with their timing."),
    "replay": ("record", "Play the answers in a recording again, at the pace at which they came."),
    "models": ("models", "List the providers, where they are, and whether their keys are set."),
    "completion": ("completion", "Print the script that makes your shell complete penstock's commands."),
}
"""The commands: the module that each is in, and what it does in a line."""


@contextmanager
def quietly() -> Generator[None]:
    """Let Ctrl-C and a closed pipe end the command without a word."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        # What is still buffered has nowhere to go; without this, Python would complain about it on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(READER_GONE) from None


def check_number(_context: click.Context, _option: click.Parameter, number: float) -> float:
    """A number that is one: `nan` is in every range."""
    if number != number:
        raise click.BadParameter(f"{number} is no number.")
    return number


class Commands(click.Group):
    """The group of all commands. To list them costs nothing: each is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"penstock.cli.commands.{COMMANDS[cmd_name][0]}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, told) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        for number in (signal.SIGTERM, signal.SIGHUP):  # end in good order: the cursor is shown, the history kept
            signal.signal(number, lambda number, _: sys.exit(128 + number))
        with quietly():
            return super().invoke(ctx)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock-llm", message="%(prog)s %(version)s")
def penstock() -> None:
    """Streaming tool calls from any LLM provider: one event stream, every call exact.

    \b
    Start here:
      penstock demo                                  watch an agent at work; no key, no network
      penstock chat -m sim:demo                      talk to a model that needs no key
      penstock run agent.py "What is new?"           run an agent of yours
      curl -N … | penstock decode --wire anthropic   see what a provider really sends
    """
