"""Output of the command line cannot control the terminal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.test_output import desk

Write = Callable[..., Path]


def test_an_answer_on_a_terminal_is_sanitised(write: Write, terminal: Callable[..., Any]) -> None:
    desk(write)
    program = terminal("run", "desk:answering", "hi", "--quiet", is_real=True)
    assert "␛[2J␇\ufffd31m\ufffdgnp\ufffd" in program.read_until("gnp\ufffd")
