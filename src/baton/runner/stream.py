"""A run while it lasts: the one place where agents' code is driven, whether anybody listens or not.

From the run to whoever listens: two tasks, so a queue, but one that hands over batches and holds the run back.

The end of what was opened for a run.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from time import time
from types import TracebackType
from typing import Any, Generic, Literal, Self, cast

from typing_extensions import TypeVar

from ..agents import RunHooks
from ..agents.base import FlowOutcome
from ..agents.hooks import HOOK_STEP, dispatch, maybe_await, run_with_deadline
from ..context import RunContext
from ..context.run_context import SuspendRun
from ..context.run_state import RunState
from ..errors import LimitError, ReplayMismatchError, RunConflictError, RunError, check_choice
from ..events import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    Delta,
    Event,
    InterruptRaised,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunSuspended,
    StepCompleted,
    ToolReturned,
)
from ..events.base import RUN_ORIGIN
from ..flow.follow import TeamFlow, follow
from ..log import Log, ReadOnlyLog
from .backends import OpenRun, RunBackend
from .result import RunResult, StoppedStatus


class EventQueue:
    """A bounded queue of events. The writer waits when it is full, the reader when it is empty.

    Without a capacity it is never full: a live conversation does not stand still because somebody is slow to listen.
    """

    __slots__ = ("_capacity", "_items", "_reader", "_writers", "can_defer", "has_subscribers", "is_closed", "is_full")

    def __init__(self, capacity: int | None = 128) -> None:
        self._capacity = capacity if capacity is not None else sys.maxsize
        self._items: list[Event | Delta] = []
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []
        self.is_full = False
        self.is_closed = False
        self.can_defer = False
        self.has_subscribers = True

    def put(self, event: Event | Delta) -> None:
        """Take one event; never waits, but may become full."""
        items = self._items
        items.append(event)
        if len(items) >= self._capacity:
            self.is_full = True
        if self._reader is not None:
            self._wake_reader()

    def put_muted(self, event: Event) -> None:
        """Nothing: it is not for whoever listens."""

    async def drain(self) -> None:
        """Return when there is room again."""
        while self.is_full and not self.is_closed:
            waiting = asyncio.get_running_loop().create_future()
            self._writers.append(waiting)
            await waiting

    async def take(self) -> list[Event | Delta]:
        """Everything that has come in; waits for something, and gives nothing once the channel is closed and empty."""
        while not self._items and not self.is_closed:
            waiting = self._reader = asyncio.get_running_loop().create_future()
            await waiting
        taken, self._items = self._items, []
        self.is_full = False
        self._wake_writers()
        return taken

    def close(self) -> None:
        """Nothing more will come; nobody needs to wait."""
        self.is_closed = True
        self._wake_reader()
        self._wake_writers()

    def _wake_reader(self) -> None:
        waiting, self._reader = self._reader, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _wake_writers(self) -> None:
        writers, self._writers = self._writers, []
        for waiting in writers:
            if not waiting.done():
                waiting.set_result(None)


_logger = logging.getLogger("baton.runner")


async def close_run_resources(run: RunState[Any]) -> None:
    """Close all that was opened for the run. What goes wrong there is logged: the run is over, and has its result."""
    things = [*run.opened.items()]
    run.opened.clear()
    endings = await asyncio.gather(*[thing.close() for _, thing in things], return_exceptions=True)
    for (owner, _), ending in zip(things, endings, strict=True):
        if isinstance(ending, BaseException):
            _logger.warning("what run `%s` opened for %r did not close well", run.id, owner, exc_info=ending)


Out = TypeVar("Out", default=str, covariant=True)

_STATUS: dict[type[Event], StoppedStatus] = {
    RunCompleted: "completed",
    RunSuspended: "suspended",
    RunFailed: "failed",
    RunCancelled: "cancelled",
}
_MADE_BY_CODE = (
    AgentStarted,
    AgentResponded,
    ToolReturned,
    StepCompleted,
    ControlTransferred,
    InterruptRaised,
    AgentFinished,
)


class RunStream(Generic[Out]):
    """A run under way: listen to it with `async with … as run: async for event in run`, or cancel it."""

    def __init__(self, keeper: RunBackend, *, capacity: int | None = 128) -> None:
        """`capacity` is after how many events that nobody has read the run waits; None for never."""
        self._capacity = capacity
        self.run_id = keeper.run_id
        """The id of the run."""
        self._keeper = keeper
        self._opened: OpenRun | None = None
        self._channel: EventQueue | None = None
        self._task: asyncio.Task[None] | None = None
        self._driver: asyncio.Task[Any] | None = None
        """The task that was cancelled because of what somebody elsewhere did or asked for."""
        self._result: RunResult[Any] | None = None
        self._is_cancelled = False
        self._stops_after_turn = False
        self._conflict: RunError | None = None
        self._has_begun = False
        self._unread: deque[Event | Delta] = deque()

    @property
    def log(self) -> Log:
        """Everything that has happened so far."""
        return self._course.run.log

    @property
    def result(self) -> RunResult[Out]:
        """Where the run stands, once it has stopped."""
        if self._result is None:
            raise RunError(f"run `{self.run_id}` is still under way; read its events to the end first")
        return self._result

    @property
    def _course(self) -> TeamFlow:
        if self._opened is None:
            raise RunError(f"run `{self.run_id}` has not begun; open it first: async with runner.stream(…) as run")
        return self._opened.course

    async def _drive(self) -> None:
        """Run the agents' code over the log until it completes, suspends, fails or is cancelled."""
        if self._has_begun:
            raise RunError(f"run `{self.run_id}` has been driven already; start another, or resume it")
        self._has_begun = True
        given = self._keeper.open(self._channel, self)
        opened = self._opened = given if type(given) is OpenRun else await cast("Awaitable[OpenRun]", given)
        course, log = opened.course, opened.course.run.log
        hooks, known = course.config.options.hooks, len(log.events)
        if self._is_cancelled or self._stops_after_turn:
            course.run.signals.stop = "now" if self._is_cancelled else "after_turn"
        for event in opened.opening:
            log.write(event)
        try:
            if log.sink is not None:
                await log.settle()
            if self._is_cancelled:
                raise asyncio.CancelledError
            if hooks is None and course.run.meter.limits.seconds is None:
                outcome = await follow(course, course.team.members[opened.first])
            else:
                outcome = await self._led(opened, hooks)
            if log.has_past:
                self._check_replay()
        except SuspendRun:
            if self._stops_after_turn:
                await self._stop(RunCancelled(f"cancelled{len(log.events)}", RUN_ORIGIN, time()))
            else:
                open_questions = tuple(log.open_interrupts())
                await self._stop(RunSuspended(f"suspended{len(log.events)}", RUN_ORIGIN, time(), open_questions))
                await self._tell_questions(hooks, known)
        except asyncio.CancelledError:
            await self._stop(RunCancelled(f"cancelled{len(log.events)}", RUN_ORIGIN, time()))
            if self._is_cancelled_by_caller():
                raise
            if self._conflict is not None:
                raise self._conflict from None
        except Exception as error:
            self._is_cancelled_by_caller()
            error.add_note(f"in run {self.run_id}, at {' → '.join(self._last_path()[-8:])}")
            key, kind = f"failed{len(log.events)}", type(error).__name__
            await self._stop(RunFailed(key, RUN_ORIGIN, time(), kind, _storable(error)), failure=error)
            raise
        else:
            if self._driver is not None:
                self._is_cancelled_by_caller()
            closing = self._ended(RunCompleted("completed", RUN_ORIGIN, time()), outcome=outcome)
            if closing is not None:
                await closing
        finally:
            if course.run.opened:
                await close_run_resources(course.run)

    def _is_cancelled_by_caller(self) -> bool:
        """Whether the task is cancelled for a reason that is not ours. What was ours is taken back."""
        driver, self._driver = self._driver, None
        return driver is None or driver.uncancel() > 0

    async def _led(self, opened: OpenRun, hooks: RunHooks | None) -> FlowOutcome:
        """Give the floor to whoever begins; how it ends."""
        course, log = opened.course, opened.course.run.log
        first = course.team.members[opened.first]
        if hooks is not None:
            is_past = log.has_past and log.has("1/start")
            await dispatch(self._root_context(), "run_start", (hooks.on_run_start, (first.agent,)), is_past=is_past)
        seconds = course.run.meter.limits.seconds
        if seconds is None:
            outcome = await follow(course, first)
        else:
            outcome = await run_with_deadline(
                follow(course, first), seconds, lambda: LimitError("seconds", seconds, self._last_path())
            )
        if hooks is not None:
            ended = (hooks.on_run_end, (course.team.members[outcome.origin.agent].agent, outcome.output))
            await dispatch(self._root_context(), "run_end", ended, is_past=log.has("completed"))
        return outcome

    def _root_context(self) -> RunContext[Any]:
        return RunContext(self._course.run, RUN_ORIGIN, "run")

    async def _tell_questions(self, hooks: RunHooks | None, known: int) -> None:
        """Tell the hooks of the questions that are new since this drive began."""
        if hooks is not None:
            for asked in [event for event in self.log.events[known:] if isinstance(event, InterruptRaised)]:
                await maybe_await(hooks.on_interrupt(self._root_context(), asked))

    async def cancel(self, when: Literal["now", "after_turn"] = "now") -> None:
        """Stop the run now, and return when everything it started has ended; or have it stop after the present turn.

        Either way it can be resumed.
        """
        check_choice("cancel(…)", when, ("now", "after_turn"))
        if when == "after_turn":
            self._stop_after_turn()
            return
        self._is_cancelled = True
        if self._opened is not None:
            self._opened.course.run.signals.stop = "now"
        if self._task is not None and not self._task.done():
            # A task that is cancelled before its first step would leave no trace; it ends itself when it begins.
            if self._opened is not None:
                self._task.cancel()
            await asyncio.wait([self._task])

    async def _release(self) -> None:
        """Stop now and say nothing of it in the store, so that another process goes on where this one was."""
        if self._opened is not None and self._task is not None and not self._task.done():
            left = RunConflictError(self.run_id, "it was left to others")
            self._keeper.abandon(left)
            self._stop_for(left, self._task)
            await asyncio.wait([self._task])

    def _stop_after_turn(self) -> None:
        self._stops_after_turn = True
        if self._opened is not None:
            self._opened.course.run.signals.stop = "after_turn"

    def _stop_for(self, error: RunError, driver: "asyncio.Task[Any]") -> None:
        """Stop now: the run is somebody else's, or gone."""
        if self._conflict is None:
            self._conflict = error
            self._cancel(driver)

    def _stop_on_request(self, when: Literal["now", "after_turn"], driver: "asyncio.Task[Any]") -> None:
        """Stop because somebody elsewhere asked for it."""
        if when == "after_turn":
            self._stop_after_turn()
        elif not self._is_cancelled:
            self._is_cancelled = True
            self._course.run.signals.stop = "now"
            self._cancel(driver)

    def _cancel(self, driver: "asyncio.Task[Any]") -> None:
        # Once: as often as it is cancelled here, it must be taken back in the end.
        if self._driver is None:
            self._driver = driver
            driver.cancel()

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise RunError(f"run `{self.run_id}` has been opened already; start another, or resume it")
        channel = self._channel = EventQueue(self._capacity)
        self._task = asyncio.create_task(self._drive(), name=f"baton run {self.run_id}")
        self._task.add_done_callback(lambda _: channel.close())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.cancel()
        if self._task is not None and not self._task.cancelled():
            # Raised to whoever reads to the end; who leaves early has asked for no more of it.
            self._task.exception()

    async def __aiter__(self) -> AsyncIterator[Event | Delta]:
        channel, task = self._channel, self._task
        if channel is None or task is None:
            raise RunError("open the run first: async with runner.stream(…) as run")
        unread = self._unread
        while True:
            # Kept in the run, so that whoever stops listening may go on later where they stopped.
            if not unread:
                unread.extend(await channel.take())
                if not unread:
                    break
            yield unread.popleft()
        if not self._is_cancelled:
            await asyncio.shield(task)

    async def wait(self) -> None:
        """Return when the run has stopped, however it did."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _raise_failure(self) -> None:
        """Raise what the run failed with, if it has stopped and did."""
        if self._task is not None and self._task.done():
            self._task.result()

    def _check_replay(self) -> None:
        # A run may be taken up with other hooks, or with none.
        missing = self._course.run.log.unvisited(*_MADE_BY_CODE, besides=f"/{HOOK_STEP}")
        if missing is not None:
            raise ReplayMismatchError(missing.key, type(missing).__name__, "nothing there")

    def _last_path(self) -> tuple[str, ...]:
        events = self._course.run.log.events
        return next((event.path for event in reversed(events) if event.path), ())

    async def _stop(self, event: Event, *, failure: BaseException | None = None) -> None:
        """Stop before the end."""
        closing = self._ended(event, failure=failure)
        if closing is not None:
            await closing

    def _ended(
        self, event: Event, *, outcome: FlowOutcome | None = None, failure: BaseException | None = None
    ) -> Awaitable[None] | None:
        """The last thing a drive does: record why it stops, make the result, and put the run away."""
        opened, course = self._opened, self._course
        if not isinstance(course.run.log, ReadOnlyLog):
            course.run.log.write(event)
        path = (outcome.origin.agent,) if outcome is not None else self._last_path()
        status = _STATUS[type(event)]
        self._result = RunResult(
            course.run,
            course.history,
            status=status,
            output=outcome.output if outcome is not None else None,
            agent=path[-1] if path else course.team.root,
            error=failure,
            said_before=opened.said_before if opened is not None else 0,
        )
        return self._keeper.close(course, status)


def _storable(error: Exception) -> str:
    """What an error says, without halves of characters, which no log can hold."""
    return str(error).encode(errors="backslashreplace").decode()
