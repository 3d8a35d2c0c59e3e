"""The tutorial, followed from the first step to the last: its files, commands and outputs."""

import asyncio
import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.integration.journeys.tutorial import BIN, CHINESE, ENGLISH, Project, Tutorial
from tests.integration.worker.processes import WorkerProcess
from tests.postgres import PostgresServer
from tests.waiting import until


@pytest.mark.parametrize("tutorial", [ENGLISH, CHINESE], ids=["English", "Chinese"])
def test_the_tutorial_can_be_followed(tutorial: Tutorial, tmp_path: Path) -> None:
    project = Project(tmp_path)
    for number, step in enumerate(tutorial.steps):
        project.follow(step)
        if number == 5:
            with project.served() as url:
                asyncio.run(have_a_lamp_refunded(url, tutorial, "carl"))
    pyright = subprocess.run(
        [BIN / "pyright", "--pythonpath", sys.executable, "."], cwd=tmp_path, capture_output=True, text=True
    )
    assert pyright.returncode == 0, pyright.stdout
    shorten_waits(project)
    two_workers_share_the_runs(project, tutorial, "desk.db")
    server = PostgresServer()
    try:
        server.start()
        two_workers_share_the_runs(project, tutorial, server.url)
    finally:
        server.remove()


def shorten_waits(project: Project) -> None:
    """Let the tool and the lease of a dead worker take less time than on the page."""
    orders = project.folder / "orders.py"
    orders.write_text(orders.read_text(encoding="utf-8").replace("sleep(20)", "sleep(5)"), encoding="utf-8")
    desk = project.folder / "desk.py"
    store = 'os.environ.get("DESK_STORE", "desk.db")'
    short = desk.read_text(encoding="utf-8").replace(f"store={store}", f"store=resolve_store({store}, lease_seconds=2)")
    desk.write_text(f"from batonkit.stores import resolve_store\n{short}", encoding="utf-8")


def two_workers_share_the_runs(project: Project, tutorial: Tutorial, store: str) -> None:
    environment = project.environment | {"DESK_STORE": store}
    with ExitStack() as stack:
        workers = [
            stack.enter_context(WorkerProcess("desk:runner", cwd=project.folder, environment=environment))
            for _ in range(2)
        ]
        for worker in workers:
            worker.wait_until_ready()
        url = stack.enter_context(project.served(DESK_STORE=store))
        asyncio.run(have_a_lamp_refunded(url, tutorial, "dora"))
        asyncio.run(ask_while_a_worker_is_killed(url, tutorial, workers))
        asyncio.run(have_a_lamp_refunded(url, tutorial, "eve"))


async def have_a_lamp_refunded(url: str, tutorial: Tutorial, conversation: str) -> None:
    """Do what the page in the browser does."""
    async with aiohttp.ClientSession(url) as client:
        async with client.get("/") as response:
            assert "EventSource" in await response.text()
        message = {"text": tutorial.i_want_my_money_back, "conversation": conversation}
        async with client.post("/messages", json=message) as response:
            run = (await response.json())["run"]
        events = await read_events(client, run)
        question = next(each for each in events.values() if each["type"] == "InterruptRaised")
        async with client.get(f"/conversations/{conversation}") as response:
            assert await response.json() == [run]
        answer = {"interrupt": question["key"], "approved": True}
        async with client.post(f"/runs/{run}/answers", json=answer) as response:
            assert response.status == 202
        events = await read_events(client, run, after=max(events))
        said = [each["message"]["content"] for each in events.values() if each["type"] == "AgentResponded"]
        assert said == [tutorial.it_is_paid]
        async with client.get("/runs/unknown/events") as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "not_found"


async def ask_while_a_worker_is_killed(url: str, tutorial: Tutorial, workers: list[WorkerProcess]) -> None:
    """Kill the worker that says that it looks up the order, as the page says; the other one answers."""
    async with aiohttp.ClientSession(url) as client:
        message = {"text": tutorial.where_is_it, "conversation": "fay"}
        async with client.post("/messages", json=message) as response:
            run = (await response.json())["run"]
        (busy,) = await until(lambda: [worker for worker in workers if looks_up_the_order(worker)])
        busy.kill()
        async with asyncio.timeout(300):
            events = await read_events(client, run)
    responses = [each for each in events.values() if each["type"] == "AgentResponded"]
    assert [each["origin"][1] for each in responses] == ["Triage", "Orders", "Orders"]
    assert responses[-1]["message"]["content"] == tutorial.it_was_delivered


def looks_up_the_order(worker: WorkerProcess) -> bool:
    return re.search(rf"\b{worker.process.pid} .*A-17", worker.output) is not None


async def read_events(client: aiohttp.ClientSession, run: str, after: int = 0) -> dict[int, Any]:
    """Read events by number until the stream ends."""
    events: dict[int, Any] = {}
    number = 0
    async with client.get(f"/runs/{run}/events", headers={"Last-Event-ID": str(after)}) as stream:
        async for line in stream.content:
            field, _, value = line.decode().strip().partition(": ")
            number = int(value) if field == "id" else number
            if field == "data" and number > after:
                event = json.loads(value)
                if event["type"].endswith("Delta"):
                    continue
                events[number] = event
    return events
