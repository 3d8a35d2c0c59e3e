"""Runs in the background, with any number of listeners."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from baton import Agent, RunContext, Runner, agent, tool
from baton.agents import AgentContext
from baton.errors import AnswerError, RunConflictError, RunError, SetupError, ThreadBusyError
from baton.events import AgentResponded, Delta, Event, RunCompleted, TextDelta
from baton.runner import BackgroundRunner
from baton.runner.background import Broadcast, Subscriber
from baton.stores import MemoryStore
from baton.testing import ScriptedModel, ScriptedStream, call


@tool
async def ask_me(ctx: RunContext) -> str:
    return await ctx.interrupt("well?")


async def _heard(hub: BackgroundRunner, run_id: str, *, after: int = 0) -> list[tuple[int, Event | Delta]]:
    return [item async for item in hub.subscribe(run_id, after=after)]


async def test_several_listen_and_each_hears_everything_once_whenever_it_comes() -> None:
    gate = asyncio.Event()

    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        await ctx.say("one")
        await gate.wait()
        await ctx.say("two")

    hub = BackgroundRunner(Runner(slow, store="memory:"))
    run_id = await hub.start("go")
    early = asyncio.create_task(_heard(hub, run_id))
    await asyncio.sleep(0)
    late = asyncio.create_task(_heard(hub, run_id, after=3))
    await asyncio.sleep(0)
    gate.set()
    heard, heard_late = await early, await late

    recorded = await hub.runner.events(run_id)
    assert heard == [*enumerate(recorded, 1)]
    assert heard_late == heard[3:]
    assert await _heard(hub, run_id) == heard, "once it has stopped, it is read from the store"
    assert not hub.is_driving(run_id)


async def test_deltas_are_heard_where_the_run_is_driven() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([ScriptedStream("a", gate, "b")])
    hub = BackgroundRunner(Runner(Agent("A", model=model), store="memory:"))
    run_id = await hub.start("go")
    listening = asyncio.create_task(_heard(hub, run_id))
    await asyncio.sleep(0)
    gate.set()

    heard = await listening

    assert "b" in [event.text for _, event in heard if isinstance(event, TextDelta)]
    assert isinstance(heard[-1][1], RunCompleted)


async def test_a_listener_who_leaves_does_not_stop_the_run() -> None:
    gate = asyncio.Event()

    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        await gate.wait()
        await ctx.say("done")

    hub = BackgroundRunner(Runner(slow, store="memory:"))
    run_id = await hub.start("go")
    async for _ in hub.subscribe(run_id):
        break
    gate.set()
    assert [event.text for _, event in await _heard(hub, run_id) if isinstance(event, AgentResponded)] == ["done"]


async def test_a_question_is_answered_by_another_hub_on_the_same_store() -> None:
    store = MemoryStore()

    def team(*steps: Any) -> Agent:
        return Agent("A", tools=[ask_me], model=ScriptedModel([*steps]))

    first = BackgroundRunner(Runner(team(call("ask_me")), store=store))
    run_id = await first.start("go", thread="t")
    await _heard(first, run_id)
    with pytest.raises(ThreadBusyError):
        await first.start("again", thread="t")

    other = BackgroundRunner(Runner(team("thank you"), store=store))
    with pytest.raises(AnswerError):
        await other.resume(run_id, {"nobody/ask1": 1})
    await other.resume(run_id, "fine")
    heard = await _heard(other, run_id)

    assert isinstance(heard[-1][1], RunCompleted)
    assert [number for number, event in heard if isinstance(event, Event)] == [*range(1, len(heard) + 1)]


async def test_a_run_is_stopped_and_goes_on_later() -> None:
    gate = asyncio.Event()

    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        await gate.wait()
        await ctx.say("done")

    hub = BackgroundRunner(Runner(slow, store="memory:"))
    run_id = await hub.start("go")
    assert await hub.cancel(run_id) == "cancelled"
    gate.set()
    await hub.resume(run_id)
    assert isinstance((await _heard(hub, run_id))[-1][1], RunCompleted)


async def test_closing_stops_everything() -> None:
    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        await asyncio.Event().wait()

    hub = BackgroundRunner(Runner(slow, store="memory:"))
    ids = [await hub.start("go"), await hub.start("go")]
    await hub.close()
    records = [await hub.runner._require_store("test").record(run_id) for run_id in ids]
    assert [record.status for record in records if record is not None] == ["cancelled", "cancelled"]


async def test_a_hub_needs_a_store() -> None:
    hub = BackgroundRunner(Runner(Agent("A", model=ScriptedModel(["x"]))))
    with pytest.raises(SetupError, match="store"):
        await hub.start("go")


async def test_a_run_that_goes_on_is_running_for_everybody_who_looks() -> None:
    gate, store = asyncio.Event(), MemoryStore()

    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        await gate.wait()
        await ctx.say("done")

    here, there = BackgroundRunner(Runner(slow, store=store)), BackgroundRunner(Runner(slow, store=store))
    run_id = await here.start("go", thread="t")
    await here.cancel(run_id)
    await here.resume(run_id)
    record = await store.record(run_id)
    assert record is not None
    assert record.status == "running"
    with pytest.raises(ThreadBusyError):
        await there.start("again", thread="t")
    listening = asyncio.create_task(_heard(there, run_id))
    await asyncio.sleep(0)
    gate.set()
    assert isinstance((await listening)[-1][1], RunCompleted)


async def test_who_comes_in_the_middle_of_an_answer_hears_its_beginning() -> None:
    gate = asyncio.Event()
    hub = BackgroundRunner(
        Runner(Agent("A", model=ScriptedModel([ScriptedStream("one ", "two ", gate, "three")])), store="memory:")
    )
    run_id = await hub.start("go")
    while not [piece async for piece in _so_far(hub, run_id) if isinstance(piece, TextDelta)]:
        await asyncio.sleep(0)
    listening = asyncio.create_task(_heard(hub, run_id))
    await asyncio.sleep(0)
    gate.set()
    pieces = [event.text for _, event in await listening if isinstance(event, TextDelta)]
    assert pieces == ["one ", "two ", "three"]


async def _so_far(hub: BackgroundRunner, run_id: str) -> AsyncIterator[Event | Delta]:
    """What a new listener need not wait for."""
    listening = hub.subscribe(run_id)
    while True:
        try:
            async with asyncio.timeout(0.01):
                _, event = await anext(listening)
        except (TimeoutError, StopAsyncIteration):
            return
        yield event


async def test_a_hub_that_lets_go_leaves_its_runs_to_the_next() -> None:
    store, gate = MemoryStore(), asyncio.Event()

    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        await ctx.say("one")
        await gate.wait()
        await ctx.say("two")

    first, second = BackgroundRunner(Runner(slow, store=store)), BackgroundRunner(Runner(slow, store=store))
    run_id = await first.start("go")
    with pytest.raises(RunConflictError):
        await second.take_over(run_id)
    await first.release_all()
    assert [record.run_id for record in await second.runner.list_unfinished()] == [run_id]

    gate.set()
    await second.take_over(run_id)
    heard = [event for _, event in await _heard(second, run_id)]
    assert [event.text for event in heard if isinstance(event, AgentResponded)] == ["one", "two"]
    assert isinstance(heard[-1], RunCompleted)
    with pytest.raises(RunError):
        await first.take_over(run_id)


async def test_what_has_been_cancelled_meanwhile_is_not_picked_up() -> None:
    @agent("Silent")
    async def silent(ctx: AgentContext) -> None:
        await asyncio.Event().wait()

    hub = BackgroundRunner(Runner(silent, store="memory:"))
    run_id = await hub.runner.submit("go")
    await hub.runner.cancel(run_id)
    with pytest.raises(RunConflictError, match="it is cancelled"):
        await hub.take_over(run_id)


# --- subscribers


async def test_a_subscriber_drops_only_droppable_items_when_it_is_slow() -> None:
    subscriber = Subscriber[int](2, droppable=lambda item: item % 2 == 0)
    for item in (1, 3, 4, 5):
        subscriber.put(item)
    subscriber.close()
    subscriber.put(7)
    assert [item async for item in subscriber] == [1, 3, 5]


async def test_a_slow_subscriber_without_droppable_items_is_closed() -> None:
    broadcast = Broadcast[int]()
    slow, fast = Subscriber[int](2), Subscriber[int]()
    broadcast.subscribers |= {slow, fast}
    for item in (1, 2, 3):
        broadcast.publish(item)
    broadcast.close()
    assert slow.is_closed
    assert [item async for item in slow] == [1, 2]
    assert [item async for item in fast] == [1, 2, 3]


async def test_getting_an_item_can_time_out() -> None:
    subscriber = Subscriber[int]()
    with pytest.raises(TimeoutError):
        await subscriber.get(timeout=0.01)
    subscriber.put(1)
    assert await subscriber.get(timeout=5) == 1


async def test_recovery_takes_over_runs_without_a_worker() -> None:
    store, seen = MemoryStore(), list[str]()

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        seen.append(ctx.context)
        await ctx.say("done")

    background = BackgroundRunner(Runner(a, store=store))
    run_id = await background.runner.submit("go", owner="ada")
    background.start_recovery(lambda owner: f"context of {owner}")
    background.start_recovery()
    events = [event async for _, event in background.subscribe(run_id)]
    await background.close()
    assert isinstance(events[-1], RunCompleted)
    assert seen == ["context of ada"]
