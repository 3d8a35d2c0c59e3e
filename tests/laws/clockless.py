"""An event loop with virtual time: its clock advances only when no task can run.

Tests in it are deterministic and fast: timers do not depend on the speed of the machine, and no test waits for them.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from tests.laws.executions import TaskTracker

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """A selector that never blocks; it reports when the loop is idle, with the time until the next timer."""

    on_idle: Callable[[float | None], None]

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self.on_idle(timeout)
        return ready


class ClocklessLoop(asyncio.SelectorEventLoop):
    """The event loop. `rest` returns when all tasks wait, including those that wait for a timer."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.on_idle = self._on_idle
        self._now = 0.0
        self._waiters: list[asyncio.Future[None]] = []
        super().__init__(selector)

    def time(self) -> float:
        return self._now

    async def rest(self) -> None:
        """Wait until the loop is idle."""
        waiter = self.create_future()
        self._waiters.append(waiter)
        await waiter

    def _on_idle(self, timeout: float | None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if waiters:
            return
        if timeout is None:
            raise AssertionError(f"deadlock: {asyncio.all_tasks(self)}")
        self._now += timeout


def rest() -> Coroutine[Any, Any, None]:
    """Wait until all other tasks of this loop are waiting."""
    return cast("ClocklessLoop", asyncio.get_running_loop()).rest()


async def pass_time(seconds: float) -> None:
    """Let virtual time pass."""
    loop = asyncio.get_running_loop()
    has_passed = loop.create_future()
    loop.call_later(seconds, has_passed.set_result, None)
    await has_passed


def without_a_clock(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in such a loop; assert that no task is left and no exception is unhandled."""
    unhandled: list[dict[str, Any]] = []

    async def watched() -> T:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        loop.set_task_factory(started := TaskTracker())
        result = await work
        assert not (unfinished := started.unfinished()), f"still running: {unfinished}"
        return result

    with asyncio.Runner(loop_factory=ClocklessLoop) as runner:
        result = runner.run(watched())
    assert not unhandled, unhandled
    return result
