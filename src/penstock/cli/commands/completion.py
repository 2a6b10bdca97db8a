"""`penstock completion`: what a shell needs to complete the commands."""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes your shell complete penstock's commands.

    \b
    Load it where your shell starts:
      bash   eval "$(penstock completion bash)"         in ~/.bashrc
      zsh    eval "$(penstock completion zsh)"          in ~/.zshrc
      fish   penstock completion fish | source          in ~/.config/fish/config.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    root = click.get_current_context().find_root()
    click.echo(made(root.command, {}, "penstock", "_PENSTOCK_COMPLETE").source())


def complete_file(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """The shell's own files."""
    return [CompletionItem(begun, type="file")]


def complete_model(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """The providers, each to be followed by a model, and the model that needs none."""
    from penstock.providers import PROVIDERS

    return _that_begin(begun, ["sim:demo", *(f"{name}:" for name in PROVIDERS)])


def complete_provider(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    from penstock.providers import ALIASES, PROVIDERS

    return _that_begin(begun, [*PROVIDERS, *ALIASES])


def complete_wire(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    from penstock.wires import ALIASES, WIRES

    return _that_begin(begun, [*WIRES, *ALIASES])


def complete_dialect(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """The dialects in which calls can be written for a model."""
    from penstock.dialects.prompt import prompts

    return _that_begin(begun, sorted(prompts()))


def complete_calls(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """How calls can be written: natively, or in a dialect."""
    return [*_that_begin(begun, ["native"]), *complete_dialect(context, parameter, begun)]


def _that_begin(begun: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(begun)]
