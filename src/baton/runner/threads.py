"""Threads: conversations that consist of consecutive runs, with a shared history and an active agent."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from ..agents.request_records import RequestRef, recent_requests
from ..context import HistoryEntry
from ..context.values import THREAD_PREFIX
from ..errors import RunNotFoundError, SetupError, ThreadBusyError
from ..events import Event, HistorySummary, OpenTask, ValueChanges, decode_lines
from ..events.codec import require_known_events
from ..flow.log_history import extend_history, last_active_agent, summaries_from_log
from ..flow.tasks import open_tasks
from ..messages import Message
from ..stores import FINISHED_STATUSES, RunRecord, RunStatus, Store, WaitingMessage, iter_records
from .backends import run_started_event

_CACHE_SIZE = 256


class ThreadState(Struct, frozen=True):
    """History, active agent and values of a thread after one of its runs."""

    last_run: str = ""
    first_run: str = ""
    entries: tuple[HistoryEntry, ...] = ()
    active_agent: str = ""
    values: Mapping[str, Any] = {}
    """The values for the next run: those whose keys begin with `thread:`."""
    summaries: tuple[HistorySummary, ...] = ()
    """The summaries that the next run reads instead of the first entries."""
    tasks: tuple[OpenTask, ...] = ()
    """The open tasks, the innermost last."""
    requests: tuple[RequestRef, ...] = ()
    """The last model requests, which those of the next run refer to."""


NO_THREAD = ThreadState()
"""The state before the first run of a thread, or without a thread."""


class ThreadReader:
    """Reads threads from a store and caches their state: finished runs do not change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: OrderedDict[tuple[str, int], ThreadState] = OrderedDict()

    async def latest(self, thread: str) -> ThreadState:
        """Return the state after the last run. Raises ThreadBusyError if it has not finished."""
        page = await self._store.list(thread=thread, limit=1)
        if not page.records:
            return NO_THREAD
        last = page.records[0]
        if last.status not in FINISHED_STATUSES:
            raise ThreadBusyError(thread, last.run_id, last.status)
        return await self.read(last)

    async def state_after(self, run_id: str) -> ThreadState:
        """Return the state after a run; an empty one if there is no such run or it has been deleted."""
        record = await self._store.record(run_id) if run_id else None
        return NO_THREAD if record is None else await self.read(record)

    async def read(self, record: RunRecord) -> ThreadState:
        """Return the state after a run: go back to the first or a cached run, then forward again."""
        unread: list[tuple[RunRecord, list[Event]]] = []
        cached: ThreadState | None = None
        current: RunRecord | None = record
        oldest = await self._store.list(thread=record.thread, limit=1, oldest_first=True)
        first_run = oldest.records[0].run_id if oldest.records else ""
        while current is not None:
            cached = self._cache.get((current.run_id, current.seq))
            # Another worker may have trimmed the thread since.
            if cached is not None and cached.first_run == first_run:
                break
            cached = None
            events = decode_lines(await self._store.load(current.run_id))
            require_known_events(events)
            unread.append((current, events))
            previous = run_started_event(events).previous_run_id
            current = await self._store.record(previous) if previous else None
        state = cached or NO_THREAD
        if not unread:
            return state
        # One list for all runs: a copy for each of them would make long threads cost the square of their length.
        entries, active, requests = list(state.entries), state.active_agent, state.requests
        for run, events in reversed(unread):
            extend_history(entries, events)
            active = last_active_agent(events) or active
            requests = recent_requests(requests, run.run_id, events)
        last, events = unread[0]
        values, summaries, tasks = _thread_values(events), summaries_from_log(events), open_tasks(events)
        state = ThreadState(last.run_id, first_run, tuple(entries), active, values, summaries, tasks, requests)
        self._cache[last.run_id, last.seq] = state
        while len(self._cache) > _CACHE_SIZE:
            self._cache.popitem(last=False)
        return state


def _thread_values(events: Sequence[Event]) -> dict[str, Any]:
    """Return the values for the next run: those that this run started with, and its changes."""
    values = {k: v for k, v in run_started_event(events).values.items() if k.startswith(THREAD_PREFIX)}
    for event in events:
        changes: ValueChanges | None = getattr(event, "value_changes", None)
        if changes is not None:
            values.update({key: value for key, value in changes.written.items() if key.startswith(THREAD_PREFIX)})
            for key in changes.removed:
                values.pop(key, None)
    return values


class Thread:
    """A conversation in a store; created by `runner.thread(id)`."""

    def __init__(self, id: str, store: Store, reader: ThreadReader) -> None:
        self.id = id
        """The thread's id."""
        self._store = store
        self._reader = reader

    def __repr__(self) -> str:
        return f"Thread({self.id!r})"

    async def runs(self) -> list[RunRecord]:
        """Return the records of its runs, oldest first."""
        return [record async for record in iter_records(self._store, thread=self.id, oldest_first=True)]

    async def waiting(self) -> list[WaitingMessage]:
        """Return the messages that wait for its unfinished run, oldest first."""
        return [*await self._store.inbox(self.id)]

    async def messages(self) -> tuple[Message, ...]:
        """Return all messages of the conversation."""
        return tuple([entry.message for entry in (await self._state()).entries])

    async def active_agent(self) -> str:
        """Return the agent that the next run starts with; "" if no agent was active yet."""
        return (await self._state()).active_agent

    async def open_tasks(self) -> tuple[OpenTask, ...]:
        """Return the tasks that agents were handed and have not ended, the innermost last."""
        return (await self._state()).tasks

    async def events(self) -> list[Event]:
        """Return the events of all its runs, oldest first."""
        events: list[Event] = []
        for record in await self.runs():
            events += decode_lines(await self._store.load(record.run_id))
        return events

    async def trim(self, keep: int) -> int:
        """Delete all but the last runs, so that their messages are no longer read.

        A summary of deleted messages that the remaining runs read stays. Runs since the one that opened the first open
        task are kept, so that its caller can read the result in context.

        Args:
            keep: The number of runs to keep.

        Returns:
            The number of deleted runs.

        Raises:
            ThreadBusyError: A run that would be deleted has not finished.
        """
        if keep < 0:
            raise SetupError(f"trim(keep={keep}) is negative; pass 0 or more")
        records = await self.runs()
        cut = max(0, len(records) - keep)
        opened = {task.run_id for task in (await self._state()).tasks}
        cut = next((place for place, record in enumerate(records[:cut]) if record.run_id in opened), cut)
        return await self._delete(records[:cut], busy=("running", "suspended"))

    async def delete(self) -> int:
        """Delete the whole conversation, with the messages that wait.

        Returns:
            The number of deleted runs.

        Raises:
            ThreadBusyError: One of its runs is running.
        """
        count = await self._delete(await self.runs(), busy=("running",))
        for message in await self.waiting():
            await self._store.withdraw(message.run_id)
        return count

    async def _delete(self, records: Sequence[RunRecord], *, busy: Sequence[RunStatus]) -> int:
        for record in records:
            if record.status in busy:
                raise ThreadBusyError(self.id, record.run_id, record.status)
        return sum([await self._store.delete(record.run_id) for record in records])

    async def _state(self) -> ThreadState:
        page = await self._store.list(thread=self.id, limit=1)
        try:
            return await self._reader.read(page.records[0]) if page.records else NO_THREAD
        except RunNotFoundError:
            return NO_THREAD
