"""Backpressure: a slow reader slows the run down, and no event is lost."""

import asyncio
from collections.abc import AsyncIterator

from baton import Agent, AgentContext, Runner, agent
from baton.events import AgentResponded, TextDelta
from baton.models import Chunk, ModelRequest, ModelResponse, TextChunk

_MOST_AHEAD = 2 * 128 + 2
"""What a listener has taken and what waits for it, each at most 128, and a little for the one that notices."""


class Talkative:
    """A model that counts how far it has come."""

    name = "talkative"

    def __init__(self, words: int) -> None:
        self.words = words
        self.said = 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        for number in range(self.words):
            self.said += 1
            yield TextChunk(f"{number} ")
        yield ModelResponse()


async def hold_still() -> None:
    """Let everybody else do all they can."""
    for _ in range(2000):
        await asyncio.sleep(0)


async def test_a_slow_reader_slows_the_model_down() -> None:
    # DESIGN §4
    model = Talkative(5000)
    heard: list[str] = []
    farthest = 0
    async with Runner(Agent("A", model=model)).stream("hi") as live:
        async for event in live:
            if isinstance(event, TextDelta):
                heard.append(event.text)
                if len(heard) in (1, 1000):
                    await hold_still()
                    farthest = max(farthest, model.said - len(heard))
    assert 0 < farthest <= _MOST_AHEAD
    assert heard == [f"{number} " for number in range(5000)]
    assert live.result.output == "".join(heard)


async def test_a_slow_reader_slows_an_agent_down() -> None:
    # DESIGN §4: events as well as deltas.
    said = 0

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        nonlocal said
        for number in range(1000):
            await ctx.say(str(number))
            said += 1

    heard: list[str] = []
    async with Runner(a).stream("hi") as live:
        async for event in live:
            if isinstance(event, AgentResponded):
                heard.append(event.text)
                if len(heard) == 1:
                    await hold_still()
                    assert said <= _MOST_AHEAD
    assert heard == [str(number) for number in range(1000)]


async def test_a_stream_without_a_reader_can_be_closed() -> None:
    # T29: the run waits for room, and must not wait for ever.
    model = Talkative(5000)
    async with Runner(Agent("A", model=model)).stream("hi") as live:
        await hold_still()
        assert model.said <= _MOST_AHEAD
    assert live.result.status == "cancelled"


async def test_a_run_without_a_stream_never_waits() -> None:
    model = Talkative(5000)
    await Runner(Agent("A", model=model)).run("hi")
    assert model.said == 5000
