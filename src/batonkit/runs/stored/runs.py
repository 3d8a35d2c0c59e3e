"""`runner.runs`: the runs of a team, in its store or in the memory of its runner."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, Unpack, get_args, overload

from typing_extensions import TypeVar

from ..._checks import check_choice, check_types
from ...errors import RunError
from ...log import Delta, Event, RunCompleted
from ...log.codec import require_known_events
from ...log.log import Log
from ...stores import CancelWhen, RecordPage, RunFilters, RunRecord, RunStatus
from ..ids import check_name, check_run_id
from ..opening import new_id, run_started_event
from ..result import RunResult
from ..run_args import ResumeArgs, UserText
from ..stream import RunStream
from .access import StoreAccess

if TYPE_CHECKING:
    from ...team import RecordedRequest
    from .driving import DriveResult

C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)

_EventList: TypeAlias = list[Event]
"""In `Runs`, `list` is a method."""


class Runs(Generic[C, Out]):
    """The runs of a team: inspect, answer, cancel, delete, copy and drive them.

    `runner.runs` has those in the runner's store. Without a store it has the runs that stopped before their end, and
    those of threads, in the memory of the runner.
    """

    def __init__(self, access: StoreAccess) -> None:
        """Create the runs of a runner; `Runner` does this.

        Args:
            access: Opens the stored runs.
        """
        self._access = access

    def __repr__(self) -> str:
        store = "the memory of a runner" if self._access.store is None else repr(self._access.store)
        return f"Runs({store})"

    @check_types
    async def get(self, run_id: str) -> RunRecord:
        """Return the record of a run: its status, owner, thread and times.

        Args:
            run_id: The run.

        Raises:
            RunNotFoundError: There is no such run.
            RunConflictError: It is a message that waits for an unfinished run of its thread.
        """
        return await self._access.repository.record(run_id)

    async def list(self, **filters: Unpack[RunFilters]) -> RecordPage:
        """Return a page of records, newest first by default.

        Args:
            **filters: See `RunFilters`.
        """
        return await self._access.repository.store.list(**filters)

    @check_types
    async def events(self, run_id: str) -> _EventList:
        """Return the log of a run.

        Args:
            run_id: The run.

        Raises:
            RunNotFoundError: There is no such run.
            LogError: The log is damaged.
        """
        return await self._access.repository.events(run_id)

    @check_types
    async def requests(self, run_id: str, *, keys: Collection[str] | None = None) -> "dict[str, RecordedRequest]":
        """Return the model requests of a run by the keys of their responses.

        They are shown as the models received them, restored from the log; no agent, filter or middleware runs. Without
        a store, requests are not recorded.

        Args:
            run_id: The run.
            keys: The keys of the wanted responses; all by default. Of a long run, a few are much cheaper.
        """
        return await self._access.repository.requests(run_id, keys)

    @overload
    def watch(
        self, run_id: str, *, after: int = 0, deltas: Literal[False] = False
    ) -> AsyncIterator[tuple[int, Event]]: ...
    @overload
    def watch(self, run_id: str, *, after: int = 0, deltas: bool) -> AsyncIterator[tuple[int, Event | Delta]]: ...
    @check_types
    def watch(self, run_id: str, *, after: int = 0, deltas: bool = False) -> AsyncIterator[tuple[int, Event | Delta]]:
        """Iterate over the events of a run as they are written, until it stops.

        Args:
            run_id: The run to watch.
            after: The number of the last event to skip.
            deltas: Also iterate over the deltas that its driver sends, if the store has a channel for them. A delta
                has the number of the event before it.

        Returns:
            An iterator over event numbers, starting at 1, and events.
        """
        from ..background.watching import watch_run

        items = watch_run(self._access.repository, run_id, after=after)
        return items if deltas else _events_only(items)

    @check_types
    async def answer(
        self, run_id: str, answers: Any, *, values: Mapping[str, Any] | None = None, message: UserText | None = None
    ) -> None:
        """Record answers to open interrupts of a run without driving it, for a worker to continue.

        Use `Runner.resume` to answer and to drive the run here.

        Args:
            run_id: The suspended run.
            answers: Answers by interrupt id, or the answer itself if exactly one interrupt is open.
            values: Changes to the run's values that take effect with the answers.
            message: A message of the user; the agents read it after the results of the pending tool calls.

        Raises:
            RunNotFoundError: There is no such run.
            AnswerError: An answer is for an interrupt that is not open, or does not match its schema.
            RunNotSuspendedError: The run was cancelled, is to be cancelled, or has failed.
            RunConflictError: A worker is driving the run.
        """
        await self._access.repository.answer(run_id, answers, values=values, message=message)

    @check_types
    async def retry(self, run_id: str) -> None:
        """Let a worker continue a failed or cancelled run, without driving it here.

        Use `Runner.resume` to drive the run here. Recorded steps are not executed again.

        Args:
            run_id: The run to retry.

        Raises:
            RunNotFoundError: There is no such run.
            RunError: The run has not stopped, or has completed.
            RunConflictError: A later run of its thread has followed it.
        """
        await self._access.repository.retry(run_id)

    @check_types
    async def cancel(self, run_id: str, when: CancelWhen = "now") -> RunStatus:
        """Cancel a run, whichever worker drives it, or withdraw a message that waits.

        Args:
            run_id: The run to cancel.
            when: `"now"`; `"after_response"` to keep the response that the model is giving, without its tool calls;
                `"after_turn"` to let the agent that is active when the request arrives finish its turn.

        Returns:
            The status; it stays `running` until the driving worker stops.

        Raises:
            RunNotFoundError: There is no such run.
        """
        check_choice("cancel(…)", when, get_args(CancelWhen))
        return await self._access.repository.cancel(run_id, when)

    @check_types
    async def delete(self, run_id: str) -> bool:
        """Delete a run and its log.

        The other runs of its thread stay. Those after it may quote it, and hold values and summaries that it passed on.

        Args:
            run_id: The run to delete.

        Returns:
            Whether it existed.

        Raises:
            RunConflictError: A worker is driving it.
        """
        return await self._access.repository.delete(run_id)

    @check_types
    async def fork(
        self,
        run: "str | Iterable[Event]",
        *,
        at: int | None = None,
        edit: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        thread: str | None = None,
    ) -> str:
        """Create a new run from the first events of another one, which stays unchanged.

        Args:
            run: The id of a run, or its events.
            at: How many events to copy; all by default.
            edit: New contents by event key: input, answers, tool and step results, messages. Unedited events after
                the first edited one are dropped.
            run_id: The id of the new run, as in `RunArgs`; generated by default.
            thread: A new thread, which continues the conversation of the other run: its runs read the same messages
                before it, for as long as those are stored.

        Returns:
            The id of the new run; resume it with `Runner.resume`.

        Raises:
            InvalidIdError: The id of the new run or thread has characters that are not allowed.
            RunExistsError: The id of the new run is taken.
            ThreadExistsError: The thread has runs.
        """
        from ..answers import fork_events

        if run_id:
            check_run_id(run_id)
        check_name("thread", thread or "")
        recorded = await self._events_of(run)
        source = run_started_event(recorded)
        events = fork_events(recorded, run_id or new_id(), at=at, edit=edit)
        return await self._access.repository.create_fork(events, source, thread=thread or "")

    @check_types
    async def load(self, events: Iterable[Event]) -> str:
        """Store a log from elsewhere, for example from another process, under its own run id.

        Args:
            events: The events of a run of the same team that has not completed.

        Returns:
            The run's id; resume it with `Runner.resume` and pass the context again. If the team has changed, `resume`
            raises TeamChangedError unless `accept_changes` is true.

        Raises:
            RunError: The run has completed.
            RunExistsError: There is a run with this id; `fork(events)` makes a copy with another id.
            ThreadBusyError: Its thread has an unfinished run.
            LogError: The log is damaged, or has events that this version does not know.
        """
        recorded = list(events)
        started = run_started_event(recorded)
        if any(isinstance(event, RunCompleted) for event in recorded):
            raise RunError(f"run `{started.run_id}` has completed and cannot be resumed")
        require_known_events(recorded)
        Log(recorded)  # Raises for duplicate keys.
        await self._access.repository.load(recorded)
        return started.run_id

    @check_types
    async def replay(self, run: "str | Iterable[Event]", *, context: C | None = None) -> RunResult[Out]:
        """Run the agents' code over a log without model calls, tool calls or other effects.

        Where the log of a run that has not completed ends, the code stops.

        Args:
            run: The id of a run, or its events.
            context: Your own context object.

        Returns:
            The result that the log leads to. That of a run that failed, was cancelled or has not stopped has no output.

        Raises:
            ReplayMismatchError: The code does not produce what the log recorded.
        """
        from .driving import replay_run

        return await replay_run(self._access.repository, await self._events_of(run), ResumeArgs(context=context))

    @check_types
    async def drive(
        self, run_id: str, *, context: C | None = None, accept_changes: bool = False, worker: str | None = None
    ) -> "DriveResult":
        """Drive a run until it finishes, is suspended or cancelled; for workers and other engines.

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
        return await drive_run(self._access.repository, run_id, args, worker=worker)

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
        return stream_run(self._access.repository, run_id, args, worker=worker, resumes=True)

    async def _events_of(self, run: "str | Iterable[Event]") -> _EventList:
        return await self.events(run) if isinstance(run, str) else [*run]


async def _events_only(items: AsyncIterator[tuple[int, Event | Delta]]) -> AsyncIterator[tuple[int, Event]]:
    async for number, item in items:
        if isinstance(item, Event):
            yield number, item
