"""What the commands that ask a model share: its name, its options, and how an answer is shown while it comes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from penstock.cli.complete import complete_calls, complete_model, complete_wire
from penstock.cli.decode import is_bad_end
from penstock.cli.screen import visible, write_lines
from penstock.cli.view import View
from penstock.errors import MissingKeyError, PenstockError, UsageError
from penstock.events import StreamChunk, encode
from penstock.model import Model
from penstock.wires import ALIASES, WIRES

Command = TypeVar("Command", bound=Callable[..., Any])

MISTAKEN = 2
"""The exit code of a command that asked for something that cannot be done."""
FAILED = 3
"""The exit code of a command whose provider refused or could not be reached."""


class Mistake(click.ClickException):
    """The command asked for something that cannot be done."""

    exit_code = MISTAKEN

    def format_message(self) -> str:
        return visible(self.message)


def model_options(command: Command) -> Command:
    """The options that say which model is asked, and how."""
    for option in (
        click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds to wait for an answer."),
        click.option("--tools", "tool_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     metavar="FILE", help="Tools to declare: a JSON list, in any provider's shape."),
        click.option("--calls", default="native", metavar="DIALECT", shell_complete=complete_calls,
                     help="How calls are written: natively, or in the text in this dialect (xml, hermes, …)."),
        click.option("--system", default="", metavar="TEXT", help="What the model is told before all else."),
        click.option("--base-url", metavar="URL", help="Another address of the provider."),
        click.option("--wire", metavar=f"[{'|'.join([*WIRES, *ALIASES])}]", shell_complete=complete_wire,
                     help="Another protocol, where the provider speaks several."),
        click.option("-m", "--model", "name", required=True, metavar="PROVIDER:MODEL", shell_complete=complete_model,
                     help="The model, as in anthropic:claude-sonnet-5, or sim:demo, which needs no key."),
    ):  # fmt: skip
        command = option(command)
    return command


def what_to_ask(prompt: str | None) -> str:
    """What is to be asked: the prompt, or else what comes on standard input."""
    text = sys.stdin.read() if prompt is None else prompt
    if not text.strip():
        raise Mistake("there is nothing to ask: give a prompt")
    return text


def open_model(name: str, wire: str | None, base_url: str | None, timeout: float | None, record: Any = None) -> Model:
    """The model that was asked for; a mistake in its name is the command's, not ours."""
    from penstock.transport.policy import Timeouts

    timeouts = Timeouts(first_event=timeout, idle=timeout) if timeout else None
    try:
        return Model(name, base_url, wire=wire, timeouts=timeouts, record=record)
    except PenstockError as error:
        raise Mistake(advice(error)) from None


def advice(error: PenstockError) -> str:
    """The error's message for somebody at a command line, who has options and variables, and no Python."""
    if isinstance(error, MissingKeyError):
        return f"no key for {error.provider}: set {' or '.join(error.variables)} in the environment"
    return str(error).replace("Model(..., base_url=...)", "--base-url")


def read_tools(path: Path | None) -> list[Any]:
    """The tools in a file."""
    if path is None:
        return []
    try:
        tools = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise Mistake(f"{path} is no JSON: {error}") from None
    if not isinstance(tools, list):
        raise Mistake(f"{path} holds no list of tools")
    return tools


def show(console: Console, wire: str, events: Iterable[StreamChunk], *, as_json: bool = False) -> bool:
    """Show the events as they come; whether the answer ended well."""
    if as_json:
        return _show_json(events)
    view, ended_well = View(console, wire), True
    try:
        for event in events:
            view.add(event)
            view.flush()
            ended_well = ended_well and not is_bad_end(event)
    except KeyboardInterrupt:
        view.cancel()
        raise
    view.close()
    return ended_well


def _show_json(events: Iterable[StreamChunk]) -> bool:
    ended_well = True
    for event in events:
        write_lines([encode(event)])
        ended_well = ended_well and not is_bad_end(event)
    return ended_well


def complain(error: PenstockError) -> int:
    """Say what went wrong on the way to the model; the exit code for it."""
    click.echo(visible(f"Error: {advice(error)}"), err=True)
    return MISTAKEN if isinstance(error, UsageError) else FAILED


def asked(prompt: str) -> str | None:
    """What the person says next; None, by Ctrl-D or Ctrl-C, if that is nothing more."""
    try:
        return answered(prompt)
    except KeyboardInterrupt:
        return None


def answered(question: str) -> str | None:
    """What the person answers; None by Ctrl-D. Ctrl-C is let through. A pipe gets the answers, not the questions."""
    if not sys.stdout.isatty():
        click.echo(question, err=True, nl=False)
        question = ""
    try:
        return input(question)
    except EOFError:
        click.echo(err=True)
        return None
    except KeyboardInterrupt:
        click.echo(err=True)
        raise
