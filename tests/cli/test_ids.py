"""Ids that commands refuse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batonkit import Agent, Runner
from batonkit.testing import ScriptedModel

Write = Callable[..., Path]
Invoke = Callable[..., Any]


@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_thread_with_control_characters_is_refused_with_the_option(write: Write, baton: Invoke, command: str) -> None:
    write('agent = Agent("Desk", model=ScriptedModel(["Hello."]))')
    words = ("run", "desk:agent", "hi") if command == "run" else ("chat", "desk:agent")
    shown = baton(*words, "--store", "runs.db", "--thread", "a\nb")
    assert shown.exit_code == 1
    assert "error: --thread is 'a\\nb', which contains '\\n'; use printable characters" in shown.stderr
    assert not Path("runs.db").exists()


def test_the_id_of_a_fork_is_refused_with_the_option(baton: Invoke, tmp_path: Path) -> None:
    runner = Runner(Agent("Desk", model=ScriptedModel(["Hello."])), store=tmp_path / "runs.db")
    runner.run_sync("hi", run_id="r")
    shown = baton("runs", "fork", "r", "--store", "runs.db", "--run-id", "a b")
    assert shown.exit_code == 1
    assert "error: --run-id is 'a b', which contains ' '; use ASCII letters, digits and" in shown.stderr
    assert baton("runs", "ls", "--store", "runs.db", "--json").stdout.count("run_id") == 1
