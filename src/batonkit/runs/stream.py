"""Streams: the one place where a run is driven, and the queue between a run and the reader of its events."""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from time import time
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, get_args

from msgspec import UNSET
from typing_extensions import TypeVar

from .._checks import check_choice
from .._wording import error_text
from ..agents.agent_context import Answer, FlowOutcome
from ..agents.hooks import dispatch, maybe_await, run_with_deadline
from ..context import RunContext
from ..context.run_context import SuspendRun
from ..context.run_state import RunState
from ..context.values import to_json_value
from ..errors import (
    BatonError,
    LimitError,
    NotEncodableError,
    ReplayMismatchError,
    RunConflictError,
    RunError,
    TaskFailedError,
)
from ..log import events as types
from ..log import keys
from ..log.event import RUN_ORIGIN
from ..log.log import Log, ReadOnlyLog
from ..messages import answer_of
from ..stores import CancelRequest, CancelWhen
from ..team.follow import Place, TeamFlow, follow
from ..team.tasks import last_active_agent
from .observers import Observer, ObserverSink
from .opening import FollowedRun, OpenRun, RunBackend
from .result import RUN_LOGGER, RunResult, StoppedStatus, log_run_end, to_interrupt
from .stored.journal import Journal

Out = TypeVar("Out", default=str, covariant=True)

_logger = logging.getLogger("baton.runner")

STATUS_BY_EVENT: dict[type[types.Event], StoppedStatus] = {
    types.RunCompleted: "completed",
    types.RunSuspended: "suspended",
    types.RunFailed: "failed",
    types.RunCancelled: "cancelled",
}
"""The status of a run after each event that stops it."""

REPLAYED_EVENTS = (
    types.AgentStarted,
    types.AgentResponded,
    types.HistoryCompacted,
    types.ToolReturned,
    types.StepCompleted,
    types.ControlTransferred,
    types.TaskOpened,
    types.TaskEnded,
    types.InterruptRaised,
    types.AgentFinished,
)
"""Events that the agents' code must produce again when a run is replayed or resumed."""


class EventQueue:
    """A bounded queue between a run, which waits while it is full, and its reader.

    Without a capacity it is never full: a live conversation does not wait for a slow reader.
    """

    __slots__ = (
        "_capacity",
        "_caught_up",
        "_is_reader_busy",
        "_items",
        "_not_empty",
        "_not_full",
        "is_closed",
        "is_full",
        "reader",
    )

    can_defer = False
    has_subscribers = True

    def __init__(self, capacity: int | None = 128) -> None:
        self._capacity = capacity if capacity is not None else sys.maxsize
        self._items: list[types.Event | types.Delta] = []
        self._not_empty = asyncio.Event()
        self._not_full = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._is_reader_busy = False
        self.reader: asyncio.Task[Any] | None = None
        """The task that is in a loop over the items."""
        self.is_full = False
        self.is_closed = False

    def put(self, event: types.Event | types.Delta) -> None:
        """Add an item without waiting."""
        items = self._items
        items.append(event)
        if len(items) == 1:
            self._not_empty.set()
        if len(items) >= self._capacity:
            self.is_full = True

    def put_muted(self, event: types.Event) -> None:
        """Drop an event that is not for readers."""

    async def drain(self) -> None:
        """Wait until the queue is not full."""
        while self.is_full and not self.is_closed:
            self._not_full.clear()
            await self._not_full.wait()

    async def catch_up(self) -> None:
        """Wait until the reader, if there is one, has handled all items and asks for more."""
        while self.reader is not None and (self._items or self._is_reader_busy) and not self.is_closed:
            self._caught_up.clear()
            await self._caught_up.wait()

    def start_reading(self) -> None:
        """Let `catch_up` wait for the current task, which is busy until it takes more items."""
        self.reader = asyncio.current_task()
        self._is_reader_busy = True

    def stop_reading(self) -> None:
        """Let `catch_up` wait no more."""
        self.reader = None
        self._caught_up.set()

    async def take(self) -> list[types.Event | types.Delta]:
        """Wait for items and return all of them; an empty list once the queue is closed and empty."""
        while not self._items and not self.is_closed:
            self._is_reader_busy = False
            self._caught_up.set()
            self._not_empty.clear()
            await self._not_empty.wait()
        self._is_reader_busy = True
        taken = self._items
        self._items = []
        self.is_full = False
        self._not_full.set()
        return taken

    def close(self) -> None:
        """Wake all waiters; no more items will be added."""
        self.is_closed = True
        self._not_empty.set()
        self._not_full.set()
        self._caught_up.set()


