"""`baton worker`: options, the status line, health, SIGTERM, and `baton runs retry`."""

import asyncio
import urllib.request
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from tests.integration.worker.processes import WorkerProcess

from batonkit import Runner
from batonkit.stores import SQLiteStore

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
runner = Runner(desk)

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


async def wait_for(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.02)


async def statuses(store: SQLiteStore) -> set[str]:
    return {record.status for record in (await store.list()).records}


async def test_drives_runs_reports_health_and_drains(desk: Any) -> None:
    submitter = desk.runner.clone(store="runs.db")
    run_ids = [await submitter.submit("hi") for _ in range(20)]
    store = SQLiteStore("runs.db")
    options = ("desk:runner", "--store", "runs.db", "--drain", "60", "--health", "0")
    with WorkerProcess(*options, cwd=Path.cwd()) as worker:
        worker.wait_until_ready()
        assert "engine local, 20 runs at once" in worker.output
        await wait_for(lambda: len(notes()) == 20)
        health = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{worker.health_url}/healthz").read())
        assert health == b"ok\n"
        metrics = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{worker.health_url}/metrics").read())
        assert b"baton_worker_runs_driving 20" in metrics
        stopping = asyncio.create_task(asyncio.to_thread(worker.terminate))
        await asyncio.sleep(0.3)
        Path("go").touch()
        await stopping
        assert worker.process.returncode == 0, worker.output
        assert "worker stopped: driving 0 of 20" in worker.output
    assert await statuses(store) <= {"running", "completed"}
    with WorkerProcess(*options, cwd=Path.cwd()) as second:
        async with asyncio.timeout(120):
            while await statuses(store) != {"completed"}:
                await asyncio.sleep(0.02)
        second.terminate()
    assert sorted(notes()) == sorted(run_ids), "each turn was executed once"
    await store.close()
    await submitter.close()


async def test_a_run_that_kills_its_worker_is_parked_listed_and_retried(desk: Any, baton: Invoke) -> None:
    store = SQLiteStore("runs.db")
    options = ("desk:killer", "--store", "runs.db", "--lease", "0.3", "--max-deaths", "3")
    with WorkerProcess(*options, cwd=Path.cwd()) as worker:
        worker.wait_until_ready()
        run_id = await Runner(desk.killer, store=store).submit("hi")
        assert await asyncio.to_thread(worker.process.wait, 120) == 9
    for _ in range(2):
        with WorkerProcess(*options, cwd=Path.cwd()) as worker:
            assert await asyncio.to_thread(worker.process.wait, 120) == 9
    with WorkerProcess(*options, cwd=Path.cwd()) as worker:
        async with asyncio.timeout(120):
            while await statuses(store) != {"failed"}:
                await asyncio.sleep(0.02)
        worker.terminate()
    await store.close()
    listed = await asyncio.to_thread(baton, "runs", "ls", "--store", "runs.db")
    assert "3 workers died one after the other" in listed.stdout
    retried = await asyncio.to_thread(baton, "runs", "retry", run_id, "--store", "runs.db")
    assert (retried.exit_code, "waits for a worker" in retried.stderr) == (0, True)
    assert await statuses(store) == {"running"}
    refused = await asyncio.to_thread(baton, "runs", "retry", run_id, "--store", "runs.db")
    assert "only failed and cancelled runs can be retried" in refused.stderr
    await store.close()
