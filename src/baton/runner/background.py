"""Runs in the background: they continue whether or not a subscriber reads them, and any number may subscribe.

For servers: one request starts a run, another subscribes to it, a third answers its interrupt, each perhaps in another
process. Events reach every subscriber; deltas those in the process that drives the run and, if the store has a channel
as PostgreSQL has, those in other processes.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import Any, Generic, TypeAlias, TypeVar, Unpack

from msgspec import Struct

from ..arguments import check_arguments
from ..errors import (
    BatonError,
    LogError,
    MissingOptionsError,
    ReplayMismatchError,
    RunConflictError,
    RunNotFoundError,
    ShuttingDownError,
    StoreError,
    TeamChangedError,
    ThreadBusyError,
)
from ..events import Delta, Event, ReasoningDelta, ResponseRestarted, TextDelta, ToolCallDelta
from ..messages import RunInput
from ..stores import CancelWhen, RunRecord, RunStatus, WaitingMessage
from .arguments import ResumeArgs, RunArgs, check_resume_args, check_run_args
from .options import refuse_unrecorded
from .runner import Runner
from .stream import RunStream

T = TypeVar("T")

_logger = logging.getLogger("baton.runner")
_MAX_POLL_INTERVAL = 1.0
_MAX_POLL_LOAD = 0.05
"""Maximum fraction of time spent polling, for stores that are slow to list runs."""
_FIRST_DELAY, _MAX_DELAY = 1.0, 60.0
_PERMANENT_DELAY = 300.0
_FORGET_AFTER = 3600.0
_MAX_PENDING = 4096

NumberedEvent: TypeAlias = tuple[int, Event | Delta]
"""An event with its number in the log, from 1; a delta has the number of the event before it."""
RESPONSE_DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)
"""Deltas that are parts of a response; a late subscriber needs them until the response is in the log."""


class Subscriber(Generic[T]):
    """A queue of items for one reader, which never holds up the publisher.

    A reader that is too slow loses items: droppable ones first, or else all later ones.

    Args:
        max_pending: The number of unread items above which items are lost.
        droppable: Returns whether an item may be skipped; other items are then queued without limit. Without this
            function the subscriber is closed instead, and its reader has to subscribe again.
    """

    def __init__(self, max_pending: int = _MAX_PENDING, *, droppable: Callable[[T], bool] | None = None) -> None:
        self.is_closed = False
        """True once no more items will be added."""
        self._max_pending = max_pending
        self._droppable = droppable
        self._pending: deque[T] = deque()
        self._changed = asyncio.Event()

    def put(self, item: T) -> None:
        """Queue an item, unless the subscriber is closed."""
        if self.is_closed:
            return
        if len(self._pending) >= self._max_pending:
            if self._droppable is None:
                self.close()
                return
            if self._droppable(item):
                return
        self._pending.append(item)
        self._changed.set()

    def close(self) -> None:
        """End the reader's iteration after the items that are already queued."""
        self.is_closed = True
        self._changed.set()

    async def get(self, timeout: float | None = None) -> T | None:
        """Wait for the next item; return None if there are no more.

        Args:
            timeout: Seconds to wait; no limit by default.

        Raises:
            TimeoutError: No item came in time.
        """
        if timeout is not None:
            async with asyncio.timeout(timeout):
                return await self.get()
        while not self._pending:
            if self.is_closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._pending.popleft()

    async def __aiter__(self) -> AsyncIterator[T]:
        while (item := await self.get()) is not None:
            yield item


class Broadcast(Generic[T]):
    """Publishes items to any number of subscribers."""

    def __init__(self) -> None:
        self.subscribers: set[Subscriber[T]] = set()
        """The current subscribers; add and discard them freely."""

    def publish(self, item: T) -> None:
        """Queue an item for every subscriber."""
        for subscriber in self.subscribers:
            subscriber.put(item)

    def close(self) -> None:
        """Close every subscriber."""
        for subscriber in self.subscribers:
            subscriber.close()


class RunBroadcast(Broadcast[NumberedEvent]):
    """Publishes the numbered events and the deltas of a run that this process drives."""

    task: "asyncio.Task[None]"
    """The task that reads the stream."""

    def __init__(self, stream: RunStream[Any]) -> None:
        super().__init__()
        self.stream = stream
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the run's first new event is stored."""
        self.failure: Exception | None = None
        self._published = 0
        self._partial_responses: dict[str, list[Delta]] = {}
        """Deltas of responses that are not in the log yet, by activation."""

    def publish_event(self, event: Event | Delta) -> None:
        """Number and publish an event or delta."""
        if isinstance(event, Event):
            # The log also has events that streams do not deliver, such as those inside agent tools.
            events = self.stream._log.events
            while events[self._published] is not event:
                self._published += 1
            self._published += 1
            self._partial_responses.pop(event.origin.id, None)
        elif type(event) is ResponseRestarted:
            self._partial_responses.pop(event.origin.id, None)
        elif isinstance(event, RESPONSE_DELTAS):
            self._partial_responses.setdefault(event.origin.id, []).append(event)
        self.publish((self._published, event))

    def subscribe(self, after: int) -> Subscriber[NumberedEvent]:
        """Add a subscriber; it first receives events after number `after` and partial responses."""
        subscriber = Subscriber[NumberedEvent](droppable=_is_delta)
        for number, event in enumerate(self.stream._log.events[after : self._published], after + 1):
            subscriber.put((number, event))
        for deltas in self._partial_responses.values():
            for delta in deltas:
                subscriber.put((self._published, delta))
        self.subscribers.add(subscriber)
        return subscriber