class RunStream(Generic[Out]):
    """A run in progress: `async with runner.stream(…) as run: async for event in run: …`.

    Leaving the block cancels the run if it has not stopped; it can be resumed. The stream of `stream_drive` leaves the
    run to other workers instead.
    """

    _opened: OpenRun | None = None
    _queue: EventQueue | None = None
    _task: asyncio.Task[None] | None = None
    _driver: asyncio.Task[Any] | None = None
    """The task that drives a stored run: that of the stream, or of the caller of `run` or `resume`."""
    _cancelled_task: asyncio.Task[Any] | None = None
    """The driver, once it was cancelled because of another worker or a request in the store."""
    _result: RunResult[Any] | None = None
    _is_cancelled = False
    _stop_when: CancelRequest = ""
    """When to stop without being cancelled: after a response or a turn."""
    _releases_after_turn = False
    _conflict: BatonError | None = None
    _is_driven = False

    def __init__(
        self,
        backend: RunBackend,
        *,
        observers: Sequence[Observer] = (),
        capacity: int | None = 128,
        releases: bool = False,
    ) -> None:
        """Create a stream; `runner.stream` and its siblings do this.

        Args:
            backend: Opens and closes the run.
            observers: Observers that receive the run's events.
            capacity: The number of unread events after which the run waits; None for no limit.
            releases: Leave the run to other workers, instead of cancelling it, if the driving task is cancelled.
        """
        self.run_id = backend.run_id
        """The id of the run."""
        self._backend = backend
        self._observers = observers
        self._capacity = capacity
        self._releases = releases
        self._unread: deque[types.Event | types.Delta] = deque()

    def __repr__(self) -> str:
        status = self._result.status if self._result else "running" if self._is_driven else "not started"
        return f"RunStream({self.run_id!r}, {status})"

    @property
    def events(self) -> tuple[types.Event, ...]:
        """All events of the run so far, including those before it was resumed."""
        return tuple(self._log.events)

    @property
    def result(self) -> RunResult[Out]:
        """The result.

        Raises:
            RunError: The run has not stopped yet.
        """
        if self._result is None:
            raise RunError(f"run `{self.run_id}` has not stopped yet; read its events to the end first")
        return self._result

    async def cancel(self, when: CancelWhen = "now") -> None:
        """Cancel the run, also if it is suspended; it can be resumed.

        A message that still waits is withdrawn.

        With `"after_turn"` and `"after_response"` no further agent and no further turn starts. A loop over the events
        of this stream can call it as soon as it reads of a handoff or of a tool's result, however slow it is: while
        there is such a loop, an agent starts, and calls its model again, only once the loop has handled the events
        before and asks for the next one.

        Args:
            when: `"now"` returns when everything the run started has ended; `"after_turn"` returns at once and lets
                the active agent finish its turn; `"after_response"` keeps the model's next response, and does not
                execute its tool calls.
        """
        check_choice("cancel(…)", when, get_args(CancelWhen))
        if when != "now" and not self._is_suspended:
            self._stop_soon(when)
            return
        await self._stop_now()
        if self._is_suspended:
            await self._cancel_suspended()

    @property
    def _is_suspended(self) -> bool:
        return self._result is not None and self._result.status == "suspended"

    async def _stop_now(self) -> None:
        """Stop the run if it has not stopped, and wait until everything it started has ended."""
        self._is_cancelled = True
        if self._opened is not None:
            self._opened.flow.run.signals.stop = "now"
        if self._task is not None and not self._task.done():
            # A task cancelled before its first step would leave no trace; it stops itself when it starts.
            if self._opened is not None or self._backend.is_waiting:
                self._task.cancel()
            await asyncio.wait([self._task])

    async def _cancel_suspended(self) -> None:
        """Cancel the run, which stopped at a question before the request came."""
        cancelled = await self._backend.cancel_suspended(self._flow)
        for event in cancelled:
            self._log.add_stored(event)
            if self._queue is not None:
                self._queue.put(event)
        if cancelled:
            self._set_result("cancelled")

    async def wait(self) -> None:
        """Wait until the run has stopped, for whatever reason.

        Raises:
            RunError: The stream has not been opened.
        """
        if self._queue is None or self._task is None:
            raise self._not_open()
        if self._queue.reader is asyncio.current_task():
            # Called in the body of the loop over the events, which the run would wait for.
            self._queue.stop_reading()
        await asyncio.wait([self._task])

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise RunError(f"run `{self.run_id}` is already open; start another run, or resume it")
        queue = self._queue = EventQueue(self._capacity)
        self._task = asyncio.create_task(self._drive(), name=f"baton run {self.run_id}")
        self._task.add_done_callback(lambda _: queue.close())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await (self._leave() if self._releases and not self._is_cancelled else self._stop_now())
        if self._task is not None and not self._task.cancelled():
            # Mark the exception as retrieved: only a reader that reads to the end gets it.
            self._task.exception()

    async def __aiter__(self) -> AsyncIterator[types.Event | types.Delta]:
        queue = self._queue
        task = self._task
        if queue is None or task is None:
            raise self._not_open()
        unread = self._unread
        queue.start_reading()
        try:
            while True:
                # Unread events belong to the stream, so that a second loop continues where the first one stopped.
                if not unread:
                    unread.extend(await queue.take())
                    if not unread:
                        break
                yield unread.popleft()
        finally:
            queue.stop_reading()
        if not self._is_cancelled:
            await asyncio.shield(task)

    @property
    def _log(self) -> Log:
        return self._flow.run.log

    @property
    def _flow(self) -> TeamFlow:
        if self._opened is None:
            raise self._not_open()
        return self._opened.flow

    def _not_open(self) -> RunError:
        return RunError(f"run `{self.run_id}` has not started; open it first: async with runner.stream(…) as run")

    async def _drive(self) -> None:
        """Run the agents' code over the log until it completes, suspends, fails or is cancelled."""
        if self._is_driven:
            raise RunError(f"run `{self.run_id}` has already been driven; start another run, or resume it")
        self._is_driven = True
        observed = ObserverSink(self.run_id, self._observers, self._queue) if self._observers else None
        opened = await self._backend.open(observed or self._queue, self)
        if isinstance(opened, FollowedRun):
            await self._read_elsewhere(opened)
            return
        self._opened = opened
        past_events = opened.flow.run.log.count
        first_events = opened.first_events if observed is None else observed.enter(opened.flow, opened.first_events)
        task = _current_task()
        try:
            await self._begin(opened, first_events)
            outcome = await self._execute(opened)
        except BaseException as error:
            if task is not _current_task():
                # The event loop was closed: nothing can be awaited.
                raise
            await self._receive_cancellation()
            await self._end_early(error, past_events)
        else:
            await self._receive_cancellation()
            await self._complete(outcome)
        finally:
            self._leave_driver(opened.flow)
            if observed is not None:
                observed.exit(None if self._result is None else self._result._output)
            if task is _current_task():
                await self._close(opened.flow.run, past_events)

    def _leave_driver(self, flow: TeamFlow) -> None:
        """Let nothing act for the driver any more: its task belongs to the caller again."""
        self._backend.leave(flow)
        self._is_cancelled_by_caller()
        self._driver = None

    async def _begin(self, opened: OpenRun, first_events: Sequence[types.Event]) -> None:
        """Write the first events, and stop at once if that was requested meanwhile."""
        log = opened.flow.run.log
        signals = opened.flow.run.signals
        if self._is_cancelled:
            signals.stop = "now"
        elif self._stop_when or self._releases_after_turn:
            signals.stop = self._stop_when or "after_turn"
        for event in first_events:
            log.write(event)
        await log.settle()
        if self._is_cancelled:
            raise asyncio.CancelledError

    async def _execute(self, opened: OpenRun) -> FlowOutcome:
        """Follow the team from its first agent, within the time limit and the hooks of the run."""
        flow = opened.flow
        log = opened.flow.run.log
        first = flow.team.members[opened.first_agent]
        hooks = flow.config.options.hooks
        if hooks is not None:
            is_past = log.has_past and log.has("1/start")
            await dispatch(self._root_context(), "run_start", (hooks.on_run_start, (first.agent,)), is_past=is_past)
        seconds = flow.run.meter.limits.seconds
        work = follow(flow, Place(first))
        if seconds is not None:
            work = run_with_deadline(work, seconds, lambda: LimitError("seconds", seconds, self._last_path()))
        outcome = await work
        if hooks is not None:
            await log.settle()
            on_end = (hooks.on_run_end, (flow.team.members[outcome.origin.agent].agent, outcome.output))
            await dispatch(self._root_context(), "run_end", on_end, is_past=log.has("completed"))
        if log.has_past:
            self._check_replay()
        return outcome

    async def _receive_cancellation(self) -> None:
        """Receive our own cancellation if it is pending: it must not interrupt the last write.

        The driver cancels itself if one of its writes finds the request; it may end before it awaits anything else.
        """
        if self._cancelled_task is not None:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)

    async def _complete(self, outcome: FlowOutcome) -> None:
        if self._cancelled_task is not None:
            self._is_cancelled_by_caller()
        said, output = recorded_answer(outcome.answer)
        await self._finish(types.RunCompleted("completed", RUN_ORIGIN, time(), said, output), outcome=outcome)

    async def _end_early(self, error: BaseException, past_events: int) -> None:
        """Record why a run ends before its end; raise the error of a failed run to its caller."""
        ending = _ending_of(error)
        if ending == "failed":
            await self._fail(error)
        elif ending == "suspended":
            await self._suspend(past_events)
        else:
            await self._end_cancelled(error)

    async def _end_cancelled(self, error: BaseException) -> None:
        if self._is_to_release(error):
            await self._settle_and_detach()
        await self._stop(types.RunCancelled)
        if not isinstance(error, asyncio.CancelledError) or self._is_cancelled_by_caller():
            raise error
        if self._conflict is not None:
            raise self._conflict from None

    async def _close(self, run: RunState[Any], past_events: int) -> None:
        """Log the end of the run, and close the resources that it opened."""
        if self._result is not None and RUN_LOGGER.isEnabledFor(logging.INFO):
            status = "left to another worker" if self._conflict is not None else self._result.status
            log_run_end(run, status, past_events, self._result.error)
        if run.opened:
            await close_run_resources(run)

    async def _read_elsewhere(self, followed: FollowedRun) -> None:
        """Deliver the events and take the result of a run that another worker drives."""
        queue = self._queue
        try:
            async with aclosing(followed.events) as events:
                async for event in events:
                    if queue is not None:
                        queue.put(event)
                        await queue.drain()
        except asyncio.CancelledError:
            await followed.cancel()
            raise
        self._opened, result = await followed.finish()
        self._result = result
        if result.error is not None:
            raise result.error

    async def _suspend(self, past_events: int) -> None:
        """Stop at an open interrupt, or at the end of a turn after which the run was to stop."""
        if self._stop_when or self._is_cancelled:
            await self._stop(types.RunCancelled, self._stop_when == "after_response")
        elif self._releases_after_turn:
            self._conflict = await self._settle_and_detach()
            await self._stop(types.RunCancelled)
            raise self._conflict from None
        else:
            await self._stop(types.RunSuspended, tuple(self._log.open_interrupts()))
            await self._notify_interrupts(past_events)

    async def _fail(self, error: BaseException) -> NoReturn:
        self._is_cancelled_by_caller()
        if isinstance(error, GeneratorExit):
            # Callers would take it for the end of their own coroutine.
            raised = RunError("GeneratorExit was raised by a tool, an agent or a hook; raise an Exception instead")
            raised.__cause__ = error
            error = raised
        place = " → ".join(self._last_path()[-8:])
        error.add_note(f"in run {self.run_id}, at {place}" if place else f"in run {self.run_id}")
        # Lone surrogates cannot be stored.
        message = error_text(error).encode(errors="backslashreplace").decode()
        public = message if isinstance(error, TaskFailedError) else ""
        await self._stop(types.RunFailed, type(error).__name__, message, public, failure=error)
        raise error

    def _is_cancelled_by_caller(self) -> bool:
        """Return whether the caller cancelled the task; undo our own cancellation."""
        task = self._cancelled_task
        self._cancelled_task = None
        return task is None or task.uncancel() > 0

    def _root_context(self) -> RunContext[Any]:
        return RunContext(self._flow.run, RUN_ORIGIN, "run")

    async def _notify_interrupts(self, past_events: int) -> None:
        hooks = self._flow.config.options.hooks
        if hooks is not None:
            for event in self._log.events[past_events:]:
                if isinstance(event, types.InterruptRaised):
                    await maybe_await(hooks.on_interrupt(self._root_context(), to_interrupt(event)))

    def _is_to_release(self, error: BaseException) -> bool:
        """Return whether the driving task was cancelled, or its process ends, not the run."""
        if not self._releases or self._is_cancelled or self._stop_when or self._conflict is not None:
            return False
        task = asyncio.current_task()
        # A tool that raises CancelledError by itself does so in every worker.
        return isinstance(error, KeyboardInterrupt | SystemExit) or (task is not None and task.cancelling() > 0)

    async def _leave(self) -> None:
        """Leave the run to other workers, unless it has stopped."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _release(self) -> None:
        """Stop now without storing that it stopped, so that another worker continues the run."""
        if self._opened is not None and self._task is not None and not self._task.done():
            self._stop_for(self._detach())
            await asyncio.wait([self._task])

    def _release_after_turn(self) -> None:
        """Let the active agents finish their turns, then stop as `_release` does."""
        self._releases_after_turn = True
        if self._opened is not None and not self._opened.flow.run.signals.stop:
            self._opened.flow.run.signals.stop = "after_turn"

    async def _settle_and_detach(self) -> RunConflictError:
        """Store what is recorded, and nothing more."""
        try:
            await self._log.settle()
        except asyncio.CancelledError:
            # Cancelled once more; the driver is leaving already.
            _logger.debug("cancelled while storing the last events of run `%s`", self.run_id)
        except Exception:
            _logger.warning("could not store the last events of run `%s`", self.run_id, exc_info=True)
        return self._detach()

    def _detach(self) -> RunConflictError:
        """Store nothing more: the store keeps what it has, and another worker continues from there."""
        released = RunConflictError(self.run_id, "this worker released it")
        if isinstance(self._log.sink, Journal):
            self._log.sink.fail(released)
        return released

    def _stop_soon(self, when: CancelWhen) -> None:
        # A request for a later time does not weaken an earlier one.
        self._stop_when = "after_response" if self._stop_when == "after_response" else when
        if self._opened is not None and self._opened.flow.run.signals.stop != "now":
            self._opened.flow.run.signals.stop = self._stop_when

    def _stop_for(self, error: BatonError) -> None:
        """Stop now because the run was taken over or deleted."""
        if self._conflict is None:
            self._conflict = error
            self._cancel_driver()

    def _stop_on_request(self, when: CancelWhen) -> None:
        """Stop because cancellation was requested in the store."""
        if when != "now":
            self._stop_soon(when)
        elif not self._is_cancelled:
            self._is_cancelled = True
            self._flow.run.signals.stop = "now"
            self._cancel_driver()

    def _cancel_driver(self) -> None:
        # Only once: every cancellation must be undone by one `uncancel`.
        if self._cancelled_task is None and self._driver is not None:
            self._cancelled_task = self._driver
            self._driver.cancel()

    def _raise_failure(self) -> None:
        """Re-raise the run's error, if it failed."""
        if self._task is not None and self._task.done():
            self._task.result()

    def _check_replay(self) -> None:
        # A run may be resumed with other hooks, or with none.
        missing = self._log.unvisited(*REPLAYED_EVENTS, besides=keys.HOOK)
        if missing is not None:
            raise ReplayMismatchError(missing.key, type(missing).__name__, "nothing there")

    def _last_path(self) -> tuple[str, ...]:
        return next((event.path for event in reversed(self._log.events) if event.path), ())

    def _active_agent(self) -> str:
        assert self._opened is not None
        return last_active_agent(self._log.events) or self._opened.first_agent

    async def _stop(self, kind: type[types.Event], *fields: Any, failure: BaseException | None = None) -> None:
        """Record an event of this kind, which a run may have several times, and stop."""
        key = keys.run_event(STATUS_BY_EVENT[kind], self._log.count)
        status = await self._finish(kind(key, RUN_ORIGIN, time(), *fields), failure=failure)
        if status != STATUS_BY_EVENT[kind]:
            self._set_result(status)

    async def _finish(
        self, event: types.Event, *, outcome: FlowOutcome | None = None, failure: BaseException | None = None
    ) -> StoppedStatus:
        """Record why the run stops, create the result and close the backend."""
        flow = self._flow
        status = STATUS_BY_EVENT[type(event)]
        if not isinstance(flow.run.log, ReadOnlyLog):
            flow.run.log.write(event)
        self._set_result(status, outcome, failure)
        return await self._backend.close(flow, status)

    def _set_result(
        self, status: StoppedStatus, outcome: FlowOutcome | None = None, failure: BaseException | None = None
    ) -> None:
        flow = self._flow
        self._result = RunResult(
            flow.run,
            flow.history,
            status=status,
            output=outcome.output if outcome is not None else None,
            agent=self._active_agent() if outcome is None else outcome.origin.agent,
            error=failure,
        )


