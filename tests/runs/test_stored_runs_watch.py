"""Watching a stored run."""

import asyncio

from batonkit import Agent, Runner, agent
from batonkit.agents import AgentContext
from batonkit.log import Event
from batonkit.runs import BackgroundRunner
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel


async def test_watch_yields_past_and_future_events() -> None:
    store, gate = MemoryStore(), asyncio.Event()

    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        await ctx.say("one")
        await gate.wait()
        await ctx.say("two")

    runner = Runner(slow, store=store)
    driven = asyncio.create_task(runner.run("go", run_id="r"))
    seen: list[tuple[int, Event]] = []
    while await store.record("r") is None:
        await asyncio.sleep(0)
    async for number, event in Runner(slow, store=store).runs.watch("r"):
        seen.append((number, event))
        gate.set()
    result = await driven

    assert [event for _, event in seen] == list(result.events)
    assert [number for number, _ in seen] == [*range(1, len(result.events) + 1)]
    assert [event.path for _, event in seen] == [event.path for event in result.events]


async def test_watch_skips_events_up_to_after() -> None:
    runner = Runner(Agent("A", model=ScriptedModel(["hello"])), store="memory:")
    result = await runner.run("go", run_id="r")

    seen = [number async for number, _ in runner.runs.watch("r", after=2)]

    assert seen == [*range(3, len(result.events) + 1)]


async def test_the_events_of_a_long_run_are_read_in_batches() -> None:
    @agent("Talker")
    async def talker(ctx: AgentContext) -> None:
        for number in range(600):
            await ctx.say(str(number))

    runner = Runner(talker, store="memory:")
    result = await runner.run("go", run_id="r")

    batches = [batch async for batch in BackgroundRunner(runner)._subscribe_batches("r", after=2)]

    items = [item for batch in batches for item in batch]
    assert [event for _, event in items] == list(result.events)[2:]
    assert [number for number, _ in items] == [*range(3, len(result.events) + 1)]
    assert len(batches) == 3
