"""`baton init` writes a project that passes its own tests and strict type checks, and answers without a model."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize(("template", "tests"), [("desk", 12), ("minimal", 2)])
def test_a_project_passes_its_own_tests_and_strict_types(
    baton: Invoke, tmp_path: Path, template: str, tests: int
) -> None:
    assert baton("init", "support-desk", "--template", template).exit_code == 0
    folder = tmp_path / "support-desk"
    assert f"{tests} passed" in run_in(folder, "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio")
    assert "0 errors, 0 warnings" in run_in(folder, "pyright", "--pythonpath", sys.executable)
    run_in(folder, "ruff", "format", "--check", "--line-length", "120", ".")
    run_in(folder, "ruff", "check", "--line-length", "120", "--select", "E,F,W,B,UP", ".")


@pytest.mark.parametrize(
    ("template", "target", "agent", "answer"),
    [
        ("desk", "support_desk.team:runner", "Orders", "Order A-17: a lamp for 80 EUR, delivered on Monday."),
        ("minimal", "support_desk:runner", "Orders", "The lamp was delivered on Monday."),
    ],
)
def test_a_project_answers_without_a_model(
    baton: Invoke, tmp_path: Path, template: str, target: str, agent: str, answer: str
) -> None:
    output = baton("init", "support-desk", "--template", template).output
    assert target in output
    printed = run_in(tmp_path / "support-desk", "baton", "run", target, "Where is order A-17?")
    assert printed.strip() == answer
    told = json.loads(run_in(tmp_path / "support-desk", "baton", "run", target, "Where is order A-17?", "--json"))
    assert told["agent"] == agent


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
    assert "no findings" in run_in(folder, "baton", "check", "desk.team:runner")
    assert run_in(folder, "hadolint", "Dockerfile") == ""
    assert ".env\n" in (folder / ".gitignore").read_text(encoding="utf-8")
