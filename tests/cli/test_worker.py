"""`baton worker`: its options, and runs that it cannot drive."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batonkit import Agent, Runner
from batonkit.runs.stored.recovery import UNDRIVABLE_NOTE
from batonkit.testing import ScriptedModel
from batonkit.worker import Worker

Write = Callable[..., Path]
Invoke = Callable[..., Any]

TEAM = """
desk = Agent("Desk", description="Helps.", model=ScriptedModel(["Done."]))
runner = Runner(desk)
other = Runner(desk, store="memory:")
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("desk:runner",), "baton worker needs a store: --store runs.db"),
        (("desk:other",), "no other process can submit runs to a store in memory"),
        (("desk:runner", "--store", "runs.db", "--model", "scripted"), "set what --model is for in its arguments"),
        (("desk:runner", "--store", "runs.db", "--engine", "postgres"), "needs a PostgresStore"),
        (("desk:runner", "--store", "runs.db", "--address", "localhost:1"), "has no address of its own"),
        (("desk:runner", "--store", "runs.db", "--concurrency", "0"), "0 is not in the range"),
    ],
)
def test_mistakes_are_reported(write: Write, baton: Invoke, arguments: tuple[str, ...], message: str) -> None:
    write(TEAM)
    result = baton("worker", *arguments)
    assert result.exit_code != 0
    assert message in result.stderr


async def test_undrivable_runs_are_listed_with_the_reason(baton: Invoke, tmp_path: Path) -> None:
    path = str(tmp_path / "runs.db")
    run_id = await Runner(Agent("Old", model=ScriptedModel([])), store=path).submit("hi")
    worker = Worker(Runner(Agent("New", model=ScriptedModel([])), store=path))
    await worker.drive(run_id)
    assert UNDRIVABLE_NOTE in await worker.store.notes(run_id)
    await worker.runner.close()
    listed = await asyncio.to_thread(baton, "runs", "ls", "--store", path)
    assert "could not be driven: TeamChangedError" in listed.stdout
