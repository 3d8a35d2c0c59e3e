"""Several processes over one store, and what becomes of tasks when one of them is killed."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import httpx
import pytest
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, SubscribeToTaskRequest
from a2a.utils.errors import A2AError
from tests.adapters.a2a.stage import (
    CANCELED,
    COMPLETED,
    INPUT_REQUIRED,
    WORKING,
    assembled,
    client_at,
    sent,
    streamed,
    text_in,
)


class Replicas:
    """Processes that serve one store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> str:
        """One more; its address."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        program = [sys.executable, "-m", "tests.adapters.a2a.replica", str(port), str(self.folder)]
        url = f"http://127.0.0.1:{port}"
        self._processes[url] = subprocess.Popen(program)
        return url

    async def up(self, *urls: str) -> None:
        """Return when they answer."""
        async with httpx.AsyncClient() as http:
            for url in urls:
                while True:
                    try:
                        await http.get(f"{url}/.well-known/agent-card.json")
                        break
                    except httpx.HTTPError:
                        assert self._processes[url].poll() is None
                        await asyncio.sleep(0.05)

    def kill(self, url: str) -> None:
        """End one at once, as a failing machine would."""
        process = self._processes.pop(url)
        process.kill()
        process.wait()

    def close(self) -> None:
        """End all."""
        for url in [*self._processes]:
            self.kill(url)

    def notes(self) -> list[str]:
        """What was done, once for each time it was done."""
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []

    async def noted(self, what: str) -> None:
        """Return when it has been done."""
        while what not in self.notes():
            await asyncio.sleep(0.02)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    try:
        yield made
    finally:
        made.close()


async def test_two_replicas_share_tasks_and_do_nothing_twice(replicas: Replicas) -> None:
    here, there = replicas.start(), replicas.start()
    await replicas.up(here, there)
    async with client_at(here, streams=False) as one, client_at(there, streams=False) as other:
        # A follow-up that reaches both at once is carried out once.
        for number in range(5):
            asked = await sent(one, f"ask{number}")
            assert asked.status.state == INPUT_REQUIRED
            answers = await asyncio.gather(
                sent(one, "yes", task=asked.id), sent(other, "yes", task=asked.id), return_exceptions=True
            )
            assert [type(each) for each in answers if isinstance(each, A2AError)] != [], answers
            while (await other.get_task(GetTaskRequest(id=asked.id))).status.state != COMPLETED:
                await asyncio.sleep(0.02)
        assert sorted(replicas.notes()) == [f"ask{number} yes" for number in range(5)]

        # An agent that says nothing is cancelled from the other process.
        silent = await sent(one, "silent", at_once=True)
        before = monotonic()
        stopped = await other.cancel_task(CancelTaskRequest(id=silent.id))
        assert stopped.status.state == CANCELED
        assert monotonic() - before < 5

    async with client_at(there) as other, client_at(here, streams=False) as one:
        # Whoever listens elsewhere hears the end, though the process that worked on it is killed.
        task = await sent(one, "work", at_once=True)
        await replicas.noted("work")
        listening = asyncio.create_task(streamed(other.subscribe(SubscribeToTaskRequest(id=task.id))))
        replicas.kill(here)
        (replicas.folder / "go").touch()
        before = monotonic()
        view = assembled(await listening)
        assert monotonic() - before < 10
        assert (view.states[0], view.states[-1]) == (WORKING, COMPLETED)
        assert text_in(view.task) == "done"
        assert replicas.notes().count("work") == 1


async def test_a_task_whose_only_process_was_killed_goes_on_when_it_is_back(replicas: Replicas) -> None:
    first = replicas.start()
    await replicas.up(first)
    async with client_at(first, streams=False) as client:
        task = await sent(client, "work", at_once=True)
        asked = await sent(client, "ask and work")
        answered = await sent(client, "yes", task=asked.id, at_once=True)
        assert answered.status.state == WORKING
        await replicas.noted("work")
        await replicas.noted("ask and work yes")
    replicas.kill(first)
    (replicas.folder / "go").touch()
    again = replicas.start()
    await replicas.up(again)
    async with client_at(again) as client:
        try:
            view = assembled(await streamed(client.subscribe(SubscribeToTaskRequest(id=task.id))))
        except A2AError:
            view = None  # It had ended before we could subscribe.
        done = await client.get_task(GetTaskRequest(id=task.id))
        while (await client.get_task(GetTaskRequest(id=asked.id))).status.state != COMPLETED:
            await asyncio.sleep(0.05)
    assert view is None or view.states[-1] == COMPLETED
    assert done.status.state == COMPLETED
    assert [text_in(done), sorted(replicas.notes())] == ["done", ["ask and work yes", "work"]]
