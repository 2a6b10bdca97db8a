"""Shell completion: `penstock completion`, and the names that a shell completes.

The names are imported when a shell asks for them, so that commands do not pay for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes penstock's commands in your shell.

    \b
    Load it where your shell starts:
      bash   eval "$(penstock completion bash)"         in ~/.bashrc
      zsh    eval "$(penstock completion zsh)"          in ~/.zshrc
      fish   penstock completion fish | source          in ~/.config/fish/config.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    root = click.get_current_context().find_root()
    click.echo(completion_class(root.command, {}, "penstock", "_PENSTOCK_COMPLETE").source())


def complete_file(_context: click.Context, _parameter: click.Parameter, prefix: str) -> list[CompletionItem]:
    """Files, as the shell completes them."""
    return [CompletionItem(prefix, type="file")]


def complete_model(_context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """Providers, each to be followed by a model, and `sim:demo`."""
    from penstock.providers import PROVIDERS

    return _matching(prefix, ["sim:demo", *(f"{name}:" for name in PROVIDERS)])


def complete_provider(_context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    from penstock.providers import ALIASES, PROVIDERS

    return _matching(prefix, [*PROVIDERS, *ALIASES])


def complete_dialect(_context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """Dialects in which a model can be asked to write calls."""
    from penstock.dialects.prompt import prompts

    return _matching(prefix, sorted(prompts()))


def complete_calls(context: click.Context, parameter: click.Parameter, prefix: str) -> list[str]:
    """`native`, `auto` and the dialects; after a comma, another dialect."""
    before, comma, last = prefix.rpartition(",")
    names = [*([] if comma else _matching(prefix, ["native", "auto"])), *complete_dialect(context, parameter, last)]
    return [before + comma + name for name in names]


def _matching(prefix: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(prefix)]
