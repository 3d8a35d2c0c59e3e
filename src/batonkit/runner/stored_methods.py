"""The methods of `Runner` for runs in a store: submit, drive, answer, cancel, recover and watch them."""

from collections.abc import AsyncIterator, Collection, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Unpack, get_args

from typing_extensions import TypeVar

from ..arguments import check_choice, check_positive, check_types
from ..context.run_state import resolve_time
from ..events import Delta, Event, RunStarted
from ..messages import RunInput
from ..stores import CancelWhen, RunRecord, RunStatus
from .arguments import ResumeArgs, RunArgs, UserText, check_submit_args
from .options import refuse_unrecorded
from .stream import RunStream
from .waiting_messages import Schedule

# What drives stored runs is loaded at the first of them: a process without a store starts faster.
if TYPE_CHECKING:
    from ..flow import RecordedRequest
    from .driving import DriveResult
    from .stored_runs import RunRepository

C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)


class StoredRunMethods(Generic[C, Out]):
    """The methods of a runner that need a store."""

    @check_types
    async def submit(
        self,
        input: RunInput,
        *,
        not_before: datetime | timedelta | None = None,
        priority: int = 0,
        **args: Unpack[RunArgs[C]],
    ) -> str:
        """Create a run in the store for another worker to drive.

        Args:
            input: The user's message, or a list of messages.
            not_before: The time before which no worker drives it, or a duration from now, by the store's clock.
            priority: Runs with a higher priority are driven first.
            **args: See `RunArgs`; all but `context`, which the driving worker passes to `drive`, and options that a
                store cannot hold, such as a model object.

        Returns:
            The run's id.
        """
        check_submit_args("Runner.submit()", args, "not_before", "priority")
        started = self._run_started(input, args)
        refuse_unrecorded("Runner.submit()", started.options)
        repository = self._require_repository("submit")
        wake_at = await resolve_time("Runner.submit(not_before=…)", not_before, repository.store.now)
        return await repository.submit(started, args, Schedule(wake_at, priority))

    @check_types
    async def drive(
        self, run_id: str, *, context: C | None = None, accept_changes: bool = False, worker: str | None = None
    ) -> "DriveResult":
        """Drive a stored run until it finishes, is suspended or cancelled.

        Any worker may call it at any time: a run that is not `running`, or not due yet, is left unchanged, and a run
        whose worker died is taken over when its lease has expired. If the task that awaits it is cancelled, the run
        stays `running` and its lease is released, so that another worker continues; `cancel` cancels the run.

        Args:
            run_id: The run to drive.
            context: Your own context object.
            accept_changes: Drive the run although the team has changed since it started.
            worker: A name for the attempts of one job of an engine. An attempt takes the lease of an earlier one with
                the same name at once, so pass it only if the engine knows that the earlier one is dead.

        Returns:
            The run's status, when to drive it again, and its open interrupts.

        Raises:
            RunNotFoundError: There is no such run.
            RunConflictError: Another worker, or another task of this process, is driving it.
        """
        from .driving import drive_run

        args = ResumeArgs(context=context, accept_changes=accept_changes)
        return await drive_run(self._require_repository("drive"), run_id, args, worker=worker)

    @check_types
    def stream_drive(
        self, run_id: str, *, context: C | None = None, accept_changes: bool = False, worker: str | None = None
    ) -> RunStream[Out]:
        """Drive a run whose worker died, as a stream that delivers only new events.

        Leaving the stream's block leaves the run to other workers; `RunStream.cancel` cancels it.

        Args:
            run_id: The run to drive.
            context: Your own context object.
            accept_changes: Drive the run although the team has changed since it started.
            worker: A name for the attempts of one job of an engine, as for `drive`.

        Returns:
            The stream, not opened yet. Opening it raises RunConflictError if the run is not available.
        """
        from .driving import stream_run

        args = ResumeArgs(context=context, accept_changes=accept_changes)
        return stream_run(self._require_repository("stream_drive"), run_id, args, worker=worker, resumes=True)

    @check_types
    async def answer(
        self, run_id: str, answers: Any, *, values: Mapping[str, Any] | None = None, message: UserText | None = None
    ) -> None:
        """Answer open interrupts of a stored run without driving it; the next `drive` continues it.

        Args:
            run_id: The suspended run.
            answers: Answers by interrupt id, or the answer itself if exactly one interrupt is open.
            values: Changes to the run's values that take effect with the answers.
            message: A message of the user; the agents read it after the results of the pending tool calls.

        Raises:
            AnswerError: An answer is for an interrupt that is not open, or does not match its schema.
            RunConflictError: A worker is driving the run, or it is being cancelled.
        """
        await self._require_repository("answer").answer(run_id, answers, values=values, message=message)

    @check_types
    async def cancel(self, run_id: str, when: CancelWhen = "now") -> RunStatus:
        """Cancel a stored run, whichever worker drives it, or withdraw a message that waits.

        Args:
            run_id: The run to cancel.
            when: `"now"`; `"after_response"` to keep the response that the model is giving, without its tool calls;
                `"after_turn"` to let the agent that is active when the request arrives finish its turn.

        Returns:
            The status; it stays `running` until the driving worker stops, which takes up to a few seconds.
        """
        check_choice("cancel(…)", when, get_args(CancelWhen))
        return await self._require_repository("cancel").cancel(run_id, when)

    @check_types
    async def record(self, run_id: str) -> RunRecord:
        """Return the record of a stored run: its status, owner, thread and times.

        Args:
            run_id: A stored run.

        Raises:
            RunNotFoundError: There is no such run.
            RunConflictError: It is a message that waits for an unfinished run of its thread.
        """
        return await self._require_repository("record").record(run_id)

    async def list_unfinished(self) -> list[RunRecord]:
        """Return stored runs that should be running but have no live worker, oldest first."""
        from .driving import list_runnable

        return await list_runnable(self._require_repository("list_unfinished"))

    @check_types
    async def recover(self, *, context: C | None = None, max_concurrency: int = 8) -> dict[str, RunStatus]:
        """Drive all unfinished runs, except those that other workers take.

        Args:
            context: Your own context object, for all of them.
            max_concurrency: How many runs to drive at once.

        Returns:
            Statuses by run id. A run that cannot be driven stays `running`, and the reason is logged.
        """
        from .driving import recover_runs

        check_positive("recover(max_concurrency=…)", max_concurrency)
        repository = self._require_repository("recover")
        return await recover_runs(repository, context=context, max_concurrency=max_concurrency)

    @check_types
    async def requests(self, run_id: str, *, keys: Collection[str] | None = None) -> "dict[str, RecordedRequest]":
        """Return the model requests of a stored run by the keys of their responses.

        They are shown as the models received them, restored from the log; no agent, filter or middleware runs.

        Args:
            run_id: A stored run.
            keys: The keys of the wanted responses; all by default. Of a long run, a few are much cheaper.
        """
        return await self._require_repository("requests").requests(run_id, keys)

    @check_types
    def watch(self, run_id: str, *, after: int = 0) -> AsyncIterator[tuple[int, Event]]:
        """Iterate over the events of a stored run as they are written, until it stops.

        Args:
            run_id: The run to watch.
            after: The number of the last event to skip.

        Returns:
            An iterator over event numbers, starting at 1, and events.
        """
        from .watching import watch_run

        return _events_only(watch_run(self._require_repository("watch"), run_id, after=after))

    def _watch_all(self, run_id: str, *, after: int) -> AsyncIterator[tuple[int, Event | Delta]]:
        """Watch a run with the deltas that its driver sends."""
        from .watching import watch_run

        return watch_run(self._require_repository("watch"), run_id, after=after)

    def _run_started(self, input: RunInput, args: RunArgs[C]) -> RunStarted:
        """Return the first event of a new run."""
        raise NotImplementedError

    def _require_repository(self, method: str) -> "RunRepository":
        """Return the access to stored runs. Raises SetupError if there is no store."""
        raise NotImplementedError


async def _events_only(items: AsyncIterator[tuple[int, Event | Delta]]) -> AsyncIterator[tuple[int, Event]]:
    async for number, item in items:
        if isinstance(item, Event):
            yield number, item
