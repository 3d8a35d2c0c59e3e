"""The teams of the lessons survive a crash after every event."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tests.architecture.shape import REPOSITORY

from batonkit import Runner
from batonkit.runner import Interrupt
from batonkit.testing import assert_survives_crashes


def _can_be_crashed(lesson: Path) -> bool:
    """Return whether a lesson has a runner and starts no processes, which would take minutes here."""
    text = lesson.read_text(encoding="utf-8")
    return "\nrunner = Runner(" in text and "sys.executable" not in text


LESSONS = [lesson for lesson in sorted((REPOSITORY / "examples").glob("*/[0-9]*.py")) if _can_be_crashed(lesson)]


def answer(interrupt: Interrupt) -> Any:
    payload: Any = interrupt.payload
    return True if isinstance(payload, dict) and "approval" in payload.values() else "yes"


def runner_of(lesson: Path) -> Runner[Any, Any]:
    spec = importlib.util.spec_from_file_location(f"lesson_{lesson.stem}", lesson)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.runner


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
async def test_the_team_of_a_lesson_survives_crashes(lesson: Path) -> None:
    runner = runner_of(lesson)
    report = await assert_survives_crashes(lambda store: runner.clone(store=store), "Please do it.", answers=answer)
    assert report.crashes >= report.events


def test_lessons_are_found() -> None:
    assert len(LESSONS) >= 10
