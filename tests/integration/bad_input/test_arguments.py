"""Misspelt keyword arguments are named, with the nearest valid one."""

import subprocess
import sys

import pytest

from batonkit import (
    Agent,
)

A = Agent("A")


@pytest.mark.parametrize(
    ("statement", "extra"),
    [
        ("import batonkit.a2a", "a2a"),
        ("import batonkit.serve.a2a", "a2a"),
        ("from batonkit.serve import a2a_app", "a2a"),
        ("from batonkit.serve import mcp_app", "mcp"),
        ("from batonkit import Agent; from batonkit.serve import api_app; api_app(Agent('A'))", "serving"),
    ],
)
def test_a_missing_extra_is_named_with_the_command(statement: str, extra: str) -> None:
    program = (
        "import sys\nfor name in ('a2a', 'starlette', 'uvicorn'): sys.modules[name] = None\n"
        f"from batonkit.errors import SetupError\ntry:\n    exec({statement!r})\n"
        "except SetupError as error:\n    print(error)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert f"pip install 'batonkit[{extra}]'" in shown
