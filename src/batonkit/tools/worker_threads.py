"""Worker threads for blocking functions that can be abandoned.

Python cannot stop a thread. These are daemon threads instead of a ThreadPoolExecutor, which the event loop and the
interpreter wait for at exit: one function that hangs would then hang the whole program.
"""

import asyncio
import os
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from logging import getLogger
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

GRACE_SECONDS = 5.0
"""Seconds that a cancelled run waits for a function in a thread before it abandons it."""

GIVE_UP = "baton: give up at once"
"""Cancellation message of a tool timeout: abandon the function at once."""

_MAX_IDLE = 32

_logger = getLogger("baton.tools")


CHECK_BEFORE_CALL: ContextVar[Callable[[], None] | None] = ContextVar("baton_check_before_call", default=None)
"""A check that runs in the worker thread right before the function; it raises if the call must not happen."""


def _call_checked(function: Callable[[], T]) -> T:
    check = CHECK_BEFORE_CALL.get()
    if check is not None:
        check()
    return function()


class _Job(Generic[T]):
    """One call of a function in a worker thread."""

    __slots__ = ("_context", "_error", "_function", "_loop", "_value", "abandoned_at", "done", "is_finished", "name")

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self.name = name
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self.is_finished = False
        """True once the event loop knows that the function has ended."""
        self.abandoned_at: float | None = None
        self._function = function
        self._context = copy_context()
        self._value: T
        self._error: BaseException | None = None

    def work(self) -> None:
        """Call the function; runs in the thread."""
        try:
            self._value = self._context.run(_call_checked, self._function)
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self._error = error

    def report(self) -> None:
        """Notify the event loop that the work is done; runs in the thread."""
        if self.abandoned_at is not None:
            late = monotonic() - self.abandoned_at
            _logger.warning("tool `%s` finished %.1f s after it was abandoned; its result is lost", self.name, late)
            return
        try:
            self._loop.call_soon_threadsafe(self._finish)
        except RuntimeError:
            _logger.warning("tool `%s` finished after its event loop was closed; its result is lost", self.name)

    def result(self) -> T:
        """Return or raise the outcome, once `done`."""
        if self._error is not None:
            raise self._error
        return self._value

    async def abandon(self, seconds: float) -> None:
        """Wait for up to so many seconds, then abandon the job."""
        try:
            if seconds > 0 and not self.is_finished:
                # The future was cancelled together with the task that waited for it.
                self.done = self._loop.create_future()
                await asyncio.wait((self.done,), timeout=seconds)
        finally:
            if not self.is_finished:
                self.abandoned_at = monotonic()
                _logger.warning(
                    "tool `%s` was abandoned, but its thread cannot be stopped and keeps running", self.name
                )

    def _finish(self) -> None:
        self.is_finished = True
        if not self.done.done():
            self.done.set_result(None)


class _Worker(Thread):
    """A thread that runs jobs one after the other, and ends when enough others are idle."""

    def __init__(self) -> None:
        super().__init__(name="baton-tool", daemon=True)
        self.jobs: SimpleQueue[_Job[object]] = SimpleQueue()

    def run(self) -> None:
        stays = True
        while stays:
            job = self.jobs.get()
            job.work()
            # Idle before it reports: the receiver of the report may need a thread at once.
            stays = len(_idle) < _MAX_IDLE
            if stays:
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
    """Call a function in a worker thread that sees the caller's context variables."""
    job = _Job(function, name)
    _start(job)
    try:
        await job.done
    except asyncio.CancelledError as cancelled:
        await job.abandon(0 if GIVE_UP in cancelled.args else grace)
        raise
    return job.result()
