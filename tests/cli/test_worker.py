"""`baton worker`: options, the status line, health, SIGTERM, and `baton runs retry`."""

import asyncio
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from baton import Agent, Runner
from baton.runner.recovery import UNDRIVABLE_NOTE
from baton.testing import ScriptedModel
from baton.worker import Worker

Write = Callable[..., Path]
Invoke = Callable[..., Any]

TEAM = """
import asyncio, os, time
from pathlib import Path

@tool(effect="read")
async def look_up(ctx: RunContext) -> str:
    "Look something up."
    with open("notes", "a") as notes:
        notes.write(f"{ctx.run_id}\\n")
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "found"

def answer(request):
    return "Done." if any(isinstance(message, ToolMessage) for message in request.messages) else call("look_up")

desk = Agent("Desk", description="Helps.", tools=[look_up], model=ScriptedModel([answer], cycle=True))
runner = Runner(desk, lease_seconds=5)
other = Runner(desk, store="memory:")

@agent("Killer")
async def killer(ctx):
    os._exit(9)
"""


def notes() -> list[str]:
    return Path("notes").read_text().split() if Path("notes").exists() else []


@pytest.fixture
def desk(write: Write) -> Any:
    """The module with the team, for submitting runs."""
    spec = spec_from_file_location("desk_for_test", write(TEAM))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    # G10
    path = str(tmp_path / "runs.db")
    run_id = await Runner(Agent("Old", model=ScriptedModel([])), store=path).submit("hi")
    worker = Worker(Runner(Agent("New", model=ScriptedModel([])), store=path))
    await worker.drive(run_id)
    assert UNDRIVABLE_NOTE in await worker.store.notes(run_id)
    await worker.runner.close()
    listed = await asyncio.to_thread(baton, "runs", "ls", "--store", path)
    assert "could not be driven: TeamChangedError" in listed.stdout
