"""Runs in the background, with any number of subscribers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unfinished import list_unfinished

from batonkit import Agent, RunContext, Runner, agent, tool
from batonkit.agents import AgentContext
from batonkit.errors import AnswerError, ModelError, RunConflictError, SetupError, ShuttingDownError, ThreadBusyError
from batonkit.log import AgentResponded, Delta, Event, RunCancelled, RunCompleted, TextDelta, ToolReturned
from batonkit.models import RetryModel
from batonkit.runs import BackgroundRunner
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, ScriptedStream, call


@tool
async def ask_me(ctx: RunContext) -> str:
    return await ctx.interrupt("well?")


async def _collect(background: BackgroundRunner, run_id: str, *, after: int = 0) -> list[tuple[int, Event | Delta]]:
    return [item async for item in background.subscribe(run_id, after=after)]


async def test_every_subscriber_gets_every_event_once() -> None:
    gate = asyncio.Event()

    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        await ctx.say("one")
        await gate.wait()
        await ctx.say("two")

    background = BackgroundRunner(Runner(slow, store="memory:"))
    run_id = await background.start("go")
    early = asyncio.create_task(_collect(background, run_id))
    await asyncio.sleep(0)
    late = asyncio.create_task(_collect(background, run_id, after=3))
    await asyncio.sleep(0)
    gate.set()
    received, received_late = await early, await late

    recorded = await background.runner.runs.events(run_id)
    assert received == [*enumerate(recorded, 1)]
    assert received_late == received[3:]
    assert await _collect(background, run_id) == received, "a stopped run is read from the store"
    assert not background.is_driving(run_id)


async def test_subscribers_in_the_driving_process_get_deltas() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([ScriptedStream("a", gate, "b")])
    background = BackgroundRunner(Runner(Agent("A", model=model), store="memory:"))
    run_id = await background.start("go")
    subscription = asyncio.create_task(_collect(background, run_id))
    await asyncio.sleep(0)
    gate.set()

    received = await subscription

    assert "b" in [event.text for _, event in received if isinstance(event, TextDelta)]
    assert isinstance(received[-1][1], RunCompleted)


async def test_a_subscriber_that_leaves_does_not_stop_the_run() -> None:
    gate = asyncio.Event()

    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        await gate.wait()
        await ctx.say("done")

    background = BackgroundRunner(Runner(slow, store="memory:"))
    run_id = await background.start("go")
    async for _ in background.subscribe(run_id):
        break
    gate.set()
    assert [event.text for _, event in await _collect(background, run_id) if isinstance(event, AgentResponded)] == [
        "done"
    ]


async def test_an_interrupt_is_answered_by_another_background_runner() -> None:
    store = MemoryStore()

    def team(*steps: Any) -> Agent:
        return Agent("A", tools=[ask_me], model=ScriptedModel([*steps]))

    first = BackgroundRunner(Runner(team(call("ask_me")), store=store))
    run_id = await first.start("go", thread="t")
    await _collect(first, run_id)
    with pytest.raises(ThreadBusyError):
        await first.start("again", thread="t")

    other = BackgroundRunner(Runner(team("thank you"), store=store))
    with pytest.raises(AnswerError):
        await other.resume(run_id, {"unknown/ask1": 1})
    await other.resume(run_id, "fine")
    received = await _collect(other, run_id)

    assert isinstance(received[-1][1], RunCompleted)
    assert [number for number, event in received if isinstance(event, Event)] == [*range(1, len(received) + 1)]


async def test_a_run_is_cancelled_and_resumed() -> None:
    gate = asyncio.Event()

    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        await gate.wait()
        await ctx.say("done")

    background = BackgroundRunner(Runner(slow, store="memory:"))
    run_id = await background.start("go")
    assert await background.cancel(run_id) == "cancelled"
    gate.set()
    await background.resume(run_id)
    assert isinstance((await _collect(background, run_id))[-1][1], RunCompleted)


async def test_close_cancels_all_runs() -> None:
    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        await asyncio.Event().wait()

    background = BackgroundRunner(Runner(slow, store="memory:"))
    ids = [await background.start("go"), await background.start("go")]
    await background.close()
    records = [await background.runner._require_store("test").record(run_id) for run_id in ids]
    assert [record.status for record in records if record is not None] == ["cancelled", "cancelled"]


async def test_a_background_runner_needs_a_store() -> None:
    background = BackgroundRunner(Runner(Agent("A", model=ScriptedModel(["x"]))))
    with pytest.raises(SetupError, match="store"):
        await background.start("go")


async def test_a_resumed_run_is_running_in_the_store() -> None:
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
    subscription = asyncio.create_task(_collect(there, run_id))
    await asyncio.sleep(0)
    gate.set()
    assert isinstance((await subscription)[-1][1], RunCompleted)


async def test_a_late_subscriber_gets_the_deltas_of_the_current_response() -> None:
    gate = asyncio.Event()
    background = BackgroundRunner(
        Runner(Agent("A", model=ScriptedModel([ScriptedStream("one ", "two ", gate, "three")])), store="memory:")
    )
    run_id = await background.start("go")
    while not [item async for item in _available_items(background, run_id) if isinstance(item, TextDelta)]:
        await asyncio.sleep(0)
    subscription = asyncio.create_task(_collect(background, run_id))
    await asyncio.sleep(0)
    gate.set()
    texts = [event.text for _, event in await subscription if isinstance(event, TextDelta)]
    assert texts == ["one ", "two ", "three"]


async def _available_items(background: BackgroundRunner, run_id: str) -> AsyncIterator[Event | Delta]:
    """Yield the items that a new subscriber gets without waiting."""
    subscription = background.subscribe(run_id)
    while True:
        item = asyncio.ensure_future(anext(subscription))
        for _ in range(20):
            await asyncio.sleep(0)
        if not item.done():
            item.cancel()
            await asyncio.wait([item])
            return
        yield item.result()[1]


async def test_release_all_leaves_runs_to_other_workers() -> None:
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
    assert [record.run_id for record in await list_unfinished(second.runner)] == [run_id]

    gate.set()
    await second.take_over(run_id)
    received = [event for _, event in await _collect(second, run_id)]
    assert [event.text for event in received if isinstance(event, AgentResponded)] == ["one", "two"]
    assert isinstance(received[-1], RunCompleted)
    with pytest.raises(RunConflictError, match="it is completed"):
        await first.take_over(run_id)


async def test_drain_lets_turns_finish_and_leaves_runs_to_other_workers() -> None:
    store, started, gate, done = MemoryStore(), asyncio.Event(), asyncio.Event(), list[str]()

    @tool(effect="once")
    async def pay() -> str:
        started.set()
        await gate.wait()
        done.append("paid")
        return "paid"

    def make(*steps: Any) -> BackgroundRunner:
        return BackgroundRunner(Runner(Agent("A", tools=[pay], model=ScriptedModel([*steps])), store=store))

    first, second = make(call("pay"), "never"), make("thank you")
    run_id = await first.start("go", thread="t")
    await started.wait()
    draining = asyncio.create_task(first.drain(600))
    await asyncio.sleep(0)
    with pytest.raises(ShuttingDownError, match="shutting down"):
        await first.start("more")
    with pytest.raises(ShuttingDownError):
        await first.resume(run_id)
    assert first.is_driving(run_id)
    gate.set()
    await draining
    await first.drain()

    record = await store.record(run_id)
    assert record is not None
    assert record.status == "running"
    assert isinstance((await first.runner.runs.events(run_id))[-1], ToolReturned), (
        "the turn is stored, and nothing after it"
    )
    assert [each.run_id for each in await list_unfinished(second.runner)] == [run_id]
    await second.take_over(run_id)
    received = [event for _, event in await _collect(second, run_id)]
    assert isinstance(received[-1], RunCompleted)
    assert done == ["paid"]


async def test_drain_releases_turns_that_do_not_finish_in_time() -> None:
    store = MemoryStore()

    @agent("Silent")
    async def silent(ctx: AgentContext) -> None:
        await asyncio.Event().wait()

    first, second = BackgroundRunner(Runner(silent, store=store)), BackgroundRunner(Runner(silent, store=store))
    run_id = await first.start("go")
    await first.drain(0.01)
    assert [record.run_id for record in await list_unfinished(second.runner)] == [run_id]
    first.start_recovery()
    with pytest.raises(ShuttingDownError):
        await first.take_over(run_id)


async def test_drain_releases_a_run_that_is_just_being_created() -> None:
    creating, gate = asyncio.Event(), asyncio.Event()

    class SlowStore(MemoryStore):
        async def create(self, *args: Any, **options: Any) -> Any:
            creating.set()
            await gate.wait()
            return await super().create(*args, **options)

    @agent("Silent")
    async def silent(ctx: AgentContext) -> None:
        await asyncio.Event().wait()

    background = BackgroundRunner(Runner(silent, store=SlowStore()))
    starting = asyncio.create_task(background.start("go"))
    await creating.wait()
    draining = asyncio.create_task(background.drain(0.01))
    await asyncio.sleep(0)
    gate.set()
    await draining
    assert [record.run_id for record in await list_unfinished(background.runner)] == [await starting]


async def test_a_requested_cancellation_wins_over_drain() -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        started.set()
        await gate.wait()
        return "done"

    model = ScriptedModel([call("work"), "never"])
    background = BackgroundRunner(Runner(Agent("A", tools=[work], model=model), store="memory:"))
    run_id = await background.start("go")
    await started.wait()
    await background.cancel(run_id, "after_turn")
    draining = asyncio.create_task(background.drain(600))
    await asyncio.sleep(0)
    gate.set()
    await draining
    assert isinstance((await background.runner.runs.events(run_id))[-1], RunCancelled)


async def test_a_run_that_was_cancelled_meanwhile_is_not_taken_over() -> None:
    @agent("Silent")
    async def silent(ctx: AgentContext) -> None:
        await asyncio.Event().wait()

    background = BackgroundRunner(Runner(silent, store="memory:"))
    run_id = await background.runner.submit("go")
    await background.runner.runs.cancel(run_id)
    with pytest.raises(RunConflictError, match="it is cancelled"):
        await background.take_over(run_id)


async def test_recovery_takes_over_runs_without_a_worker() -> None:
    store, seen = MemoryStore(), list[str]()

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        seen.append(ctx.context)
        await ctx.say("done")

    background = BackgroundRunner(Runner(a, store=store, context_factory=lambda run: f"context of {run.owner}"))
    run_id = await background.runner.submit("go", owner="ada")
    background.start_recovery()
    background.start_recovery()
    events = [event async for _, event in background.subscribe(run_id)]
    await background.close()
    assert isinstance(events[-1], RunCompleted)
    assert seen == ["context of ada"]


async def test_a_late_subscriber_does_not_get_deltas_of_a_discarded_response() -> None:
    gate = asyncio.Event()
    steps = [ScriptedStream("bad ", ModelError("broken", retryable=True)), ScriptedStream("good ", gate, "end")]
    model = RetryModel(ScriptedModel(steps), initial_delay=0, after_output=True)
    background = BackgroundRunner(Runner(Agent("A", model=model), store="memory:"))
    run_id = await background.start("go")

    async def texts_so_far() -> list[str]:
        return [item.text async for item in _available_items(background, run_id) if isinstance(item, TextDelta)]

    while "good " not in await texts_so_far():
        await asyncio.sleep(0)
    assert await texts_so_far() == ["good "]
    gate.set()
    assert isinstance((await _collect(background, run_id))[-1][1], RunCompleted)
