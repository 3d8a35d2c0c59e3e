"""Whoever stops listening to a run ends the answer at the provider: the server sees the client go, at once."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

import pytest
from tests.journeys.provided import PROVIDERS, Provider

from baton import Agent, Runner
from baton.events import RunCancelled, TextDelta
from baton.models import Chunk, Model, ModelRequest
from baton.testing import ScriptedStream, ScriptStep, call

AT_ONCE = 5.0
PATIENCE = 60.0


def never_ending() -> list[ScriptStep]:
    """A transfer, so that it is the second agent that is stopped, and an answer that would never end."""
    return [call("transfer_to_writer"), ScriptedStream("Once ", "upon ", asyncio.Event(), "a time.")]


def team() -> Agent:
    return Agent("Desk", handoffs=[Agent("Writer", description="Writes.")])


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
async def test_leaving_a_stream_early_ends_the_answer(provider: Provider) -> None:
    async with provider.playing(never_ending()) as (server, model):
        async with asyncio.timeout(PATIENCE), Runner(team(), model=model).stream("Tell me a story") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    break
        await server.client_left(within=AT_ONCE)
        assert [received.has_left for received in server.requests] == [False, True]
    assert run.result.status == "cancelled"


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
async def test_cancelling_a_run_ends_the_answer(provider: Provider) -> None:
    async with provider.playing(never_ending()) as (server, model):
        async with asyncio.timeout(PATIENCE), Runner(team(), model=model).stream("Tell me a story") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    break
            await run.cancel()
            await server.client_left(within=AT_ONCE)
            # What had come by then can still be read, and then it ends.
            rest = [event async for event in run]
            assert isinstance(rest[-1], RunCancelled)
        assert [received.has_left for received in server.requests] == [False, True]
    assert run.result.status == "cancelled"


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
async def test_cancelling_who_waits_for_a_run_ends_the_answer(provider: Provider) -> None:
    begun = asyncio.Event()

    def started(_: ModelRequest) -> ScriptedStream:
        begun.set()
        return ScriptedStream("Once ", asyncio.Event())

    async with provider.playing([call("transfer_to_writer"), started]) as (server, model):
        waiting = asyncio.create_task(Runner(team(), model=model).run("Tell me a story"))
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        waiting.cancel()
        assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)
        await server.client_left(within=AT_ONCE)


class Counted:
    """A model around a model that counts what it passes on."""

    def __init__(self, model: Model) -> None:
        self.name = model.name
        self.passed = 0
        self._model = model

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        async with aclosing(cast("AsyncGenerator[Chunk]", self._model.respond(request))) as chunks:
            async for chunk in chunks:
                self.passed += 1
                yield chunk

    async def held_back(self) -> None:
        """Wait until nothing is taken any more, because nobody listens."""
        turns = 0
        while turns < 100:
            before = self.passed
            await asyncio.sleep(0)
            turns = turns + 1 if before and self.passed == before else 0


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
async def test_leaving_a_run_that_waits_for_its_listener_ends_the_answer(provider: Provider) -> None:
    # Here nobody reads from the connection at that moment, so that nothing closes it but whoever was reading.
    words = ScriptedStream(*["word "] * 500, asyncio.Event())
    async with provider.playing([words]) as (server, model):
        counted = Counted(model)
        async with asyncio.timeout(PATIENCE), Runner(Agent("Writer"), model=counted).stream("Tell me a story"):
            await counted.held_back()
        assert counted.passed < 500
        await server.client_left(within=AT_ONCE)


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
async def test_a_run_that_was_cancelled_goes_on_over_the_same_connections(provider: Provider) -> None:
    async with provider.playing([*never_ending(), "The end."]) as (server, model):
        runner = Runner(team(), model=model)
        async with asyncio.timeout(PATIENCE), runner.stream("Tell me a story") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    break
        result = await runner.resume(run.result.run_id)
        server.assert_done()
    assert (result.output, result.agent) == ("The end.", "Writer")
    assert server.rejected == []