def _is_delta(item: NumberedEvent) -> bool:
    return isinstance(item[1], Delta)


PERMANENT_ERRORS = (TeamChangedError, MissingOptionsError, LogError, ReplayMismatchError)
"""Errors for which retrying soon does not help: another version of the program has to drive the run."""
UNDRIVABLE_NOTE = "undrivable"
"""The name of the note that says why a run could not be taken over."""


class _Delay(Struct, frozen=True):
    """A run that is not taken over before a time, and the seconds that it waited last."""

    until: float
    seconds: float


class RecoveryLoop:
    """Polls the store for runs without a live worker and takes them over."""

    def __init__(self, background: "BackgroundRunner") -> None:
        self.on_recovered: list[Callable[[RunRecord], Awaitable[None]]] = []
        """Called after a run was taken over, with its previous record."""
        self._background = background
        self._delays: dict[str, _Delay] = {}
        """Runs whose last attempt failed, by id."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start polling, unless it is already running."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll(), name="baton recovery")

    async def stop(self) -> None:
        """Stop polling; runs that were taken over continue."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def recover(self) -> None:
        """Take over all unfinished runs, except those whose last attempt failed a moment ago."""
        now = monotonic()
        self._delays = {run_id: delay for run_id, delay in self._delays.items() if delay.until > now - _FORGET_AFTER}
        await self._background.runner._require_repository("recovery").inbox.promote_idle()
        for record in await self._background.runner.list_unfinished():
            delay = self._delays.get(record.run_id)
            if not self._background.is_driving(record.run_id) and (delay is None or delay.until <= now):
                await self._take_over(record)

    async def _take_over(self, record: RunRecord) -> None:
        """Take over one run; whatever fails, the other runs are taken over nevertheless."""
        try:
            await self._background.take_over(record.run_id)
        except (RunConflictError, RunNotFoundError):
            return  # Another worker was faster.
        except PERMANENT_ERRORS as error:
            await self._postpone(record, error, _PERMANENT_DELAY, _PERMANENT_DELAY)
            return
        except Exception as error:  # noqa: BLE001 - the store may be unavailable, or code of the user's failed.
            await self._postpone(record, error, _FIRST_DELAY, _MAX_DELAY)
            return
        if self._delays.pop(record.run_id, None) is not None:
            await self._note(record.run_id, None)
        for callback in self.on_recovered:
            try:
                await callback(record)
            except Exception:
                _logger.exception("a callback failed after run `%s` was taken over", record.run_id)

    async def _postpone(self, record: RunRecord, error: Exception, first: float, most: float) -> None:
        known = self._delays.get(record.run_id)
        seconds = first if known is None else min(known.seconds * 2, most)
        self._delays[record.run_id] = _Delay(monotonic() + seconds, seconds)
        _logger.warning("could not take over run `%s`; retrying in %g s", record.run_id, seconds, exc_info=error)
        await self._note(record.run_id, f"{type(error).__name__}: {error}")

    async def _note(self, run_id: str, reason: str | None) -> None:
        """Keep the reason with the run, where `baton runs` shows it."""
        store = self._background.runner._require_store("recovery")
        try:
            await store.put_note(run_id, UNDRIVABLE_NOTE, None if reason is None else reason.encode(errors="replace"))
        except (StoreError, RunNotFoundError):
            _logger.warning("could not store why run `%s` is not driven", run_id, exc_info=True)

    async def _poll(self) -> None:
        interval = min(_MAX_POLL_INTERVAL, self._background.runner.lease_seconds / 3)
        while True:
            started = monotonic()
            try:
                await self.recover()
            except Exception:
                # The store may be unavailable for a while; runs driven here continue while their leases last.
                _logger.warning("could not list unfinished runs", exc_info=True)
            await asyncio.sleep(max(interval, (monotonic() - started) / _MAX_POLL_LOAD))


