"""Events and deltas across processes, through the channel of a PostgreSQL store."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from batonkit import Agent, Runner, agent
from batonkit.agents import AgentContext
from batonkit.log import Delta, Event, RunCompleted, TextDelta
from batonkit.runs import BackgroundRunner
from batonkit.stores import PostgresStore
from batonkit.testing import ScriptedModel, ScriptedStream

LIMIT = 60


class CountingStore(PostgresStore):
    """A PostgreSQL store that counts the messages that it sends; a store of its own stands for another process."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.sent: list[str] = []

    async def publish(self, messages: Sequence[str]) -> None:
        self.sent += messages
        await super().publish(messages)


def text_of(items: Sequence[tuple[int, Event | Delta]]) -> str:
    return "".join(item.text for _, item in items if isinstance(item, TextDelta))


async def start_listening(runner: Runner[Any, Any]) -> None:
    """Let a runner listen to the channel, as a worker does once it has driven a run."""
    channel = runner._repository.relay
    channel.start()
    while not channel.is_live:
        await asyncio.sleep(0.01)


async def test_deltas_reach_a_subscriber_in_another_process(postgres_url: str) -> None:
    gate, more = asyncio.Event(), asyncio.Event()
    pieces = [f"{number} " for number in range(300)]
    model = ScriptedModel([ScriptedStream(*pieces[:5], gate, *pieces[5:], more, "end")])
    driving, watching = CountingStore(postgres_url), CountingStore(postgres_url)
    driver = Runner(Agent("A", model=model), store=driving)
    replica = BackgroundRunner(Runner(Agent("A"), store=watching))
    seen: list[tuple[int, Event | Delta]] = []

    async def subscribe() -> None:
        async for item in replica.subscribe("r"):
            seen.append(item)
            if "4 " in text_of(seen):
                gate.set()
            if "299 " in text_of(seen):
                more.set()

    async with asyncio.timeout(LIMIT):
        await start_listening(driver)
        await driver.submit("go", run_id="r")
        driven = asyncio.create_task(driver.runs.drive("r"))
        # In the middle of the response.
        while not driver._repository.relay._partial:
            await asyncio.sleep(0.01)
        subscriber = asyncio.create_task(subscribe())
        assert (await driven).status == "completed"
        await subscriber
    assert text_of(seen).startswith("".join(pieces))
    deltas = [(number, item) for number, item in seen if isinstance(item, Delta)]
    assert len(deltas) < 30
    assert {number for number, _ in deltas} == {2}
    events = [number for number, item in seen if isinstance(item, Event)]
    assert events == [*range(1, len(events) + 1)]
    assert isinstance(seen[-1][1], RunCompleted)
    assert max(len(message.encode()) for message in driving.sent) < 8000
    await driver.close()
    await replica.runner.close()


async def test_a_driver_that_begins_to_listen_asks_who_watches(postgres_url: str) -> None:
    watcher, driver = (Runner(Agent("A"), store=PostgresStore(postgres_url)) for _ in range(2))
    await driver.submit("go", run_id="r")

    async def watch() -> None:
        async for _ in watcher.runs.watch("r", after=1):
            pass

    watching = asyncio.create_task(watch())
    async with asyncio.timeout(LIMIT):
        await start_listening(watcher)
        await start_listening(driver)
        found = driver._repository.relay
        while "r" not in found._interest:
            await asyncio.sleep(0.01)
    watching.cancel()
    await asyncio.wait([watching])
    await driver.close()
    await watcher.close()


async def test_nothing_is_sent_for_a_run_that_no_one_watches(postgres_url: str) -> None:
    store = CountingStore(postgres_url)
    runner = Runner(Agent("A", model=ScriptedModel([ScriptedStream("one ", "two")])), store=store)
    await start_listening(runner)
    sent = [*store.sent]
    await runner.submit("go", run_id="r")
    assert (await runner.runs.drive("r")).status == "completed"
    assert store.sent == sent
    await runner.close()


async def test_a_watcher_reads_events_although_the_channel_is_lost(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Polling is the fallback.
    def broken(store: PostgresStore) -> Any:
        raise OSError("no channel")

    monkeypatch.setattr(PostgresStore, "listen", broken)
    gate = asyncio.Event()

    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        await ctx.say("one")
        await gate.wait()
        await ctx.say("two")

    driver, watcher = (Runner(slow, store=PostgresStore(postgres_url)) for _ in range(2))
    await driver.submit("go", run_id="r")
    driven = asyncio.create_task(driver.runs.drive("r"))
    seen: list[Event] = []
    async with asyncio.timeout(LIMIT):
        async for _, event in watcher.runs.watch("r"):
            seen.append(event)
            gate.set()
        await driven
    assert isinstance(seen[-1], RunCompleted)
    await driver.close()
    await watcher.close()
