"""Several callbacks at once: all of them end before anything goes on, and the first failure is the one raised."""

import asyncio
from typing import Any

import pytest

from baton.agents.hooks import gather_callbacks, maybe_await


class Later:
    """Something to wait for that is no coroutine."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        return self.value


async def soon(value: Any) -> Any:
    """The value, in a while."""
    await asyncio.sleep(0)
    return value


class Sleeper:
    """Waits for ever, and notes how it ends."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended: list[str] = []

    async def sleep(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # Tidying up takes a while; it is waited for.
            await asyncio.sleep(0)
            self.ended.append("tidied up")
            raise


@pytest.mark.parametrize("value", [None, 0, "text", [], {"a": 1}, (1, 2), object])
async def test_a_value_is_settled_as_it_is(value: Any) -> None:
    # H12: sync
    assert await maybe_await(value) is value


async def test_whatever_can_be_awaited_is_awaited() -> None:
    # H12: async
    future = asyncio.get_running_loop().create_future()
    future.set_result("future")
    task = asyncio.create_task(soon("task"))
    assert [await maybe_await(each) for each in (soon(1), Later(2), future, task)] == [1, 2, "future", "task"]


@pytest.mark.parametrize("waiting", [0, 1, 2, 3])
async def test_values_and_awaitables_come_back_in_order(waiting: int) -> None:
    # H12: sync and async in one point.
    values = [soon(number) if number < waiting else number for number in range(4)]
    assert await gather_callbacks(*values) == [0, 1, 2, 3]


async def test_nothing_together_is_nothing() -> None:
    assert await gather_callbacks() == []


async def test_all_run_at_once() -> None:
    # H7, H12: none of them would end if they ran one after the other.
    meeting = asyncio.Barrier(3)
    assert sorted(await gather_callbacks(*[meeting.wait() for _ in range(3)])) == [0, 1, 2]


async def test_the_first_failure_is_raised_and_the_others_are_cancelled_and_awaited() -> None:
    # H7
    sleepers = [Sleeper(), Sleeper()]

    async def fail() -> None:
        for sleeper in sleepers:
            await sleeper.begun.wait()
        raise LookupError("first")

    with pytest.raises(LookupError, match="first"):
        await gather_callbacks(sleepers[0].sleep(), fail(), sleepers[1].sleep())
    assert [sleeper.ended for sleeper in sleepers] == [["tidied up"], ["tidied up"]]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_had_ended_before_the_failure_does_not_hide_it() -> None:
    # H7
    async def fail() -> None:
        raise LookupError("it")

    with pytest.raises(LookupError, match="it"):
        await gather_callbacks(soon(1), fail(), 2)


async def test_whoever_is_cancelled_takes_all_of_them_along() -> None:
    # H7, D10
    sleepers = [Sleeper(), Sleeper()]
    task = asyncio.create_task(gather_callbacks(*[sleeper.sleep() for sleeper in sleepers]))
    for sleeper in sleepers:
        await sleeper.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [sleeper.ended for sleeper in sleepers] == [["tidied up"], ["tidied up"]]
