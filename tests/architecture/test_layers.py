"""Imports only go down: the contract is in pyproject.toml, import-linter reads it."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.architecture.shape import FRONT_DOOR, PACKAGE, REPOSITORY, floors_of, modules_of, rooms_of


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


def test_every_room_has_its_layer() -> None:
    contract = _contract()
    layered = {room.strip() for layer in contract["layers"] for room in layer.split("|")}
    rooms = set(rooms_of(modules_of(PACKAGE))) - {FRONT_DOOR, *contract["exhaustive_ignores"]}
    assert contract["exhaustive"] is True
    assert rooms == layered


def test_nothing_imported_on_load_goes_up_either() -> None:
    """The same seen with our own eyes, so that a contract that was switched off is noticed."""
    order = [room.strip() for layer in _contract()["layers"] for room in layer.split("|")]
    rooms = rooms_of(modules_of(PACKAGE))
    upwards = [
        f"{room} imports {below}"
        for room in order
        for below in rooms[room] - {FRONT_DOOR}
        if order.index(below) < order.index(room)
    ]
    assert upwards == []
    assert floors_of(rooms)["errors"] == 0
