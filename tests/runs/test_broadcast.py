"""Subscribers: slow readers, batches and silence."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from tests.loop_clock import FrozenLoopClock
from tests.waiting import forever

from batonkit.runs.background.broadcast import Broadcast, Subscriber, iter_batches


async def read_all(subscriber: Subscriber[int]) -> list[int]:
    items: list[int] = []
    while (taken := await subscriber.take()) is not None:
        items += taken
    return items


async def test_a_subscriber_drops_only_droppable_items_when_it_is_slow() -> None:
    subscriber = Subscriber[int](2, droppable=lambda item: item % 2 == 0)
    for item in (1, 3, 4, 5):
        subscriber.put(item)
    subscriber.close()
    subscriber.put(7)
    assert await read_all(subscriber) == [1, 3, 5]


async def test_a_slow_subscriber_without_droppable_items_is_closed() -> None:
    broadcast = Broadcast[int]()
    slow, fast = Subscriber[int](2), Subscriber[int]()
    broadcast.subscribers |= {slow, fast}
    for item in (1, 2, 3):
        broadcast.publish(item)
    broadcast.close()
    assert slow.is_closed
    assert await read_all(slow) == [1, 2]
    assert await read_all(fast) == [1, 2, 3]


async def test_all_queued_items_are_taken_at_once() -> None:
    subscriber = Subscriber[int]()
    subscriber.put(1)
    subscriber.put(2)
    assert await subscriber.take() == [1, 2]
    waiting = asyncio.create_task(subscriber.take())
    await asyncio.sleep(0)
    subscriber.put(3)
    assert await waiting == [3]


async def test_each_silence_gives_an_empty_batch_and_items_end_it() -> None:
    subscriber = Subscriber[int]()
    assert await subscriber.take(silence=0.01) == []
    assert await subscriber.take(silence=0.01) == []
    subscriber.put(1)
    assert await subscriber.take(silence=60) == [1]
    waiting = asyncio.create_task(subscriber.take(silence=60))
    await asyncio.sleep(0)
    subscriber.put(2)
    assert await waiting == [2]
    subscriber.stop_timer()


async def test_an_item_delays_the_next_silence() -> None:
    clock, subscriber = FrozenLoopClock(), Subscriber[int]()
    first = asyncio.create_task(subscriber.take(silence=60))
    await asyncio.sleep(0)
    clock.advance(30)
    subscriber.put(1)
    assert await first == [1]
    second = asyncio.create_task(subscriber.take(silence=60))
    for _ in range(3):
        # The timer of the first wait fires in between, and is set again.
        await asyncio.sleep(0)
        clock.advance(15)
    await asyncio.sleep(0)
    assert not second.done()
    clock.advance(15)
    assert await second == []


async def test_a_source_is_closed_with_its_batches() -> None:
    closed = asyncio.Event()

    async def source() -> AsyncGenerator[int]:
        try:
            yield 1
            await forever()
        finally:
            closed.set()

    batches = iter_batches(source(), 0.01)
    assert await anext(batches) == (1,)
    assert await anext(batches) == ()
    await batches.aclose()
    assert closed.is_set()


async def test_the_error_of_a_source_is_raised() -> None:
    async def source() -> AsyncGenerator[int]:
        yield 1
        raise ValueError("broken")

    batches = iter_batches(source(), None)
    assert await anext(batches) == (1,)
    with pytest.raises(ValueError, match="broken"):
        await anext(batches)
