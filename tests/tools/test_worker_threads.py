"""Sync functions in worker threads. Nothing here sleeps: events say when to go on."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from tests.loop_clock import FrozenLoopClock
from tests.waiting import until

from batonkit.context import RunContext
from batonkit.messages import text_of
from batonkit.tools import ToolResult, tool, worker_threads
from batonkit.tools.worker_threads import in_thread

Ctx = RunContext[Any]
tenant: ContextVar[str] = ContextVar("tenant")


class Blocking:
    """A function that stays in its thread until it is let go."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.has_started = asyncio.Event()
        self.may_end = threading.Event()
        self.has_ended = False

    def __call__(self) -> str:
        self._loop.call_soon_threadsafe(self.has_started.set)
        self.may_end.wait()
        self.has_ended = True
        return "late"


@pytest.fixture
async def blocking() -> Any:
    blocked = Blocking()
    yield blocked
    blocked.may_end.set()


class Records(logging.Handler):
    """Keeps warnings, also those that come from a thread."""

    def __init__(self) -> None:
        super().__init__()
        self._messages: list[str] = []

    def about(self, name: str) -> list[str]:
        """Return the warnings about a tool; threads that other tests left behind may warn as well."""
        return [message for message in self._messages if f"`{name}`" in message]

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())


@pytest.fixture
def records() -> Iterator[Records]:
    handler = Records()
    logger = logging.getLogger("baton.tools")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def test_a_sync_function_runs_in_a_thread_unless_told_not_to(ctx: Ctx) -> None:
    def where() -> int:
        return threading.get_ident()

    here = str(threading.get_ident())
    assert text_of((await tool(where).call(ctx, "")).content) != here
    assert text_of((await tool(where, in_thread=False).call(ctx, "")).content) == here


async def test_sync_functions_run_at_the_same_time(ctx: Ctx) -> None:
    meeting = threading.Barrier(3)

    def meet() -> int:
        return meeting.wait(60)

    met = await asyncio.gather(*(tool(meet).call(ctx, "") for _ in range(3)))
    assert sorted(text_of(outcome.content) for outcome in met) == ["0", "1", "2"]


async def test_one_thread_serves_one_call_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    class CountedWorker(worker_threads._Worker):
        def start(self) -> None:
            started.append(self.name)
            super().start()

    monkeypatch.setattr(worker_threads, "_Worker", CountedWorker)
    monkeypatch.setattr(worker_threads, "_idle", [])
    for _ in range(10):
        await in_thread(threading.get_ident, "where")
    assert len(started) <= 1  # None if a thread that another test left behind has come back.


async def test_the_thread_sees_context_variables(ctx: Ctx) -> None:
    def read() -> str:
        seen = tenant.get()
        tenant.set("changed in the thread only")
        return seen

    tenant.set("acme")
    assert await tool(read).call(ctx, "") == ToolResult("acme")
    assert tenant.get() == "acme"


async def test_stop_iteration_does_not_hang_the_run(ctx: Ctx) -> None:
    # A future does not accept this exception, so awaiting it would hang.
    def empty() -> int:
        return next(iter([]))

    assert (await tool(empty).call(ctx, "")).is_error


async def let_cancellation_arrive() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_cancelled_run_waits_for_the_function(blocking: Blocking, ctx: Ctx) -> None:
    # Nothing is left running.
    FrozenLoopClock()  # No time passes: the function is not late.
    running = asyncio.create_task(tool(blocking, name="block").call(ctx, ""))
    await blocking.has_started.wait()
    running.cancel()
    await let_cancellation_arrive()
    assert not running.done()
    blocking.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert blocking.has_ended


async def test_a_cancelled_run_does_not_wait_for_ever(blocking: Blocking, records: Records) -> None:
    running = asyncio.create_task(in_thread(blocking, "too late", grace=0.01))
    await blocking.has_started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not blocking.has_ended
    assert records.about("too late") == [
        "tool `too late` was abandoned, but its thread cannot be stopped and keeps running"
    ]
    blocking.may_end.set()
    messages = await until(lambda: records.about("too late"), lambda found: len(found) > 1)
    assert "s after it was abandoned; its result is lost" in messages[1]


async def test_a_second_cancellation_does_not_wait(blocking: Blocking, records: Records) -> None:
    FrozenLoopClock()  # No time passes: only the second cancellation can end the wait.
    running = asyncio.create_task(in_thread(blocking, "cancelled twice", grace=30))
    await blocking.has_started.wait()
    running.cancel()
    await let_cancellation_arrive()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(records.about("cancelled twice")) == 1


async def test_functions_that_hang_do_not_take_threads_from_others(ctx: Ctx) -> None:
    may_end = threading.Event()
    hanging = tool(lambda: may_end.wait(None), name="hang", timeout=0.01)
    try:
        outcomes = await asyncio.gather(*(hanging.call(ctx, "") for _ in range(60)))
        assert all(outcome.is_error for outcome in outcomes)
        assert await tool(lambda: "still here", name="next").call(ctx, "") == ToolResult("still here")
    finally:
        may_end.set()
