"""`penstock completion`: what a shell needs to complete the commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

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
