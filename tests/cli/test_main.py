"""The `baton` group: commands are loaded when they are called."""

from collections.abc import Callable
from typing import Any

import click
import pytest

from batonkit.cli.main import COMMANDS, main

Invoke = Callable[..., Any]


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_is_the_first_line_of_the_command(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").splitlines()[0] == COMMANDS[name]


def _options(command: click.Command) -> list[click.Option]:
    found = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    subcommands = command.commands.values() if isinstance(command, click.Group) else ()
    return [*found, *(option for each in subcommands for option in _options(each))]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert [option.name for option in _options(command) if not option.help] == []


@pytest.mark.parametrize(
    ("given", "message"),
    [("rum", "No such command 'rum'; did you mean `run`?"), ("xyzzy", "No such command 'xyzzy'.")],
)
def test_a_misspelt_command_gets_the_nearest_one(baton: Invoke, given: str, message: str) -> None:
    result = baton(given)
    assert result.exit_code == 2
    assert message in result.stderr
