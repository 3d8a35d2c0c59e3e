"""A run while it lasts: the one place where agents' code is driven, whether anybody listens or not."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from time import time
from types import TracebackType
from typing import Any, Generic, Self

from typing_extensions import TypeVar

from ..agents import HOOK_STEP, Outcome, RunHooks, settled, tell
from ..context import Limits, RunContext, Suspend
from ..errors import LimitError, ReplayMismatch, RunError
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

    def __init__(
        self,
        course: Course,
        opening: Sequence[Event],
        on_begin: Callable[[str], None] | None,
        on_early_stop: "Callable[[LiveRun[Any]], None]",
    ) -> None:
        self._course = course
        self._opening = opening
        self._on_begin = on_begin
        self._on_early_stop = on_early_stop
        self._channel: Channel | None = None
        self._task: asyncio.Task[None] | None = None
        self._result: RunResult[Any] | None = None
        self._is_cancelled = False
        self._has_begun = False
        self._unread: deque[Event | Delta] = deque()

    @property
    def log(self) -> Log:
        """Everything that has happened so far."""
        return self._course.run.log

    @property
    def context(self) -> Any:
        """The user's own object."""
        return self._course.run.context

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._course.run.id

    @property
    def limits(self) -> Limits:
        """The limits it goes by."""
        return self._course.run.meter.limits

    @property
    def guests(self) -> dict[str, Any]:
        """The agents that functions returned: they are there again when the run is resumed in this process."""
        return self._course.run.guests

    @property
    def result(self) -> RunResult[Out]:
        """Where the run stands, once it has stopped."""
        if self._result is None:
            raise RunError(f"run `{self.run_id}` is still under way; read its events to the end first")
        return self._result

    async def drive(self) -> None:
        """Run the agents' code over the log until it completes, suspends, fails or is cancelled."""
        if self._has_begun:
            raise RunError(f"run `{self.run_id}` has been driven already; start another, or resume it")
        if self._on_begin is not None:
            self._on_begin(self.run_id)
        self._has_begun = True
        log, course = self.log, self._course
        hooks, known = course.rules.options.hooks, len(log.events)
        for event in self._opening:
            log.write(event)
        try:
            if self._is_cancelled:
                raise asyncio.CancelledError
            if hooks is not None:
                root, is_past = course.team.seats[course.team.root].agent, log.has_past and log.has("1/start")
                await tell(self._root_context(), "run_start", (hooks.on_run_start, (root,)), is_past=is_past)
            if course.run.meter.limits.seconds is None:
                outcome = await follow(course, course.team.seats[course.team.root])
            else:
                outcome = await self._follow_in_time(course.run.meter.limits.seconds)
            if hooks is not None:
                ended = (hooks.on_run_end, (course.team.seats[outcome.origin.agent].agent, outcome.output))
                await tell(self._root_context(), "run_end", ended, is_past=log.has("completed"))
            if log.has_past:
                self._check_replay()
        except Suspend:
            self._stop(Suspended(f"suspended{len(log.events)}", NOBODY, time(), tuple(log.open_questions())))
            await self._tell_questions(hooks, known)
        except asyncio.CancelledError:
            self._stop(Cancelled(f"cancelled{len(log.events)}", NOBODY, time()))
            raise
        except Exception as error:
            error.add_note(f"in run {self.run_id}, at {' → '.join(self._last_path()[-8:])}")
            key, kind = f"failed{len(log.events)}", type(error).__name__
            self._stop(Failed(key, NOBODY, time(), kind, str(error)), failure=error)
            raise
        else:
            self._stop(Completed("completed", NOBODY, time()), outcome=outcome)

    def _root_context(self) -> RunContext[Any]:
        return RunContext(self._course.run, NOBODY, "run")

    async def _tell_questions(self, hooks: RunHooks | None, known: int) -> None:
        """Tell the hooks of the questions that are new since this drive began."""
        if hooks is not None:
            for asked in [event for event in self.log.events[known:] if isinstance(event, Asked)]:
                await settled(hooks.on_interrupt(self._root_context(), asked))

    async def _follow_in_time(self, seconds: float) -> Outcome:
        course, deadline = self._course, asyncio.timeout(seconds)
        try:
            async with deadline:
                return await follow(course, course.team.seats[course.team.root])
        except TimeoutError:
            if deadline.expired():
                raise LimitError("seconds", seconds, self._last_path()) from None
            raise

    async def cancel(self) -> None:
        """Stop the run now, and return when everything it started has ended. It can be resumed."""
        self._is_cancelled = self._course.run.signals.is_cancelled = True
        if self._task is not None and not self._task.done():
            # A task that is cancelled before its first step would leave no trace; it ends itself when it begins.
            if self._has_begun:
                self._task.cancel()
            await asyncio.wait([self._task])

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise RunError(f"run `{self.run_id}` has been opened already; start another, or resume it")
        channel = self._channel = Channel()
        self._course.run.log.sink = channel
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

    def _stop(self, event: Event, *, outcome: Outcome | None = None, failure: BaseException | None = None) -> None:
        """The last thing a drive does: record why it stops, and make the result."""
        course = self._course
        if not isinstance(course.run.log, ReadOnlyLog):
            course.run.log.write(event)
        path = (outcome.origin.agent,) if outcome is not None else self._last_path()
        self._result = RunResult(
            course.run,
            course.history,
            status=_STATUS[type(event)],
            output=outcome.output if outcome is not None else None,
            agent=path[-1] if path else course.team.root,
            error=failure,
        )
        if outcome is None:
            self._on_early_stop(self)
