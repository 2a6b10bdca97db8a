"""What the commands that ask share: a model's name and options, and the questions to the person at the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from penstock.cli.commands.completion import complete_calls, complete_model, complete_wire
from penstock.cli.screen.terminal import escape
from penstock.errors import ConnectionFailed, MissingKeyError, PenstockError, UsageError
from penstock.model.model import Model
from penstock.wires import ALIASES, WIRES, wire_name

Command = TypeVar("Command", bound=Callable[..., Any])

MISTAKEN = 2
"""The exit code of a command that asked for something that cannot be done."""
FAILED = 3
"""The exit code of a command whose provider refused or could not be reached."""
NO_ANSWER = "(no answer)"
"""What the model reads of a call to which the person said nothing."""
_NEAR = ("localhost", "127.0.0.1", "::1")


class Mistake(click.ClickException):
    """The command asked for something that cannot be done."""

    exit_code = MISTAKEN

    def format_message(self) -> str:
        return escape(self.message)


class ModelName(click.types.StringParamType):
    """The name of a model; if it is missing, an example is given."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        return "Name a model, as in -m sim:demo, which needs no key."


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
        click.option("-m", "--model", "name", required=True, type=ModelName(), metavar="PROVIDER:MODEL",
                     shell_complete=complete_model,
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
        return Model(name, base_url, wire=wire_name(wire) if wire else None, timeouts=timeouts, record=record)
    except PenstockError as error:
        raise Mistake(advice(error)) from None


def advice(error: PenstockError) -> str:
    """The error's message for somebody at a command line, who has options and variables, and no Python."""
    if isinstance(error, MissingKeyError):
        return f"no API key for {error.provider}: set {' or '.join(error.variables)} in the environment"
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


def complain(error: PenstockError, model: Model) -> int:
    """Say what went wrong on the way to the model; the exit code for it."""
    question = " (is it running?)" if is_unreached_here(error, model) else ""
    click.echo(escape(f"Error: {advice(error)}{question}"), err=True)
    return MISTAKEN if isinstance(error, UsageError) else FAILED


def is_unreached_here(error: BaseException | None, model: Model) -> bool:
    """Whether a server on this machine could not be reached, which mostly means that it was not started."""
    return isinstance(error, ConnectionFailed) and urlsplit(model.base_url).hostname in _NEAR


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


def named(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as a person reads it: `pay(amount=5)`."""
    return escape(f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})")


def asked_result(name: str, arguments: Mapping[str, Any]) -> str:
    """What the person says that a call gives back."""
    return answered(f"{named(name, arguments)} gives › ") or NO_ANSWER


def asked_decision(name: str, arguments: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether the person lets a call run, and if not, why."""
    answer = (answered(f"{named(name, arguments)}: run it? [y/N, or why not] ") or "").strip()
    is_yes = answer.lower() in ("y", "yes")
    return is_yes, "" if is_yes or answer.lower() in ("", "n", "no") else answer
