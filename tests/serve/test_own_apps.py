"""The parts for apps of your own: lifespan, exception handlers and event streams."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from fastapi import BackgroundTasks, FastAPI, Request, Response
from tests.waiting import until

from batonkit import Agent, Runner, tool
from batonkit.errors import SetupError
from batonkit.runs import BackgroundRunner
from batonkit.serve import EventStreams, exception_handlers, runner_lifespan, serve_in_background
from batonkit.testing import ScriptedModel, call


def make_app(background: BackgroundRunner) -> FastAPI:
    streams = EventStreams(background)
    app = FastAPI(lifespan=runner_lifespan(background, drain=1), exception_handlers=exception_handlers())

    @app.get("/runs/{run_id}/events")
    async def events(run_id: str, request: Request) -> Response:
        return await streams.open(request, run_id)

    @app.post("/runs/{run_id}/answers")
    async def answer(run_id: str, answers: dict[str, bool]) -> None:
        await background.resume(run_id, answers)

    return app


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncGenerator[aiohttp.ClientSession]:
    async with serve_in_background(app) as url, aiohttp.ClientSession(url) as client:
        yield client


async def get_text(client: aiohttp.ClientSession, path: str, **headers: str) -> tuple[int, str]:
    async with client.get(path, headers=headers) as response:
        return response.status, await response.text()


@tool(needs_approval=True)
async def cancel_order() -> str:
    """Cancel the order."""
    return "cancelled"


async def test_a_stream_starts_after_the_event_that_the_client_has() -> None:
    runner = Runner(Agent("Desk"), model=ScriptedModel(["Hello!"]), store="memory:")
    background = BackgroundRunner(runner)
    async with client_of(make_app(background)) as client:
        run = await background.start("Hi.")
        status, text = await get_text(client, f"/runs/{run}/events")
        assert status == 200
        assert text.startswith("id: 1\nevent: RunStarted\n")
        number = len(await runner.runs.events(run))
        _, tail = await get_text(client, f"/runs/{run}/events", **{"Last-Event-ID": str(number - 1)})
        assert tail.startswith(f"id: {number}\nevent: RunCompleted\n")
        # An EventSource that reconnects after the end is told to stop.
        assert await get_text(client, f"/runs/{run}/events?after={number}") == (204, "")


async def test_errors_are_json_with_a_status() -> None:
    runner = Runner(Agent("Desk", tools=[cancel_order]), model=ScriptedModel([call("cancel_order")]), store="memory:")
    background = BackgroundRunner(runner)
    async with client_of(make_app(background)) as client:
        status, text = await get_text(client, "/runs/unknown/events")
        assert (status, text) == (404, '{"error":{"code":"not_found","message":"there is no such run"}}')
        status, text = await get_text(client, "/runs/unknown/events?after=x")
        assert status == 422
        assert "`after` must be an integer" in text
        run = await background.start("Cancel it.")
        await get_text(client, f"/runs/{run}/events")
        async with client.post(f"/runs/{run}/answers", json={"nope": True}) as response:
            assert response.status == 422
            assert (await response.json())["error"]["code"] == "invalid_answer"


async def test_the_lifespan_takes_over_abandoned_runs_and_drains() -> None:
    runner = Runner(Agent("Desk"), model=ScriptedModel(["Hello!"]), store="memory:")
    run = await runner.submit("Hi.")
    background = BackgroundRunner(runner)
    async with client_of(make_app(background)) as client:
        _, text = await get_text(client, f"/runs/{run}/events")
        assert "event: RunCompleted" in text
    with pytest.raises(Exception, match="shutting down"):
        await background.start("Another.")


async def test_a_stream_ends_with_a_hint_when_the_server_stops() -> None:
    waiting = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait for ever."""
        waiting.set()
        await asyncio.Event().wait()
        return ""

    runner = Runner(Agent("Desk", tools=[wait]), model=ScriptedModel([call("wait")]), store="memory:")
    background = BackgroundRunner(runner)
    reading: asyncio.Task[tuple[int, str]] | None = None
    async with aiohttp.ClientSession() as client:
        async with serve_in_background(make_app(background), drain=0) as url:
            run = await background.start("Wait.")
            reading = asyncio.create_task(get_text(client, f"{url}/runs/{run}/events"))
            await waiting.wait()
            await until(lambda: background._broadcasts[run].subscribers)
        _, text = await reading
    assert text.endswith("retry: 1000\n\n")
    assert (await runner.runs.get(run)).status == "running"


def test_a_runner_without_a_store_is_refused() -> None:
    with pytest.raises(SetupError, match="store"):
        EventStreams(BackgroundRunner(Runner(Agent("Desk"))))


async def test_a_background_task_resumes_a_run() -> None:
    model = ScriptedModel([call("cancel_order"), "It is cancelled."])
    runner = Runner(Agent("Desk", tools=[cancel_order]), model=model, store="memory:")
    run = (await runner.run("Cancel it.")).run_id
    app = FastAPI()

    @app.post("/approve")
    async def approve(tasks: BackgroundTasks) -> None:
        tasks.add_task(runner.resume, run, True)

    async with client_of(app) as client, client.post("/approve") as response:
        assert response.status == 200
    # The server has stopped, which waits for background tasks.
    assert (await runner.runs.get(run)).status == "completed"


async def test_a_background_task_calls_an_async_tool() -> None:
    notes: list[str] = []

    @tool
    async def note(text: str) -> None:
        """Write a note."""
        notes.append(text)

    app = FastAPI()

    @app.post("/note")
    async def write(tasks: BackgroundTasks) -> None:
        tasks.add_task(note, "from the web")

    async with client_of(app) as client, client.post("/note") as response:
        assert response.status == 200
    assert notes == ["from the web"]
