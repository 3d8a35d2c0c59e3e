"""An event loop in which time passes only when there is nothing else to do, and which knows when that is so.

Work in it is the same every time: no timer fires because the machine was slow, and nobody has to wait for one.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from tests.laws.play import OwnTasks

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Asks nobody to wait: it tells when all the work there is has been done, and until when there is none."""

    on_rest: Callable[[float | None], None]

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self.on_rest(timeout)
        return ready


class ClocklessLoop(asyncio.SelectorEventLoop):
    """The loop. `rest` returns when everybody waits for something, be it only for time to pass."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.on_rest = self._on_rest
        self._now = 0.0
        self._resting: list[asyncio.Future[None]] = []
        super().__init__(selector)

    def time(self) -> float:
        return self._now

    async def rest(self) -> None:
        """Return when nothing more happens by itself."""
        waiting = self.create_future()
        self._resting.append(waiting)
        await waiting

    def _on_rest(self, timeout: float | None) -> None:
        resting, self._resting = self._resting, []
        for waiting in resting:
            if not waiting.done():
                waiting.set_result(None)
        if resting:
            return
        if timeout is None:
            raise AssertionError(f"all wait for one another: {asyncio.all_tasks(self)}")
        self._now += timeout


def rest() -> Coroutine[Any, Any, None]:
    """Return when everybody in this loop waits for something."""
    return cast("ClocklessLoop", asyncio.get_running_loop()).rest()


def without_a_clock(work: Coroutine[Any, Any, T]) -> T:
    """What the work gives, in such a loop, in which nothing is left running and nothing goes unnoticed."""
    unnoticed: list[dict[str, Any]] = []

    async def watched() -> T:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unnoticed.append(context))
        loop.set_task_factory(started := OwnTasks())
        given = await work
        left = started.tasks & asyncio.all_tasks()
        assert not left, f"still running: {left}"
        return given

    with asyncio.Runner(loop_factory=ClocklessLoop) as runner:
        given = runner.run(watched())
    assert not unnoticed, unnoticed
    return given
