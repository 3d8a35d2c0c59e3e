"""`baton completion` prints a script with which a shell completes commands, options and files."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Invoke = Callable[..., Any]

PROGRAM = "from batonkit.cli.main import main; main(prog_name='baton')"


@pytest.mark.parametrize(
    ("shell", "part"),
    [("bash", "complete -o nosort -F _baton_completion"), ("zsh", "#compdef baton"), ("fish", "complete --no-files")],
)
def test_each_shell_gets_its_script(baton: Invoke, shell: str, part: str) -> None:
    result = baton("completion", shell)
    assert result.exit_code == 0
    assert part in result.stdout
    assert f"_BATON_COMPLETE={shell}_complete" in result.stdout


def test_another_shell_is_refused_by_name(baton: Invoke) -> None:
    result = baton("completion", "tcsh")
    assert result.exit_code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in result.output


def complete(folder: Path, *words: str) -> list[str]:
    """Return what bash would be offered for the last word."""
    environment = {"_BATON_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["baton", *words])}
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment, "COMP_CWORD": str(len(words))},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert not completed.stderr
    return completed.stdout.split()


def test_commands_options_choices_and_files_are_completed(tmp_path: Path) -> None:
    assert complete(tmp_path, "co") == ["plain,completion"]
    assert "plain,--when-busy" in complete(tmp_path, "chat", "--w")
    assert complete(tmp_path, "chat", "desk.py", "--when-busy", "s") == ["plain,steer"]
    assert complete(tmp_path, "chat", "des") == ["file,des"]


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    # The script is what a shell runs, so one that bash cannot run must fail here.
    script = subprocess.run(
        [sys.executable, "-m", "batonkit", "completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "baton"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{PROGRAM}" "$@"\n')
    program.chmod(0o755)
    asked = 'COMP_WORDS=(baton gra); COMP_CWORD=1; _baton_completion baton; echo "${COMPREPLY[@]}"'
    completed = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{asked}"],
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert completed.stdout.split() == ["graph"], completed.stderr
