"""Concurrent callbacks: all of them finish before the caller continues, and the first error is raised."""

import asyncio
from typing import Any

import pytest

from batonkit.agents.hooks import gather_callbacks, maybe_await


class CustomAwaitable:
    """An awaitable that is not a coroutine."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        return self.value


async def return_later(value: Any) -> Any:
    """Return the value in the next iteration of the event loop."""
    await asyncio.sleep(0)
    return value


class WaitingCallback:
    """A callback that waits until it is cancelled and records its cleanup."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.ended: list[str] = []

    async def run(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # The caller waits for this cleanup.
            await asyncio.sleep(0)
            self.ended.append("cleaned up")
            raise


@pytest.mark.parametrize("value", [None, 0, "text", [], {"a": 1}, (1, 2), object])
async def test_a_plain_value_is_returned_unchanged(value: Any) -> None:
    # Sync
    assert await maybe_await(value) is value


async def test_every_awaitable_is_awaited() -> None:
    # Async
    future = asyncio.get_running_loop().create_future()
    future.set_result("future")
    task = asyncio.create_task(return_later("task"))
    assert [await maybe_await(each) for each in (return_later(1), CustomAwaitable(2), future, task)] == [
        1,
        2,
        "future",
        "task",
    ]


@pytest.mark.parametrize("awaitable_count", [0, 1, 2, 3])
async def test_results_of_values_and_awaitables_are_in_order(awaitable_count: int) -> None:
    # Sync and async callbacks together.
    values = [return_later(number) if number < awaitable_count else number for number in range(4)]
    assert await gather_callbacks(*values) == [0, 1, 2, 3]


async def test_no_callbacks_give_an_empty_list() -> None:
    assert await gather_callbacks() == []


async def test_callbacks_run_concurrently() -> None:
    # None would finish if they ran one after another.
    barrier = asyncio.Barrier(3)
    assert sorted(await gather_callbacks(*[barrier.wait() for _ in range(3)])) == [0, 1, 2]


async def test_the_first_error_is_raised_and_the_others_are_cancelled_and_awaited() -> None:
    callbacks = [WaitingCallback(), WaitingCallback()]

    async def fail() -> None:
        for callback in callbacks:
            await callback.started.wait()
        raise LookupError("first")

    with pytest.raises(LookupError, match="first"):
        await gather_callbacks(callbacks[0].run(), fail(), callbacks[1].run())
    assert [callback.ended for callback in callbacks] == [["cleaned up"], ["cleaned up"]]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_error_is_raised_after_other_callbacks_have_finished() -> None:
    async def fail() -> None:
        raise LookupError("it")

    with pytest.raises(LookupError, match="it"):
        await gather_callbacks(return_later(1), fail(), 2)


async def test_cancelling_the_caller_cancels_all_callbacks() -> None:
    callbacks = [WaitingCallback(), WaitingCallback()]
    task = asyncio.create_task(gather_callbacks(*[callback.run() for callback in callbacks]))
    for callback in callbacks:
        await callback.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [callback.ended for callback in callbacks] == [["cleaned up"], ["cleaned up"]]
