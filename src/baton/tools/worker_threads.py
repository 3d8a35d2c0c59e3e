"""Run a function that may block in a worker thread, and go on without it when it must be.

Python cannot stop a thread. Ours are daemons and not those of a ThreadPoolExecutor, which both the event loop and
the interpreter wait for when they end: one function that hangs would then hang the whole program.
"""

import asyncio
import os
from collections.abc import Callable
from contextvars import copy_context
from logging import getLogger
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

GRACE_SECONDS = 5.0
"""How long a cancelled run waits for a function in a thread before it goes on without it."""

GIVE_UP = "baton: give up at once"
"""The message of a cancellation that does not wait: a tool's time is up, and the run has other things to do."""

_MOST_IDLE = 32

logger = getLogger("baton.tools")


class _Job(Generic[T]):
    """One call of a function on its way through a thread and back to the event loop."""

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self.name = name
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.given_up_at: float | None = None
        self._function = function
        self._context = copy_context()
        self._value: T
        self._error: BaseException | None = None

    def work(self) -> None:
        """Call the function, in the thread."""
        try:
            self._value = self._context.run(self._function)
        except BaseException as error:  # noqa: BLE001 - it is raised again by `result`, where the caller is
            self._error = error

    def report(self) -> None:
        """Tell the event loop, from the thread, that the work is done."""
        if self.given_up_at is not None:
            late = monotonic() - self.given_up_at
            logger.warning("tool `%s` came back %.1f s after it was given up; its result is lost", self.name, late)
            return
        try:
            self.done.get_loop().call_soon_threadsafe(self._finish)
        except RuntimeError:
            logger.warning("tool `%s` came back after its event loop had ended; its result is lost", self.name)

    def result(self) -> T:
        """What the function returned, or what it raised. Only when `done`."""
        if self._error is not None:
            raise self._error
        return self._value

    async def leave(self, seconds: float) -> None:
        """Wait a little longer, then give it up."""
        try:
            if seconds > 0:
                await asyncio.wait((self.done,), timeout=seconds)
        finally:
            if not self.done.done():
                self.given_up_at = monotonic()
                logger.warning("tool `%s` was given up, but its thread cannot be stopped and goes on", self.name)

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class _Worker(Thread):
    """A thread that does one job after the other, and ends when enough others are idle."""

    def __init__(self) -> None:
        super().__init__(name="baton-tool", daemon=True)
        self.jobs: SimpleQueue[_Job[object]] = SimpleQueue()

    def run(self) -> None:
        is_kept = True
        while is_kept:
            job = self.jobs.get()
            job.work()
            # Idle before it reports: whoever gets the report may want a thread at once.
            is_kept = len(_idle) < _MOST_IDLE
            if is_kept:
                _idle.append(self)
            job.report()
            del job


# There is no upper limit: a sync tool may itself run agents with sync tools, and a full pool would wait for itself.
_idle: list[_Worker] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)


def _start(job: _Job[T]) -> None:
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
        worker.start()
    worker.jobs.put(job)  # pyright: ignore[reportArgumentType]


async def in_thread(function: Callable[[], T], name: str, *, grace: float = GRACE_SECONDS) -> T:
    """What the function returns, called in a worker thread that sees the caller's context variables.

    Cancelled, it waits `grace` seconds for the function to end, and not at all if the cancellation says GIVE_UP.
    """
    job = _Job(function, name)
    _start(job)
    try:
        await asyncio.wait((job.done,))
    except asyncio.CancelledError as cancelled:
        await job.leave(0 if GIVE_UP in cancelled.args else grace)
        raise
    return job.result()
