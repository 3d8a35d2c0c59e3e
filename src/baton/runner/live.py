"""A run while it lasts: the one place where agents' code is driven, whether anybody listens or not."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from time import time
from types import TracebackType
from typing import Any, Generic, Literal, Self

from typing_extensions import TypeVar

from ..agents import HOOK_STEP, Outcome, RunHooks, settled, tell
from ..context import RunContext, Suspend
from ..errors import LimitError, ReplayMismatch, RunConflict, RunError, checked_choice
from ..events import (
    NOBODY,
    Asked,
    Cancelled,
    Completed,
    Delta,
    Event,
    Failed,
    Finished,
    Said,
    Started,
    Stepped,
    Suspended,
    ToolReturned,
    Transferred,
)
from ..flow import Course, follow
from ..log import Log, ReadOnlyLog
from .channel import Channel
from .keeping import Keeper, Opened
from .result import RunResult, Status

Out = TypeVar("Out", default=str, covariant=True)

_STATUS: dict[type[Event], Status] = {
    Completed: "completed",
    Suspended: "suspended",
    Failed: "failed",
    Cancelled: "cancelled",
}
_MADE_BY_CODE = (Started, Said, ToolReturned, Stepped, Transferred, Asked, Finished)


class LiveRun(Generic[Out]):
    """A run under way: listen to it with `async with … as run: async for event in run`, or cancel it."""

    def __init__(self, keeper: Keeper) -> None:
        self.run_id = keeper.run_id
        """The id of the run."""
        self._keeper = keeper
        self._opened: Opened | None = None
        self._channel: Channel | None = None
        self._task: asyncio.Task[None] | None = None
        self._driver: asyncio.Task[Any] | None = None
        """The task that was cancelled because somebody elsewhere asked that the run stop."""
        self._result: RunResult[Any] | None = None
        self._is_cancelled = False
        self._stops_after_turn = False
        self._conflict: RunConflict | None = None
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
    def _course(self) -> Course:
        if self._opened is None:
            raise RunError(f"run `{self.run_id}` has not begun; open it first: async with runner.stream(…) as run")
        return self._opened.course

    async def drive(self) -> None:
        """Run the agents' code over the log until it completes, suspends, fails or is cancelled."""
        if self._has_begun:
            raise RunError(f"run `{self.run_id}` has been driven already; start another, or resume it")
        self._has_begun = True
        opened = self._opened = await self._keeper.open(self._channel, self)
        course = opened.course
        log, run = course.run.log, course.run
        hooks, known = course.rules.options.hooks, len(log.events)
        run.signals.stop = "now" if self._is_cancelled else "after_turn" if self._stops_after_turn else ""
        for event in opened.opening:
            log.write(event)
        try:
            if log.sink is not None:
                await log.settle()
            if self._is_cancelled:
                raise asyncio.CancelledError
            outcome = await self._led(opened, hooks)
            if log.has_past:
                self._check_replay()
        except Suspend:
            if self._stops_after_turn:
                await self._stop(Cancelled(f"cancelled{len(log.events)}", NOBODY, time()))
            else:
                open_questions = tuple(log.open_questions())
                await self._stop(Suspended(f"suspended{len(log.events)}", NOBODY, time(), open_questions))
                await self._tell_questions(hooks, known)
        except asyncio.CancelledError:
            await self._stop(Cancelled(f"cancelled{len(log.events)}", NOBODY, time()))
            if self._conflict is not None:
                raise self._conflict from None
            if self._driver is None:
                raise
            self._driver.uncancel()
        except Exception as error:
            error.add_note(f"in run {self.run_id}, at {' → '.join(self._last_path()[-8:])}")
            key, kind = f"failed{len(log.events)}", type(error).__name__
            await self._stop(Failed(key, NOBODY, time(), kind, str(error)), failure=error)
            raise
        else:
            await self._stop(Completed("completed", NOBODY, time()), outcome=outcome)

    async def _led(self, opened: Opened, hooks: RunHooks | None) -> Outcome:
        """Give the floor to whoever begins; how it ends."""
        course, log = opened.course, opened.course.run.log
        first = course.team.seats[opened.first]
        if hooks is not None:
            is_past = log.has_past and log.has("1/start")
            await tell(self._root_context(), "run_start", (hooks.on_run_start, (first.agent,)), is_past=is_past)
        seconds = course.run.meter.limits.seconds
        if seconds is None:
            outcome = await follow(course, first)
        else:
            deadline = asyncio.timeout(seconds)
            try:
                async with deadline:
                    outcome = await follow(course, first)
            except TimeoutError:
                if deadline.expired():
                    raise LimitError("seconds", seconds, self._last_path()) from None
                raise
        if hooks is not None:
            ended = (hooks.on_run_end, (course.team.seats[outcome.origin.agent].agent, outcome.output))
            await tell(self._root_context(), "run_end", ended, is_past=log.has("completed"))
        return outcome

    def _root_context(self) -> RunContext[Any]:
        return RunContext(self._course.run, NOBODY, "run")

    async def _tell_questions(self, hooks: RunHooks | None, known: int) -> None:
        """Tell the hooks of the questions that are new since this drive began."""
        if hooks is not None:
            for asked in [event for event in self.log.events[known:] if isinstance(event, Asked)]:
                await settled(hooks.on_interrupt(self._root_context(), asked))

    async def cancel(self, how: Literal["now", "after_turn"] = "now") -> None:
        """Stop the run now, and return when everything it started has ended; or have it stop after the present turn.

        Either way it can be resumed.
        """
        checked_choice("cancel(…)", how, ("now", "after_turn"))
        if how == "after_turn":
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

    def _stop_after_turn(self) -> None:
        self._stops_after_turn = True
        if self._opened is not None:
            self._opened.course.run.signals.stop = "after_turn"

    def stop_for(self, error: RunConflict, driver: "asyncio.Task[Any]") -> None:
        """Stop now: the run is somebody else's."""
        self._conflict = error
        driver.cancel()

    def stop_when_asked(self, how: Literal["now", "after_turn"], driver: "asyncio.Task[Any]") -> None:
        """Stop because somebody elsewhere asked for it."""
        if how == "after_turn":
            self._stop_after_turn()
        elif self._driver is None:
            self._driver, self._is_cancelled = driver, True
            self._course.run.signals.stop = "now"
            driver.cancel()

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise RunError(f"run `{self.run_id}` has been opened already; start another, or resume it")
        channel = self._channel = Channel()
        self._task = asyncio.create_task(self.drive(), name=f"baton run {self.run_id}")
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

    def _check_replay(self) -> None:
        # A run may be taken up with other hooks, or with none.
        missing = self._course.run.log.unvisited(*_MADE_BY_CODE, besides=f"/{HOOK_STEP}")
        if missing is not None:
            raise ReplayMismatch(missing.key, type(missing).__name__, "nothing there")

    def _last_path(self) -> tuple[str, ...]:
        events = self._course.run.log.events
        return next((event.path for event in reversed(events) if event.path), ())

    async def _stop(
        self, event: Event, *, outcome: Outcome | None = None, failure: BaseException | None = None
    ) -> None:
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
        await self._keeper.close(course, status)
