"""A server that ends in good order leaves its runs to others: nothing is cancelled, and nothing is done twice."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.serving.a2a.replicas import Replicas
from tests.sockets import Client

AGUI = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "work"}]}


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path, program="tests.serving.api.replica", probe="/health")
    try:
        yield made
    finally:
        made.close()


async def _ended(replicas: Replicas, url: str) -> None:
    """Ask a process to end, and return when it has."""
    process = replicas.ask_to_end(url)
    async with asyncio.timeout(60):
        await asyncio.to_thread(process.wait)


async def _finished_by(replicas: Replicas, session: aiohttp.ClientSession, url: str) -> None:
    """Let the run end, and look at how it does."""
    client = Client(session, url)
    async with asyncio.timeout(60):
        replicas.allow("go")
        events = [frame["event"] async for frame in client.events("/runs/r/events")]
        run = (await client.get("/runs/r"))[1]
    assert (run["status"], run["output"], events[-1]) == ("completed", "done", "RunCompleted")
    assert "RunCancelled" not in events
    assert replicas.notes() == ["work"]


@pytest.mark.parametrize(("face", "listens"), [("api", True), ("all", False)])
async def test_a_run_of_the_http_api_goes_on_elsewhere(replicas: Replicas, face: str, listens: bool) -> None:
    here, there = replicas.start("", face), replicas.start("", "api")
    await replicas.up(here, there)
    async with aiohttp.ClientSession() as session:
        client = Client(session, here)
        assert (await client.post("/runs", {"input": "work", "run_id": "r"}))[0] == 201
        await replicas.noted("work")
        heard = asyncio.ensure_future(_read(session, f"{here}/runs/r/events")) if listens else None
        await _ended(replicas, here)
        assert (await Client(session, there).get("/runs/r"))[1]["status"] == "running"
        await _finished_by(replicas, session, there)
        if heard is not None:
            assert b"Cancelled" not in await heard


@pytest.mark.parametrize("face", ["agui", "all"])
async def test_a_run_of_ag_ui_goes_on_elsewhere_though_its_stream_is_cut(replicas: Replicas, face: str) -> None:
    here, there = replicas.start("", face), replicas.start("", "api")
    await replicas.up(here, there)
    async with aiohttp.ClientSession() as session:
        url = f"{here}/agui" if face == "all" else here
        async with session.post(url, json=AGUI) as stream:
            assert stream.status == 200
            await replicas.noted("work")
            await _ended(replicas, here)
        await _finished_by(replicas, session, there)


async def test_a_run_whose_only_server_ends_goes_on_when_it_is_back(replicas: Replicas) -> None:
    here = replicas.start("", "api")
    await replicas.up(here)
    async with aiohttp.ClientSession() as session:
        await Client(session, here).post("/runs", {"input": "work", "run_id": "r"})
        await replicas.noted("work")
        await _ended(replicas, here)
        await replicas.up(replicas.start(here, "api"))
        await _finished_by(replicas, session, here)


async def _read(session: aiohttp.ClientSession, url: str) -> bytes:
    """What a stream sends until it ends or is cut."""
    heard = b""
    try:
        async with session.get(url) as answer:
            async for piece in answer.content.iter_any():
                heard += piece
    except aiohttp.ClientError:
        return heard
    return heard
