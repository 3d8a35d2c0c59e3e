"""A server that shuts down leaves its runs to others: nothing is cancelled, and no effect is repeated."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.integration.serve.a2a.replicas import Replicas
from tests.sockets import Client

AGUI = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "work"}]}


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    started = Replicas(tmp_path, program="tests.integration.serve.api.replica", probe="/health")
    try:
        yield started
    finally:
        started.close()


async def _shut_down(replicas: Replicas, url: str) -> None:
    """Shut a process down, and wait for its end."""
    process = replicas.terminate(url)
    async with asyncio.timeout(60):
        await asyncio.to_thread(process.wait)


async def _check_finished_by(replicas: Replicas, session: aiohttp.ClientSession, url: str) -> None:
    """Let the run finish, and check its events and effects."""
    client = Client(session, url)
    async with asyncio.timeout(60):
        replicas.allow("go")
        events = [frame["event"] async for frame in client.events("/runs/r/events")]
        run = (await client.get("/runs/r"))[1]
    assert (run["status"], run["output"], events[-1]) == ("completed", "done", "RunCompleted")
    assert "RunCancelled" not in events
    assert replicas.notes() == ["work"]


@pytest.mark.parametrize(("app_name", "with_subscriber"), [("api", True), ("all", False)])
async def test_a_run_of_the_http_api_continues_at_another_server(
    replicas: Replicas, app_name: str, with_subscriber: bool
) -> None:
    first_url, second_url = replicas.start("", app_name), replicas.start("", "api")
    await replicas.wait_until_up(first_url, second_url)
    async with aiohttp.ClientSession() as session:
        client = Client(session, first_url)
        assert (await client.post("/runs", {"input": "work", "run_id": "r"}))[0] == 201
        await replicas.wait_for_note("work")
        received = asyncio.ensure_future(_read(session, f"{first_url}/runs/r/events")) if with_subscriber else None
        await _shut_down(replicas, first_url)
        assert (await Client(session, second_url).get("/runs/r"))[1]["status"] == "running"
        await _check_finished_by(replicas, session, second_url)
        if received is not None:
            assert b"Cancelled" not in await received


@pytest.mark.parametrize("app_name", ["agui", "all"])
async def test_a_run_of_ag_ui_continues_at_another_server(replicas: Replicas, app_name: str) -> None:
    first_url, second_url = replicas.start("", app_name), replicas.start("", "api")
    await replicas.wait_until_up(first_url, second_url)
    async with aiohttp.ClientSession() as session:
        url = f"{first_url}/agui" if app_name == "all" else first_url
        async with session.post(url, json=AGUI) as stream:
            assert stream.status == 200
            await replicas.wait_for_note("work")
            await _shut_down(replicas, first_url)
        await _check_finished_by(replicas, session, second_url)


async def test_a_run_continues_when_its_only_server_restarts(replicas: Replicas) -> None:
    first_url = replicas.start("", "api")
    await replicas.wait_until_up(first_url)
    async with aiohttp.ClientSession() as session:
        await Client(session, first_url).post("/runs", {"input": "work", "run_id": "r"})
        await replicas.wait_for_note("work")
        await _shut_down(replicas, first_url)
        await replicas.wait_until_up(replicas.start(first_url, "api"))
        await _check_finished_by(replicas, session, first_url)


async def _read(session: aiohttp.ClientSession, url: str) -> bytes:
    """Read a stream until it ends or is disconnected."""
    received = b""
    try:
        async with session.get(url) as answer:
            async for chunk in answer.content.iter_any():
                received += chunk
    except aiohttp.ClientError:
        return received
    return received
