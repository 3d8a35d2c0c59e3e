"""Runs in the background: they continue whether or not a subscriber reads them, and any number may subscribe.

For servers: one request starts a run, another subscribes to it, a third answers its interrupt, each perhaps in another
process. Events reach every subscriber; deltas those in the process that drives the run and, if the store has a channel
as PostgreSQL has, those in other processes.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import Any, TypeAlias, Unpack

from ..._checks import check_arguments
from ...errors import BatonError, RunConflictError, RunNotFoundError, ShuttingDownError, ThreadBusyError
from ...log import Delta, Event, ReasoningDelta, ResponseRestarted, TextDelta, ToolCallDelta
from ...messages import RunInput
from ...stores import FINISHED_STATUSES, CancelWhen, RunRecord, RunStatus, WaitingMessage
from ..run_args import ResumeArgs, RunArgs, check_resume_args, check_run_args
from ..runner import Runner
from ..stored.recovery import FailedAttempts, RecoveryLoop
from ..stream import RunStream
from .broadcast import Broadcast, Subscriber, iter_batches
from .watching import watch_batches

_logger = logging.getLogger("baton.runner")
_MAX_POLL_INTERVAL = 1.0
_MAX_WAITING = 4096
_MIN_WAIT = 0.02
_MAX_WAIT = 0.5

NumberedEvent: TypeAlias = tuple[int, Event | Delta]
"""An event with its number in the log, from 1; a delta has the number of the event before it."""
RESPONSE_DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)
"""Deltas that are parts of a response; a late subscriber needs them until the response is in the log."""


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
            log = self.stream._log
            while log.events[self._published] is not event:
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


class BackgroundRunner:
    """Drives runs of a runner in background tasks.

    Args:
        runner: The runner; it must have a store.
    """

    @check_arguments
    def __init__(self, runner: Runner[Any, Any]) -> None:
        self.runner = runner
        """The runner whose runs are driven."""
        self._recovery: RecoveryLoop | None = None
        self._on_recovered: list[Callable[[RunRecord], Awaitable[None]]] = []
        """Called after a run was taken over, with its previous record."""
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
            inbox = self.runner._repository.inbox
            if self._take_promoted not in inbox.on_promoted:
                inbox.on_promoted.append(self._take_promoted)
            self._waiting[started.run_id] = args.get("context")
            if len(self._waiting) > _MAX_WAITING:
                # Messages that steered a run, or that another process made a run of, stay here.
                del self._waiting[next(iter(self._waiting))]
            try:
                await inbox.send(started, args, mode)
            except BaseException:
                self._waiting.pop(started.run_id, None)
                raise
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
        await self._launch(self.runner.runs.stream_drive(run_id, context=context))

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

        Raises:
            RunNotFoundError: There is no such run, or it was a message that another run has taken.
        """
        async with aclosing(self._subscribe_batches(run_id, after=after)) as batches:
            async for batch in batches:
                for item in batch:
                    yield item

    async def _subscribe_batches(
        self, run_id: str, *, after: int, silence: float | None = None
    ) -> AsyncGenerator[Sequence[NumberedEvent]]:
        """Subscribe, and yield all that is queued at once; an empty batch after each silence."""
        if run_id not in self._broadcasts:
            await self._wait_until_started(run_id)
        broadcast = self._broadcasts.get(run_id)
        if broadcast is None:
            watched = watch_batches(self.runner._repository, run_id, after=after)
            async with aclosing(iter_batches(watched, silence)) as batches:
                async for arrived in batches:
                    yield arrived[0] if arrived else ()
            return
        subscriber = broadcast.subscribe(after)
        try:
            while (batch := await subscriber.take(silence)) is not None:
                yield batch
        finally:
            subscriber.stop_timer()
            broadcast.subscribers.discard(subscriber)

    async def _wait_until_started(self, run_id: str) -> None:
        """Wait while the run is a message that waits for its thread.

        If this process drives it then, wait until its events can be subscribed to.
        """
        repository = self.runner._repository
        message = await repository.store.waiting(run_id)
        if message is None:
            return
        pause = _MIN_WAIT
        with repository.inbox.notified(message.thread) as promoted:
            while await repository.store.waiting(run_id) is not None:
                try:
                    async with asyncio.timeout(pause):
                        await promoted.wait()
                except TimeoutError:
                    pause = min(pause * 1.5, _MAX_WAIT)
                promoted.clear()
        if self._taking:
            await asyncio.wait([*self._taking])

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
        if broadcast is not None:
            stream = broadcast.stream
            await stream.cancel(when)
            if stream._result is None and when != "now":
                return "running"
            await asyncio.wait([broadcast.task])
            if stream.result.status in FINISHED_STATUSES:
                return stream.result.status
            # Another worker has continued it since.
        return await self.runner.runs.cancel(run_id, when)

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
        if self._draining is not None or (self._recovery is not None and self._recovery.is_running):
            return
        repository = self.runner._repository
        interval = min(_MAX_POLL_INTERVAL, repository.ttl / 3)
        self._recovery = RecoveryLoop(repository, self._take_all, self._failures, interval=interval)
        self._recovery.start()

    @cached_property
    def _failures(self) -> FailedAttempts:
        return FailedAttempts(self.runner._repository.store)

    async def _take_all(self, records: Sequence[RunRecord]) -> None:
        for record in records:
            if not self.is_driving(record.run_id):
                await self._recover(record)

    async def _recover(self, record: RunRecord) -> None:
        """Take over one run; whatever fails, the other runs are taken over nevertheless."""
        try:
            await self.take_over(record.run_id)
        except (RunConflictError, RunNotFoundError):
            return  # Another worker was faster.
        except Exception as error:  # noqa: BLE001 - the store may be unavailable, or code of the user's failed.
            await self._failures.failed(record.run_id, error)
            return
        await self._failures.succeeded(record.run_id)
        for callback in self._on_recovered:
            try:
                await callback(record)
            except Exception:
                _logger.exception("a callback failed after run `%s` was taken over", record.run_id)

    async def _stop_recovery(self) -> None:
        if self._recovery is not None:
            await self._recovery.stop()

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
        await self._stop_recovery()
        launched = [*self._launched]
        for broadcast in launched:
            broadcast.stream._release_after_turn()
        if launched and seconds > 0:
            _logger.info("waiting up to %g s for the turns of %d runs", seconds, len(launched))
            await asyncio.wait([broadcast.task for broadcast in launched], timeout=seconds)
        await self.release_all()

    async def release_all(self) -> None:
        """Stop driving now but leave the runs `running`, so that other workers take them over."""
        await self._stop_recovery()
        await asyncio.gather(*[self._release(broadcast) for broadcast in self._launched])

    async def _release(self, broadcast: RunBroadcast) -> None:
        # A run that is not stored yet cannot be released.
        await asyncio.wait([broadcast.started, broadcast.task], return_when=asyncio.FIRST_COMPLETED)
        await broadcast.stream._release()
        await asyncio.wait([broadcast.task])

    async def close(self) -> None:
        """Cancel all runs that are driven here; they can be resumed."""
        await self._stop_recovery()
        await asyncio.gather(*[self.cancel(run_id) for run_id in [*self._broadcasts]])

    async def _launch(self, stream: RunStream[Any]) -> str:
        if self._draining is not None:
            raise ShuttingDownError(f"run `{stream.run_id}` was not started: this worker is shutting down; try again")
        self.runner._repository.relay.start()
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
