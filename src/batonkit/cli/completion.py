"""The command `baton completion`: a script that makes a shell complete commands and options."""

import click
from click.shell_completion import get_completion_class

from .cli_options import debug
from .output import write_data

_PROGRAM = "baton"
_VARIABLE = "_BATON_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@debug
def completion_command(*, shell: str) -> None:
    """Print a script that makes a shell complete commands and options.

    Bash must be version 4.4 or newer.

    \b
    Examples:
      baton completion bash >> ~/.bashrc
      baton completion zsh >> ~/.zshrc
      baton completion fish > ~/.config/fish/completions/baton.fish
    """
    completion = get_completion_class(shell)
    assert completion is not None  # SHELL is one of those that click has.
    program = click.get_current_context().find_root().command
    write_data(f"{completion(program, {}, _PROGRAM, _VARIABLE).source()}\n")
