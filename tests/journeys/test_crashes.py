"""The teams of the examples survive a crash after every event."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tests.architecture.shape import REPOSITORY

from batonkit import Runner
from batonkit.runs import Interrupt
from batonkit.testing import assert_survives_crashes


def _can_be_crashed(example: Path) -> bool:
    """Return whether an example has a runner, needs no context, and starts no processes, which take long."""
    text = example.read_text(encoding="utf-8")
    return "\nrunner = Runner(" in text and "context=" not in text and "sys.executable" not in text


EXAMPLES = [example for example in sorted((REPOSITORY / "examples").glob("*/*.py")) if _can_be_crashed(example)]


def answer(interrupt: Interrupt) -> Any:
    payload: Any = interrupt.payload
    return True if isinstance(payload, dict) and "approval" in payload.values() else "yes"


def runner_of(example: Path) -> Runner[Any, Any]:
    spec = importlib.util.spec_from_file_location(f"example_{example.stem}", example)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.runner


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
async def test_the_team_of_an_example_survives_crashes(example: Path) -> None:
    runner = runner_of(example)
    report = await assert_survives_crashes(lambda store: runner.clone(store=store), "Please do it.", answers=answer)
    assert report.crashes >= report.events


def test_examples_are_found() -> None:
    assert len(EXAMPLES) >= 10
