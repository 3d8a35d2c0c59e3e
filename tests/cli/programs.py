"""Fixtures that write small programs into an empty folder and call the command line in this process."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from batonkit.cli.main import main

Write: TypeAlias = Callable[..., Path]
Invoke: TypeAlias = Callable[..., Result]

HEADER = """\
from batonkit import *
from batonkit.messages import *
from batonkit.testing import *

"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Return a function that writes a module into an empty current folder; its imports are undone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    modules, path = set(sys.modules), list(sys.path)

    def write(code: str, name: str = "desk.py") -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(HEADER + dedent(code), encoding="utf-8")
        return file

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def baton(write: Write) -> Invoke:
    """Return a function that calls the command line: `baton("run", "desk:agent", "hello", input="…")`."""

    def invoke(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(main, arguments, input=input)

    return invoke
