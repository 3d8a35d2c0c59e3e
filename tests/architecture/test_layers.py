"""Imports only go down: the contract is in pyproject.toml, import-linter reads it."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.architecture.shape import REPOSITORY, ROOT, baton_modules, layers_of, package_imports


def _contract() -> dict[str, Any]:
    with open(REPOSITORY / "pyproject.toml", "rb") as file:
        (contract,) = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return contract


def test_imports_only_go_down() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    finished = subprocess.run(
        [linter, "--no-cache", "--no-logo"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_every_package_has_its_layer() -> None:
    contract = _contract()
    layered = {package.strip() for layer in contract["layers"] for package in layer.split("|")}
    packages = set(package_imports(baton_modules())) - {ROOT, *contract["exhaustive_ignores"]}
    assert contract["exhaustive"] is True
    assert packages == layered


def test_nothing_imported_on_load_goes_up_either() -> None:
    """Check the order without import-linter, so that a contract that is switched off is noticed."""
    order = [package.strip() for layer in _contract()["layers"] for package in layer.split("|")]
    packages = package_imports(baton_modules())
    upwards = [
        f"{package} imports {below}"
        for package in order
        for below in packages[package] - {ROOT}
        if order.index(below) < order.index(package)
    ]
    assert upwards == []
    assert layers_of(packages)["_wording"] == 0
