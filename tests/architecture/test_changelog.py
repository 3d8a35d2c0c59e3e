"""The version is the same wherever it is written."""

import re
import tomllib

from tests.architecture.shape import REPOSITORY

import batonkit


def test_the_version_is_the_same_everywhere() -> None:
    with open(REPOSITORY / "pyproject.toml", "rb") as file:
        packaged = tomllib.load(file)["project"]["version"]
    changes = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2}|Unreleased)$", changes, re.MULTILINE)
    assert newest is not None, "CHANGELOG.md needs a heading such as `## [0.1.0] - Unreleased`"
    assert packaged == batonkit.__version__ == newest.group(1)


def test_the_licence_is_whole() -> None:
    licence = (REPOSITORY / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
