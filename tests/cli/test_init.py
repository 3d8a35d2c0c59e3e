"""`baton init` writes a project that passes its own tests and strict type checks, and overwrites nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Invoke = Callable[..., Any]


def test_an_empty_folder_is_used(baton: Invoke, tmp_path: Path) -> None:
    (tmp_path / "desk").mkdir()
    assert baton("init", "desk").exit_code == 0
    assert (tmp_path / "desk" / "desk" / "team.py").is_file()


def test_nothing_is_overwritten(baton: Invoke, tmp_path: Path) -> None:
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "README.md").write_text("mine")
    result = baton("init", "desk")
    assert result.exit_code == 2
    assert "desk is not empty (README.md); nothing was written. Choose another name" in result.output
    assert [path.name for path in (tmp_path / "desk").iterdir()] == ["README.md"]
    (tmp_path / "note").write_text("mine")
    result = baton("init", "note")
    assert result.exit_code == 2
    assert "note is a file; nothing was written" in result.output
    assert (tmp_path / "note").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("1desk", "cannot be the name of a Python package; use letters, digits, - and _"),
        ("my desk", "cannot be the name of a Python package"),
        ("desk.py", "cannot be the name of a Python package"),
        ("json", "would hide the Python module `json`; choose another name"),
        ("batonkit", "would hide the Python module `batonkit`"),
        ("class", "would hide the Python module `class`"),
    ],
)
def test_names_that_cannot_be_packages_are_refused(baton: Invoke, tmp_path: Path, name: str, message: str) -> None:
    result = baton("init", name)
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / name).exists()


def test_the_help_lists_the_templates(baton: Invoke) -> None:
    shown = baton("init", "--help").output
    assert "--template desk|minimal" in shown
    assert "  minimal  one file with an agent and a tool, and its test\n" in shown


@pytest.mark.parametrize(
    ("template", "hint"), [("minmal", "choose from `desk`, `minimal`; did you mean `minimal`?"), ("", "`minimal`\n")]
)
def test_an_unknown_template_is_refused_with_the_nearest_name(
    baton: Invoke, tmp_path: Path, template: str, hint: str
) -> None:
    result = baton("init", "orders", "--template", template)
    assert result.exit_code == 2
    assert f"there is no template `{template}`; " in result.output
    assert hint in result.output
    assert not (tmp_path / "orders").exists()


def test_the_minimal_template_is_one_module_and_its_test(baton: Invoke, tmp_path: Path) -> None:
    assert (
        'baton run my_orders:runner "Where is order A-17?"'
        in baton("init", "my-orders", "--template", "minimal").output
    )
    names = sorted(path.name for path in (tmp_path / "my-orders").iterdir())
    assert names == [".gitignore", "my_orders.py", "pyproject.toml", "test_my_orders.py"]
    assert "no findings" in baton("check", "my-orders/my_orders.py:runner").output


def test_a_folder_that_cannot_be_written(baton: Invoke, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = baton("init", "file/desk")
    assert result.exit_code == 2
    assert "cannot write" in result.output
