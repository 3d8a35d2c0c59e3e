"""`baton init` writes a project that passes its own tests and strict type checks, and overwrites nothing."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

Invoke = Callable[..., Any]


def run_in(folder: Path, *command: str) -> str:
    """Run a program of this environment in a folder; return its output if it succeeds."""
    program = Path(sys.executable).with_name(command[0])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BATON_", "PYTEST_"))}
    completed = subprocess.run(
        [program, *command[1:]], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=500
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def test_the_project_passes_its_own_tests_and_strict_types(baton: Invoke, tmp_path: Path) -> None:
    result = baton("init", "support-desk")
    assert result.exit_code == 0
    assert "baton chat support_desk.team:triage" in result.output
    folder = tmp_path / "support-desk"
    assert "10 passed" in run_in(folder, "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio")
    assert "0 errors, 0 warnings" in run_in(folder, "pyright", "--pythonpath", sys.executable)


def test_the_files_of_a_project(baton: Invoke, tmp_path: Path) -> None:
    baton("init", "desk")
    folder = tmp_path / "desk"
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"desk/team.py", "desk/app.py", "tests/test_team.py", "Dockerfile", ".env.example", "AGENTS.md"} <= names
    for name in names:
        text = (folder / name).read_text(encoding="utf-8")
        assert not any(word in text for word in ("PROJECT", "PACKAGE", "VERSION")), name
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "desk"
    assert any(each.startswith("batonkit[openai]>=") for each in project["dependencies"])
    # `uvicorn --env-file` of the README needs the first, the types and the tests of the test client the second.
    assert any(each.startswith("python-dotenv>=") for each in project["dependencies"])
    assert any(each.startswith("httpx2>=") for each in project["optional-dependencies"]["dev"])
    assert "no findings" in baton("check", "desk/desk/team.py:triage").output
    assert run_in(folder, "hadolint", "Dockerfile") == ""
    assert ".env\n" in (folder / ".gitignore").read_text(encoding="utf-8")


def test_the_code_of_a_project_is_formatted(baton: Invoke, tmp_path: Path) -> None:
    baton("init", "desk")
    run_in(tmp_path / "desk", "ruff", "format", "--check", "--line-length", "120", ".")
    run_in(tmp_path / "desk", "ruff", "check", "--line-length", "120", "--select", "E,F,W,B,UP", ".")
