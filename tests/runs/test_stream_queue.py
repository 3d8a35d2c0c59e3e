"""Backpressure: a slow reader slows the run down, and no event is lost."""

import asyncio
from collections.abc import AsyncIterator

from batonkit import Agent, AgentContext, Runner, agent
from batonkit.log import AgentResponded, TextDelta
from batonkit.models import Chunk, ModelRequest, ModelResponse, TextChunk

_MAX_AHEAD = 2 * 128 + 2
"""The reader's batch and the queue, each of at most 128 items, and two items of slack."""


class CountingModel:
    """A model that counts the chunks it has yielded."""

    name = "talkative"

    def __init__(self, words: int) -> None:
        self.words = words
        self.yielded = 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        for number in range(self.words):
            self.yielded += 1
            yield TextChunk(f"{number} ")
        yield ModelResponse()


async def run_other_tasks() -> None:
    """Let all other tasks run until they block."""
    for _ in range(2000):
        await asyncio.sleep(0)


async def test_a_slow_reader_slows_the_model_down() -> None:
    model = CountingModel(5000)
    received: list[str] = []
    max_ahead = 0
    async with Runner(Agent("A", model=model)).stream("hi") as live:
        async for event in live:
            if isinstance(event, TextDelta):
                received.append(event.text)
                if len(received) in (1, 1000):
                    await run_other_tasks()
                    max_ahead = max(max_ahead, model.yielded - len(received))
    assert 0 < max_ahead <= _MAX_AHEAD
    assert received == [f"{number} " for number in range(5000)]
    assert live.result.output == "".join(received)


async def test_a_slow_reader_slows_an_agent_down() -> None:
    # Events as well as deltas.
    yielded = 0

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        nonlocal yielded
        for number in range(1000):
            await ctx.say(str(number))
            yielded += 1

    received: list[str] = []
    async with Runner(a).stream("hi") as live:
        async for event in live:
            if isinstance(event, AgentResponded):
                received.append(event.text)
                if len(received) == 1:
                    await run_other_tasks()
                    assert yielded <= _MAX_AHEAD
    assert received == [str(number) for number in range(1000)]


async def test_a_stream_without_a_reader_can_be_closed() -> None:
    # The run waits for space in the queue, and must not wait forever.
    model = CountingModel(5000)
    async with Runner(Agent("A", model=model)).stream("hi") as live:
        await run_other_tasks()
        assert model.yielded <= _MAX_AHEAD
    assert live.result.status == "cancelled"


async def test_a_run_without_a_stream_never_waits() -> None:
    model = CountingModel(5000)
    await Runner(Agent("A", model=model)).run("hi")
    assert model.yielded == 5000