class BackgroundRunner:
    """Drives runs of a runner in background tasks.

    Args:
        runner: The runner; it must have a store.
    """

    @check_arguments
    def __init__(self, runner: Runner[Any, Any]) -> None:
        self.runner = runner
        """The runner whose runs are driven."""
        self._recovery = RecoveryLoop(self)
        self._broadcasts: dict[str, RunBroadcast] = {}
        self._launched: set[RunBroadcast] = set()
        """All broadcasts whose tasks have not ended, also those of runs that are not stored yet."""
        self._draining: asyncio.Task[None] | None = None
        self._waiting: dict[str, Any] = {}
        """The contexts of messages that wait for their threads, by run id."""
        self._taking: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"BackgroundRunner({self.runner!r}, driving={len(self._broadcasts)})"

    async def start(self, input: RunInput, **args: Unpack[RunArgs[Any]]) -> str:
        """Start a run in the background.

        Args:
            input: The user's message, or a list of messages.
            **args: See `RunArgs`.

        Returns:
            The run's id, as soon as the run is stored, or the message that waits for the thread's unfinished run.

        Raises:
            RunExistsError: The `run_id` is taken.
            ThreadBusyError: The thread has a run that has not finished, and `when_busy` is not given.
            InboxFullError: Too many messages wait for the thread.
            ShuttingDownError: `drain` was called.
        """
        check_run_args("BackgroundRunner.start()", args)
        self.runner._require_store("BackgroundRunner.start()")
        mode = args.get("when_busy", "error")
        if mode == "error":
            return await self._launch(self.runner.stream(input, **args))
        started = self.runner._run_started(input, args)
        now: RunArgs[Any] = {**args, "run_id": started.run_id, "when_busy": "error"}
        try:
            return await self._launch(self.runner.stream(input, **now))
        except ThreadBusyError:
            refuse_unrecorded("BackgroundRunner.start(when_busy=…)", started.options)
            inbox = self.runner._require_repository("BackgroundRunner.start()").inbox
            if self._take_promoted not in inbox.on_promoted:
                inbox.on_promoted.append(self._take_promoted)
            self._waiting[started.run_id] = args.get("context")
            if len(self._waiting) > _MAX_PENDING:
                # Messages that steered a run, or that another process made a run of, stay here.
                del self._waiting[next(iter(self._waiting))]
            await inbox.send(started, args, mode)
            return started.run_id

    def _take_promoted(self, message: WaitingMessage) -> None:
        """Drive the run that a message has become, with the context that came with the message."""
        if self._draining is not None:
            return
        context = self._waiting.pop(message.run_id, None)
        task = asyncio.create_task(self._try_to_take(message.run_id, context), name=f"baton take {message.run_id}")
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def _try_to_take(self, run_id: str, context: Any) -> None:
        try:
            await self.take_over(run_id, context=context)
        except (RunConflictError, RunNotFoundError, ShuttingDownError):
            return  # Another worker drives it.
        except Exception:
            _logger.warning("could not drive run `%s`, which was a message", run_id, exc_info=True)

    async def resume(self, run_id: str, answers: Any = None, **args: Unpack[ResumeArgs[Any]]) -> None:
        """Resume a stopped run in the background; returns when the resumption is stored.

        Args:
            run_id: The run to resume.
            answers: Answers by interrupt id, or the answer itself if exactly one interrupt is open.
            **args: See `ResumeArgs`.

        Raises:
            RunNotFoundError: There is no such run.
            RunConflictError: Another worker is driving it.
            AnswerError: An answer is for an interrupt that is not open, or does not match its schema.
            ShuttingDownError: `drain` was called.
        """
        check_resume_args("BackgroundRunner.resume()", args)
        self.runner._require_store("BackgroundRunner.resume()")
        await self._launch(self.runner.stream_resume(run_id, answers, **args))

    async def take_over(self, run_id: str, *, context: Any = None) -> None:
        """Continue a run whose worker died.

        Args:
            run_id: The run to take over.
            context: Your own context object; by default that of the runner's `context_factory`.

        Raises:
            RunConflictError: Another worker drives it, or it has stopped.
        """
        self.runner._require_store("BackgroundRunner.take_over()")
        await self._launch(self.runner.stream_drive(run_id, context=context))

    async def subscribe(self, run_id: str, *, after: int = 0) -> AsyncIterator[NumberedEvent]:
        """Iterate over the past and future events of a run; ends when the run stops.

        Subscribing in the middle of a response delivers its earlier deltas first. A slow subscriber misses deltas,
        never events. The deltas of a run that another worker drives come through the store's channel, if it has one;
        otherwise the run is polled, without deltas.

        Args:
            run_id: The run.
            after: The number of the last event to skip.

        Yields:
            Event numbers, starting at 1, and events. A delta has the number of the event before it.
        """
        broadcast = self._broadcasts.get(run_id)
        if broadcast is None:
            async for number, event in self.runner._watch_all(run_id, after=after):
                yield number, event
            return
        subscriber = broadcast.subscribe(after)
        try:
            async for item in subscriber:
                yield item
        finally:
            broadcast.subscribers.discard(subscriber)

    async def cancel(self, run_id: str, when: CancelWhen = "now") -> RunStatus:
        """Cancel a run, whichever worker drives it, or withdraw a message that waits.

        Args:
            run_id: The run to cancel.
            when: `"now"`; `"after_response"` to keep the response that the model is giving, without its tool calls;
                `"after_turn"` to let the agent that is active when the request arrives finish its turn.
                The run does not wait for its subscribers, so that may be a later agent than they have read about.

        Returns:
            The status; it stays `running` until the driving worker stops.
        """
        broadcast = self._broadcasts.get(run_id)
        if broadcast is None:
            return await self.runner.cancel(run_id, when)
        await broadcast.stream.cancel(when)
        if when == "now":
            await asyncio.wait([broadcast.task])
            return broadcast.stream.result.status
        return "running"

    def is_driving(self, run_id: str) -> bool:
        """Return whether this background runner drives the run.

        Args:
            run_id: The run.
        """
        return run_id in self._broadcasts

    def start_recovery(self) -> None:
        """Take over runs whose worker died, from now until `drain` or `close`; safe to call again.

        `Runner(context_factory=…)` creates their contexts.
        """
        if self._draining is None:
            self._recovery.start()

    def _reopen(self) -> None:
        """Take runs again, because the app that was drained is served once more."""
        if self._draining is not None and self._draining.done():
            self._draining = None

    async def drain(self, seconds: float = 10.0) -> None:
        """Take no more runs, let turns in flight finish, and leave the runs to other workers.

        The runs stay `running`. Turns that have not finished in time are stopped as by `release_all`. If this method
        is called again, it waits for the first call.

        Args:
            seconds: The time for the turns in flight.
        """
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain(seconds), name="baton drain")
        await asyncio.shield(self._draining)

    async def _drain(self, seconds: float) -> None:
        await self._recovery.stop()
        launched = [*self._launched]
        for broadcast in launched:
            broadcast.stream._release_after_turn()
        if launched and seconds > 0:
            _logger.info("waiting up to %g s for the turns of %d runs", seconds, len(launched))
            await asyncio.wait([broadcast.task for broadcast in launched], timeout=seconds)
        await self.release_all()

    async def release_all(self) -> None:
        """Stop driving now but leave the runs `running`, so that other workers take them over."""
        await self._recovery.stop()
        await asyncio.gather(*[self._release(broadcast) for broadcast in self._launched])

    async def _release(self, broadcast: RunBroadcast) -> None:
        # A run that is not stored yet cannot be released.
        await asyncio.wait([broadcast.started, broadcast.task], return_when=asyncio.FIRST_COMPLETED)
        await broadcast.stream._release()
        await asyncio.wait([broadcast.task])

    async def close(self) -> None:
        """Cancel all runs that are driven here; they can be resumed."""
        await self._recovery.stop()
        await asyncio.gather(*[self.cancel(run_id) for run_id in [*self._broadcasts]])

    async def _launch(self, stream: RunStream[Any]) -> str:
        if self._draining is not None:
            raise ShuttingDownError(f"run `{stream.run_id}` was not started: this worker is shutting down; try again")
        self.runner._require_repository("BackgroundRunner").relay.start()
        broadcast = RunBroadcast(stream)
        self._launched.add(broadcast)
        broadcast.task = asyncio.create_task(self._drive(broadcast), name=f"baton background {stream.run_id}")
        await asyncio.wait([broadcast.started, broadcast.task], return_when=asyncio.FIRST_COMPLETED)
        if broadcast.failure is not None and not broadcast.started.done():
            raise broadcast.failure
        return stream.run_id

    async def _drive(self, broadcast: RunBroadcast) -> None:
        stream = broadcast.stream
        try:
            async with stream as run:
                async for event in run:
                    if not broadcast.started.done():
                        self._broadcasts[stream.run_id] = broadcast
                        broadcast.started.set_result(None)
                    broadcast.publish_event(event)
        except Exception as error:
            # Recorded if the run had started; otherwise `_launch` raises it.
            broadcast.failure = error
            if broadcast.started.done() and stream._result is not None and stream._result.status == "failed":
                level, trace = (logging.WARNING, None) if isinstance(error, BatonError) else (logging.ERROR, error)
                text = "run `%s` failed: %s: %s"
                _logger.log(level, text, stream.run_id, type(error).__name__, error, exc_info=trace)
            elif not isinstance(error, BatonError):
                _logger.exception("run `%s` stopped", stream.run_id)
        finally:
            self._launched.discard(broadcast)
            if self._broadcasts.get(stream.run_id) is broadcast:
                del self._broadcasts[stream.run_id]
            broadcast.close()
