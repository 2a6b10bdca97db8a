"""The root command: its subcommands, each imported when it is called, and how they end when interrupted."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from penstock.cli import IS_WINDOWS
from penstock.cli.exit_codes import INTERRUPTED, READER_GONE
from penstock.cli.exit_signals import exit_normally_on_signals

COMMANDS = {
    "demo": ("demo", "Watch an agent at work: a model calls three tools while it is still talking."),
    "chat": ("chat", "Chat with a model and watch its response stream."),
    "run": ("run", "Run your own agent and watch it work."),
    "runs": ("runs", "List, show, follow and steer the runs of a log."),
    "log": ("log", "Check a log, and upgrade its tables."),
    "worker": ("worker", "Continue runs of a log: those that were started elsewhere, or whose process died."),
    "serve": ("serve", "Serve agents over HTTP, with runs that outlast their connection."),
    "gateway": ("gateway", "Repair the tool calls of any model server, for clients of any protocol."),
    "decode": ("decode", "Decode a provider's response and show its events."),
    "inspect": ("inspect", "Show a recording, or the exchanges of a gateway, on a web page."),
    "check": ("check", "Find what a provider would refuse in a history."),
    "record": ("record", "Ask a model once, and record the exact bytes of its response with their timing."),
    "replay": ("record", "Play recorded responses again, with their original timing."),
    "models": ("models", "List the providers, and whether their keys are set."),
    "completion": ("completion", "Print the script that completes penstock's commands in your shell."),
}
"""The commands: the module of each, and its short help."""


@contextmanager
def quiet_exit() -> Generator[None]:
    """Exits without a message on Ctrl-C, and when the reader of the output went away."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and not (IS_WINDOWS and error.errno == errno.EINVAL):
            raise  # on Windows, a pipe without a reader is an invalid argument
        # Python flushes standard output at exit, and would complain about the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(READER_GONE) from None


def check_number(_context: click.Context, _option: click.Parameter, number: float) -> float:
    """Refuses `nan`, which click takes for a number in any range."""
    if number != number:
        raise click.BadParameter(f"{number} is not a number.")
    return number


class SuggestingGroup(click.Group):
    """A group whose error about an unknown command suggests a similar one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, names = args[0], self.list_commands(ctx)
        if name not in names and not name.startswith("-"):
            if name in ("help", "version"):
                option = f"{ctx.command_path} --{name}"
                ctx.fail(f"unknown command {name!r}, did you mean {option!r}?")
            from difflib import get_close_matches

            similar = get_close_matches(name.lower(), names, n=1)
            ctx.fail(f"unknown command {name!r}{f', did you mean {similar[0]!r}?' if similar else '.'}")
        return super().resolve_command(ctx, args)


class Commands(SuggestingGroup):
    """The group of all commands. Each is imported when it is called, so that listing them costs nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"penstock.cli.commands.{COMMANDS[cmd_name][0]}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help) for name, (_, short_help) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        exit_normally_on_signals()
        with quiet_exit():
            return super().invoke(ctx)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock-llm", message="%(prog)s %(version)s")
def penstock() -> None:
    """Stream tool calls from any LLM provider, serve agents, and repair the calls of model servers.

    \b
    Start here:
      penstock demo                          watch an agent at work; no key, no network
      penstock chat -m sim:demo              chat with a model that needs no key
      penstock run agent.py "What is new?"   run your own agent
      penstock serve agent.py                serve it to browsers and SDKs, with a chat page
      penstock gateway --upstream URL        repair the tool calls of a local model server
      curl -N … | penstock decode            see what a provider really sends
    """
