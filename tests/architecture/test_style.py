"""Docstrings, comments and messages keep to the style guide, and public names are documented."""

import ast
from pathlib import Path

import pytest
from tests.architecture.public import has_docstrings, public_objects, undocumented
from tests.architecture.shape import PACKAGE
from tests.architecture.style import (
    TESTS,
    check_class_names,
    check_files,
    check_tests,
    python_files,
)

CHECKED = python_files(PACKAGE)


def test_the_package_keeps_to_the_style_guide() -> None:
    assert [str(violation) for violation in check_files(CHECKED)] == []


def test_the_tests_keep_to_the_style_guide() -> None:
    assert [str(violation) for violation in check_tests(python_files(TESTS))] == []


def test_public_class_names_are_unique() -> None:
    assert [str(violation) for violation in check_class_names(CHECKED)] == []


def test_public_names_have_docstrings() -> None:
    assert [name for name, value in public_objects() if not has_docstrings(value)] == []


def test_public_parameters_are_documented() -> None:
    assert [missing for name, value in public_objects() for missing in undocumented(name, value)] == []


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('def f() -> None:\n    """Whoever calls it."""\n', "noun-clause docstring"),
        ('def f() -> None:\n    """What it does."""\n', "noun-clause docstring"),
        ('def f() -> None:\n    """The same, but later."""\n', "noun-clause docstring"),
        ('def f() -> None:\n    """Mend the log."""\n', "banned word"),
        ("x = 1  # Somebody else has it.\n", "banned word"),
        ('raise ValueError("nobody has the floor")\n', "banned word"),
        (f'def f() -> None:\n    """{"Long " * 30}."""\n', "long summary"),
        ('def f() -> None:\n    """One.\n    Two.\n    """\n', "summary is not one line"),
    ],
)
def test_violations_are_found(source: str, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    ast.parse(source)
    assert rule in {violation.rule for violation in check_files([path])}


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('def helper() -> None:\n    """Who calls it."""\n', "noun-clause docstring"),
        ("# Mend the log.\n", "banned word"),
        ("def test_what_is_refused() -> None: ...\n", "noun-clause test name"),
        ("def test_the_same_log() -> None: ...\n", "noun-clause test name"),
        ("def test_a_run_that_nobody_drives() -> None: ...\n", "banned word in a name"),
        ("class FrontDoor: ...\n", "banned word in a name"),
    ],
)
def test_violations_in_tests_are_found(source: str, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "test_module.py"
    path.write_text(source)
    assert rule in {violation.rule for violation in check_tests([path])}


def test_plain_code_passes(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""A module."""\n\n\ndef run() -> str:\n    """Run it."""\n    return "the room"\n')
    assert check_files([path]) == []


def test_class_names_used_twice_are_found(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text("class Turn: ...\nclass _Private: ...\n")
    assert [violation.text for violation in check_class_names(python_files(tmp_path))] == ["Turn", "Turn"]
