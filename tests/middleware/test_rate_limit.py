"""`RateLimit`."""

import asyncio
from typing import Any

import pytest

from batonkit import Agent, Runner, SetupError
from batonkit.messages import Usage
from batonkit.middleware import RateLimit
from batonkit.testing import ScriptedModel, say


class Clock:
    """A clock that tests move; those who sleep wake up in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sleepers.append((self.now + seconds, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        await settle()
        self.now += seconds
        while due := [sleeper for sleeper in self.sleepers if sleeper[0] <= self.now]:
            for sleeper in due:
                self.sleepers.remove(sleeper)
                if not sleeper[1].done():
                    sleeper[1].set_result(None)
            await settle()


async def settle() -> None:
    """Let all tasks run until they wait."""
    for _ in range(50):
        await asyncio.sleep(0)


class Desk:
    """A runner with a rate limit and a clock, and the order in which its runs were answered."""

    def __init__(self, usage: Usage | None = None, **limits: Any) -> None:
        self.clock = Clock()
        self.limit = RateLimit(**limits, clock=self.clock, sleep=self.clock.sleep)
        model = ScriptedModel([say("ok", usage=usage)], cycle=True)
        self.runner = Runner(Agent("A", model=model, middleware=[self.limit]))
        self.answered: list[str] = []

    def ask(self, name: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._ask(name))

    async def _ask(self, name: str) -> None:
        await self.runner.run(name)
        self.answered.append(name)


async def test_calls_beyond_the_limit_wait_until_the_minute_is_over() -> None:
    desk = Desk(per_minute=2)
    tasks = [desk.ask(name) for name in "abcde"]
    await settle()
    assert desk.answered == ["a", "b"]
    # Only the first of those that wait sleeps: there is no busy waiting.
    assert [at for at, _ in desk.clock.sleepers] == [60.0]
    await desk.clock.advance(59)
    assert desk.answered == ["a", "b"]
    await desk.clock.advance(1)
    assert desk.answered == ["a", "b", "c", "d"]
    await desk.clock.advance(60)
    assert desk.answered == ["a", "b", "c", "d", "e"]
    await asyncio.gather(*tasks)


async def test_the_limit_holds_for_any_sixty_seconds() -> None:
    desk = Desk(per_minute=2)
    first = desk.ask("a")
    await settle()
    await desk.clock.advance(50)
    second = desk.ask("b")
    third = desk.ask("c")
    await desk.clock.advance(10)
    assert desk.answered == ["a", "b", "c"]
    fourth = desk.ask("d")
    await settle()
    await desk.clock.advance(49)
    assert desk.answered == ["a", "b", "c"]
    await desk.clock.advance(1)
    assert desk.answered == ["a", "b", "c", "d"]
    await asyncio.gather(first, second, third, fourth)


async def test_a_cancelled_call_gives_up_its_place() -> None:
    desk = Desk(per_minute=1)
    tasks = [desk.ask(name) for name in "abcd"]
    await settle()
    for cancelled in tasks[1:3]:
        cancelled.cancel()
    await settle()
    await desk.clock.advance(60)
    assert desk.answered == ["a", "d"]
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_tokens_are_estimated_before_and_counted_after_a_call() -> None:
    desk = Desk(Usage(input_tokens=900, output_tokens=50), tokens_per_minute=1000)
    tasks = [desk.ask("a"), desk.ask("x" * 400)]
    await settle()
    # The estimate of the second, 100 tokens, does not fit beside the 950 that the first has used.
    assert desk.answered == ["a"]
    await desk.clock.advance(60)
    assert len(desk.answered) == 2
    await asyncio.gather(*tasks)


async def test_a_call_longer_than_the_limit_waits_for_all_others_and_is_made() -> None:
    desk = Desk(Usage(5), tokens_per_minute=100)
    tasks = [desk.ask("a"), desk.ask("x" * 4000)]
    await settle()
    assert desk.answered == ["a"]
    await desk.clock.advance(60)
    assert len(desk.answered) == 2
    await asyncio.gather(*tasks)


def test_runs_in_other_threads_and_loops_share_the_limit() -> None:
    now = [0.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    limit = RateLimit(per_minute=1, clock=lambda: now[0], sleep=sleep)
    runner = Runner(Agent("A", model=ScriptedModel(["ok"], cycle=True), middleware=[limit]))
    for _ in range(3):
        runner.run_sync("Hi")
    assert now == [120.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "limits nothing; give per_minute"),
        ({"per_minute": 0}, "give more than 0"),
        ({"tokens_per_minute": -1}, "give more than 0"),
    ],
)
def test_wrong_limits_say_what_to_give(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        RateLimit(**options)
