"""The options for a model and its requests, and their errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from penstock.cli.commands.completion import complete_calls, complete_model
from penstock.cli.exit_codes import PROVIDER_FAILED, UNSUCCESSFUL, USAGE
from penstock.errors import ConnectionFailed, MissingKeyError, PenstockError, UnknownWireError, UsageError
from penstock.jsontext.shown_text import escape
from penstock.model.model import SCHEMES, Model
from penstock.providers import ALIASES as PROVIDER_ALIASES
from penstock.providers import PROVIDERS
from penstock.wires import ALIASES, WIRES, WireName

Command = TypeVar("Command", bound=Callable[..., Any])

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class CommandError(click.ClickException):
    """An error in the arguments of the command; printed as one line."""

    exit_code = USAGE

    def format_message(self) -> str:
        return escape(self.message)


class FailureError(CommandError):
    """A failure of a correct command; printed as one line."""

    exit_code = UNSUCCESSFUL


class ModelName(click.types.StringParamType):
    """The name of a model; the error for a missing one has an example."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        prompt: Any = ctx.params.get("prompt") if ctx else None  # click has an object of its own for a missing one
        if ctx and isinstance(prompt, str) and _is_model_name(prompt):
            return f"{prompt} is a model, not a prompt: {ctx.command_path} -m {prompt}"
        return "Name a model, as in -m sim:demo, which needs no key."


def _is_model_name(text: str) -> bool:
    prefix = text.partition(":")[0]
    return ":" in text and " " not in text and (prefix in SCHEMES or prefix in PROVIDERS or prefix in PROVIDER_ALIASES)


class WireOption(click.Choice[str]):
    """The name of a wire; the error for an unknown one suggests a similar name."""

    def __init__(self) -> None:
        super().__init__([*WIRES, *ALIASES])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value not in self.choices:
            self.fail(str(UnknownWireError(value, tuple(self.choices))), param, ctx)
        return value


def split_names(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> list[str]:
    """The names in all values, which may be separated by commas."""
    return [name.strip() for names in values for name in names.split(",") if name.strip()]


def read_calls(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | list[str]:
    """How the model writes its calls: one word, or several dialects."""
    names = split_names(context, option, values)
    return names if len(names) > 1 else names[0] if names else "native"


def model_options(command: Command) -> Command:
    """Adds the options for a model and its requests."""
    for option in (
        click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
                     help="How long to wait for the response to start, and between its parts."),
        click.option("--tools", "tool_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     metavar="FILE", help="Tools to declare: a JSON list, in any provider's format."),
        click.option("--calls", multiple=True, metavar="DIALECTS", shell_complete=complete_calls, callback=read_calls,
                     help="How the model writes tool calls: native (the default), auto, or in its text in a dialect or "
                          "several (xml, hermes, …); `penstock models --dialects` lists them."),
        click.option("--system", default="", metavar="TEXT", help="The system prompt."),
        click.option("--base-url", metavar="URL", help="The address of the provider, if not the usual one."),
        click.option("--wire", type=WireOption(), metavar="WIRE",
                     help="The protocol, if the provider has several; `penstock decode --help` lists them."),
        click.option("-m", "--model", "name", required=True, type=ModelName(), metavar="PROVIDER:MODEL",
                     shell_complete=complete_model,
                     help="The model, as in anthropic:claude-sonnet-5, or sim:demo, which needs no key."),
    ):  # fmt: skip
        command = option(command)
    return command


def read_prompt(prompt: str | None) -> str:
    """The prompt, or standard input if there is none."""
    text = sys.stdin.read() if prompt is None else prompt
    if not text.strip():
        raise CommandError("there is nothing to ask: pass a prompt")
    return text


def open_model(
    name: str, wire: WireName | None, base_url: str | None, timeout: float | None, record: Any = None
) -> Model:
    """The model of this name; an error if it has no key or no base URL."""
    from penstock.transport.policy import Timeouts

    timeouts = Timeouts(first_event=timeout, idle=timeout) if timeout else None
    try:
        model = Model(name, base_url, wire=wire, timeouts=timeouts, record=record)
        model.check_endpoint()
    except PenstockError as error:
        raise CommandError(command_message(error)) from None
    return model


def command_message(error: PenstockError) -> str:
    """The message of an error, with command-line options in place of Python arguments."""
    if isinstance(error, MissingKeyError):
        return f"no API key for {error.provider}: set {' or '.join(error.variables)} in the environment"
    return str(error).replace("Model(..., base_url=...)", "--base-url")


def read_tools(path: Path | None) -> list[Any]:
    """The tools that are declared in a JSON file."""
    if path is None:
        return []
    try:
        tools = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is not JSON: {error}") from None
    if not isinstance(tools, list):
        raise CommandError(f"{path} must hold a JSON list of tools")
    return tools


def print_error(error: PenstockError, model: Model) -> int:
    """Prints why the request failed, and returns the exit code."""
    question = " (is it running?)" if is_local_server_down(error, model) else ""
    click.echo(escape(f"Error: {command_message(error)}{question}"), err=True)
    return USAGE if isinstance(error, UsageError) else PROVIDER_FAILED


def is_local_server_down(error: BaseException | None, model: Model) -> bool:
    """Whether a server on this machine could not be reached, probably because it was not started."""
    return isinstance(error, ConnectionFailed) and urlsplit(model.base_url).hostname in _LOCAL_HOSTS