def _current_task() -> "asyncio.Task[Any] | None":
    """Return the task that runs now; None without an event loop, as with `batonkit.swarm`."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def recorded_answer(answer: Answer) -> tuple[tuple[str, ...], Any]:
    """Return who said an answer, and its output as JSON data; unset if it is what was said."""
    if len(answer.said) == 1 and answer.output == answer_of(answer.text):
        return answer.said, UNSET
    try:
        return answer.said, to_json_value("the output", answer.output)
    except NotEncodableError:
        # The run is over; what it has done stays done.
        return answer.said, repr(answer.output)


def _ending_of(error: BaseException) -> StoppedStatus:
    """Return the status of a run that ends with an exception, which may be a group of others."""
    match error:
        case BaseExceptionGroup():
            inner: Sequence[BaseException] = error.exceptions
            endings = {_ending_of(one) for one in inner}
            if "failed" in endings:
                return "failed"
            return "suspended" if "suspended" in endings else "cancelled"
        case SuspendRun():
            return "suspended"
        case asyncio.CancelledError() | KeyboardInterrupt() | SystemExit():
            return "cancelled"
        case _:
            return "failed"


async def close_run_resources(run: RunState[Any]) -> None:
    """Close the resources that were opened for the run; errors are only logged."""
    resources = [*run.opened.items()]
    run.opened.clear()
    results = await asyncio.gather(*[resource.close() for _, resource in resources], return_exceptions=True)
    for (key, _), result in zip(resources, results, strict=True):
        if isinstance(result, BaseException):
            _logger.warning("could not close a resource of run `%s`: %r", run.id, key, exc_info=result)
