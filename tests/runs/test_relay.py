"""Events and deltas across processes, through the channel of a store."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from tests.waiting import PATIENCE, until

from batonkit import Agent, Runner, tool
from batonkit.log import Origin, ProgressDelta, TextDelta
from batonkit.messages import UserMessage
from batonkit.models import Chunk, ModelRequest, ModelResponse, TextChunk, ToolCallChunk
from batonkit.runs import BackgroundRunner
from batonkit.runs.background import relay
from batonkit.stores import MemoryStore, SupportsChannel
from batonkit.testing import ScriptedModel


def test_messages_fit_into_a_notification() -> None:
    origin = Origin("1", "A", None)
    long = [
        (2, TextDelta(origin, "日本" * 5000)),
        (2, ProgressDelta(origin, "x" * 9000)),
        (2, TextDelta(origin, "end")),
    ]
    parts = relay._pack("r", long)
    assert all(sum(len(bytes(delta)) for _, delta in part) < 7900 for part in parts)
    assert b"end" in bytes(parts[-1][-1][1])
    many = relay._split({f"run-{number}" * 10: number for number in range(1000)})
    assert sum(map(len, many)) == 1000
    assert all(len(str(part)) < 7900 for part in many)


async def test_stores_without_a_channel_are_polled() -> None:
    assert not isinstance(MemoryStore(), SupportsChannel)
    runner = Runner(Agent("A", model=ScriptedModel(["hello"])), store="memory:")
    await runner.run("go", run_id="r")
    assert [number async for number, _ in runner.runs.watch("r", after=4)] == [5]


class ChannelStore(MemoryStore):
    """A memory store with a channel: runners that share it see each other as other processes."""

    def __init__(self) -> None:
        super().__init__()
        self.published: list[str] = []
        self.listeners: list[asyncio.Queue[str]] = []

    async def publish(self, messages: Sequence[str]) -> None:
        self.published += messages
        for listener in self.listeners:
            for message in messages:
                listener.put_nowait(message)

    async def listen(self) -> AsyncIterator[str]:
        listener: asyncio.Queue[str] = asyncio.Queue()
        self.listeners.append(listener)
        yield ""
        while True:
            yield await listener.get()


class Hesitant:
    """A model that calls `look`, and then says a word and waits before it ends its answer."""

    name = "hesitant"

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        if isinstance(request.messages[-1], UserMessage) and len(request.messages) == 1:
            yield ToolCallChunk(0, "c1", "look", "{}")
        else:
            yield TextChunk("Well")
            await self.goes_on.wait()
        yield ModelResponse(stop_reason="stop")


async def test_watchers_in_other_processes_receive_deltas_after_a_message_that_steered_the_run() -> None:
    is_looking = asyncio.Event()
    may_return = asyncio.Event()

    @tool
    async def look() -> str:
        """Look."""
        is_looking.set()
        await may_return.wait()
        return "seen"

    store = ChannelStore()
    model = Hesitant()
    desk = Agent("Desk", model=model, tools=[look])
    background = BackgroundRunner(Runner(desk, store=store))
    elsewhere = Runner(desk, store=store)

    async def watch() -> list[str]:
        deltas: list[str] = []
        async for _, item in elsewhere.runs.watch("r", deltas=True):
            if isinstance(item, TextDelta):
                deltas.append(item.text)
                model.goes_on.set()
        return deltas

    await background.start("go", thread="t", run_id="r")
    await is_looking.wait()
    watching = asyncio.create_task(watch())
    await background.start("hurry", thread="t", when_busy="steer")
    may_return.set()
    try:
        async with asyncio.timeout(PATIENCE):
            assert await watching == ["Well"]
    finally:
        model.goes_on.set()
        await background.close()
        await background.runner.close()
        await elsewhere.close()


async def test_a_relay_that_closes_sends_what_it_has_and_nothing_afterwards() -> None:
    store = ChannelStore()
    driving = relay.RunRelay(store)
    watching = relay.RunRelay(store)
    driving.start()
    driving.drive("r", 1)
    with watching.watching("r"):
        await until(lambda: driving.is_watched("r"))
        driving.stored("r", 2)
        await driving.close()
        assert any('"stored":{"r":2}' in message for message in store.published)
        assert driving._flush_timer is None
    await watching.close()
