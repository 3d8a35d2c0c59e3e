"""Leaving or cancelling a run closes the connection to the provider immediately."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

import pytest
from tests.journeys.providers import PROVIDERS, Provider

from batonkit import Agent, Runner
from batonkit.log import RunCancelled, TextDelta
from batonkit.models import Chunk, Model, ModelRequest
from batonkit.testing import ScriptedStream, ScriptStep, call

TIMEOUT = 60.0


def endless_steps() -> list[ScriptStep]:
    """Return a transfer, so that the second agent is stopped, and an endless response."""
    return [call("transfer_to_writer"), ScriptedStream("Once ", "upon ", asyncio.Event(), "a time.")]


def team() -> Agent:
    return Agent("Desk", handoffs=[Agent("Writer", description="Writes.")])


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
async def test_leaving_a_stream_early_closes_the_connection(provider: Provider) -> None:
    async with provider.scripted(endless_steps()) as (server, model):
        async with asyncio.timeout(TIMEOUT), Runner(team(), model=model).stream("Tell me a story") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    break
        await server.client_left(within=TIMEOUT)
        assert [received.has_left for received in server.requests] == [False, True]
    assert run.result.status == "cancelled"


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
async def test_cancelling_a_run_closes_the_connection(provider: Provider) -> None:
    async with provider.scripted(endless_steps()) as (server, model):
        async with asyncio.timeout(TIMEOUT), Runner(team(), model=model).stream("Tell me a story") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    break
            await run.cancel()
            await server.client_left(within=TIMEOUT)
            # Events received by then can still be read; then the stream ends.
            rest = [event async for event in run]
            assert isinstance(rest[-1], RunCancelled)
        assert [received.has_left for received in server.requests] == [False, True]
    assert run.result.status == "cancelled"


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
async def test_cancelling_a_task_that_awaits_a_run_closes_the_connection(provider: Provider) -> None:
    begun = asyncio.Event()

    def started(_: ModelRequest) -> ScriptedStream:
        begun.set()
        return ScriptedStream("Once ", asyncio.Event())

    async with provider.scripted([call("transfer_to_writer"), started]) as (server, model):
        waiting = asyncio.create_task(Runner(team(), model=model).run("Tell me a story"))
        async with asyncio.timeout(TIMEOUT):
            await begun.wait()
        waiting.cancel()
        assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)
        await server.client_left(within=TIMEOUT)


class CountingModel:
    """A model that wraps another model and counts the chunks it forwards."""

    def __init__(self, model: Model) -> None:
        self.name = model.name
        self.forwarded = 0
        self._model = model

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        async with aclosing(cast("AsyncGenerator[Chunk]", self._model.respond(request))) as chunks:
            async for chunk in chunks:
                self.forwarded += 1
                yield chunk

    async def until_blocked(self) -> None:
        """Wait until no more chunks are read because the stream has no reader."""
        turns = 0
        while turns < 100:
            before = self.forwarded
            await asyncio.sleep(0)
            turns = turns + 1 if before and self.forwarded == before else 0


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
async def test_leaving_a_stream_that_nothing_reads_closes_the_connection(provider: Provider) -> None:
    # No task is reading from the connection at that moment, so only the closed generator can close it.
    words = ScriptedStream(*["word "] * 500, asyncio.Event())
    async with provider.scripted([words]) as (server, model):
        counting_model = CountingModel(model)
        async with asyncio.timeout(TIMEOUT), Runner(Agent("Writer"), model=counting_model).stream("Tell me a story"):
            await counting_model.until_blocked()
        assert counting_model.forwarded < 500
        await server.client_left(within=TIMEOUT)


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
async def test_a_cancelled_run_can_be_resumed_with_the_same_model(provider: Provider) -> None:
    async with provider.scripted([*endless_steps(), "The end."]) as (server, model):
        runner = Runner(team(), model=model)
        async with asyncio.timeout(TIMEOUT), runner.stream("Tell me a story") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    break
        result = await runner.resume(run.result.run_id)
        server.assert_done()
    assert (result.output, result.agent) == ("The end.", "Writer")
    assert server.rejected == []
