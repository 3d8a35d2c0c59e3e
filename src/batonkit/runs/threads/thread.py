"""Threads: conversations that consist of consecutive runs, with a shared history and an active agent."""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ...errors import RunNotFoundError, SetupError, ThreadBusyError
from ...log import CallInDoubt, Event, HistorySummary, OpenTask, RunStarted, decode_lines
from ...log.entries import HistoryEntry, end_of_turn
from ...log.fold import extend_history
from ...messages import Message
from ...stores import (
    FINISHED_STATUSES,
    THREAD_NOTE,
    FullStore,
    RecordPage,
    RunNote,
    RunRecord,
    RunStatus,
    WaitingMessage,
    iter_records,
)
from ...stores.records import origins_left_by
from ..opening import run_started_event
from .parts import ThreadPart, part_from_log, part_from_note

_CACHE_SIZE = 256
_MAX_PAGE = 1000


class ThreadState(Struct, frozen=True):
    """History, active agent and values of a thread after one of its runs."""

    last_run: str = ""
    runs: int = 0
    """The number of runs that the thread had up to the last one."""
    entries: tuple[HistoryEntry, ...] = ()
    active_agent: str = ""
    values: Mapping[str, Any] = {}
    """The values for the next run: those whose keys begin with `thread:`."""
    summaries: tuple[HistorySummary, ...] = ()
    """The summaries that the next run reads instead of the first entries."""
    tasks: tuple[OpenTask, ...] = ()
    """The open tasks, the innermost last."""
    is_whole: bool = True
    """False if the entries that the summary for all readers replaces are left out."""
    calls_in_doubt: tuple[CallInDoubt, ...] = ()
    """The calls of tools that may have taken effect, and whose outcome is unknown."""
    origins: tuple[str, ...] = ()
    """The origins of its data: what `RunRecord.origins` of the next run must name besides its own owner and thread."""


NO_THREAD = ThreadState()
"""The state before the first run of a thread, or without a thread."""


class ThreadReader:
    """Reads threads from a store and caches their state: finished runs do not change."""

    def __init__(self, store: FullStore, *, reads_all: bool = True) -> None:
        self._store = store
        self._reads_all = reads_all
        self._cache: OrderedDict[tuple[str, int, bool], ThreadState] = OrderedDict()
        self._parts: OrderedDict[tuple[str, int], ThreadPart] = OrderedDict()
        """The parts of runs that ended here, which the next runs of their threads read."""

    async def latest(self, thread: str) -> ThreadState:
        """Return the state after the last run. Raises ThreadBusyError if it has not finished."""
        newest = await self._newest(thread)
        if not newest.records:
            return NO_THREAD
        last = newest.records[0]
        if last.status not in FINISHED_STATUSES:
            raise ThreadBusyError(thread, last.run_id, last.status)
        return await self._read(last, newest, whole=self._reads_all)

    async def state_before(self, started: RunStarted) -> ThreadState:
        """Return the state that a run continues, without the runs that have been deleted."""
        record = await self.run_before(started)
        return NO_THREAD if record is None else await self.read(record)

    async def run_before(self, started: RunStarted) -> RunRecord | None:
        """Return the run that a run follows; if it was deleted, the one before it."""
        previous = started.previous_run_id
        record = await self._store.record(started.run_id) if previous else None
        if record is None:
            # The log may be from elsewhere, and is only replayed.
            return await self._store.record(previous) if previous else None
        pages = _RunPages(self._store, record)
        before = await pages.before(RunNote(record.run_id, record.number, record.seq), previous)
        return None if before is None else await self._store.record(before.run_id)

    async def _newest(self, thread: str) -> RecordPage:
        """Return the last two runs of a thread, and the number of all."""
        return await self._store.list(thread=thread, limit=2, count_total=True)

    def remember(self, part: ThreadPart, seq: int) -> None:
        """Keep the part of a run that has ended here, which the next run of its thread needs."""
        _keep(self._parts, (part.run_id, seq), part)

    async def read(self, record: RunRecord, *, whole: bool = False) -> ThreadState:
        """Return the state after a run."""
        return await self._read(record, await self._newest(record.thread), whole=whole or self._reads_all)

    async def _read(self, record: RunRecord, newest: RecordPage, *, whole: bool) -> ThreadState:
        """Go back to the first or a cached run, then forward again."""
        unread: list[ThreadPart] = []
        state = NO_THREAD
        pages = _RunPages(self._store, record)
        current: RunNote | None = RunNote(record.run_id, record.number, record.seq)
        runs = _count_until(record, newest)
        while current is not None:
            cached = self._cache.get((current.run_id, current.seq, whole))
            # Runs before it may have been deleted since, by any process.
            if cached is not None and cached.runs == runs - len(unread):
                state = cached
                break
            part = self._parts.get((current.run_id, current.seq)) or await pages.part(current)
            unread.append(part)
            if not whole and _reaches_summary(unread):
                break
            current = await pages.before(current, part.previous)
        if unread:
            state = replace(_continue(state, unread, runs, whole=whole), origins=origins_left_by(record))
            if runs:
                _keep(self._cache, (record.run_id, record.seq, whole), state)
        return state


K = TypeVar("K")
V = TypeVar("V")


def _keep(cache: OrderedDict[K, V], key: K, value: V) -> None:
    cache[key] = value
    while len(cache) > _CACHE_SIZE:
        cache.popitem(last=False)


def _count_until(record: RunRecord, newest: RecordPage) -> int:
    """Return the number of runs up to one of the last two of a thread; 0 for others."""
    for later, one in enumerate(newest.records):
        if one.run_id == record.run_id and newest.total is not None:
            return newest.total - later
    return 0


def _shared_summary(part: ThreadPart | ThreadState) -> HistorySummary | None:
    return next((summary for summary in part.summaries if summary.readers == "all"), None)


def _reaches_summary(parts: Sequence[ThreadPart]) -> bool:
    """Return whether the newest run, given first, has a summary of all runs before these."""
    summary = _shared_summary(parts[0]) if parts[0].summaries else None
    if summary is None or summary.upto.run_id != parts[-1].run_id:
        return False
    # The end of a task is read where the task was opened, if no summary covered that place at the time.
    known = {"", *[part.run_id for part in parts]}
    return all(ended.task.run_id in known for part in parts for ended, _ in part.entries.ended_tasks.values())


def _continue(state: ThreadState, parts: Sequence[ThreadPart], runs: int, *, whole: bool) -> ThreadState:
    """Return the state of a thread after more runs, given with the newest first."""
    # One list for all runs: a copy for each of them would make long threads cost the square of their length.
    entries = list(state.entries)
    active = state.active_agent
    for part in reversed(parts):
        extend_history(entries, part.entries)
        active = part.active_agent or active
    last = parts[0]
    summary = None if whole else _shared_summary(last)
    if summary is not None:
        found = (place for place, entry in enumerate(entries) if entry.event == summary.upto)
        del entries[: end_of_turn(entries, next(found, -1))]
    return ThreadState(
        last.run_id,
        runs,
        tuple(entries),
        active,
        last.values,
        last.summaries,
        last.tasks,
        summary is None,
        last.calls_in_doubt,
    )


class _RunPages:
    """Reads the runs of a thread backwards.

    The last two are read alone, because all before them are cached in most cases; the rest in ever larger pages.
    """

    def __init__(self, store: FullStore, newest: RunRecord) -> None:
        self._store = store
        self._size = 0
        self._go_to(newest)

    def _go_to(self, run: RunRecord) -> None:
        self._thread = run.thread
        self._before = run.number if run.thread else 0
        self._page = deque[RunNote]()

    async def before(self, run: RunNote, previous: str) -> RunNote | None:
        """Return the run that a run follows; if it was deleted, the one before it."""
        if not previous:
            return None
        earlier = await self._earlier()
        if earlier is not None and earlier.run_id == previous:
            return earlier
        record = await self._store.record(previous)
        if record is None or not await self._is_before(record, run):
            return earlier
        self._go_to(record)
        return RunNote(record.run_id, record.number, record.seq)

    async def _earlier(self) -> RunNote | None:
        """Return the next run of the thread, backwards."""
        if not self._page and self._before:
            self._size = min(self._size * 8 or 1, _MAX_PAGE)
            page = await self._store.thread_notes(self._thread, THREAD_NOTE, before=self._before, limit=self._size)
            self._before = page[-1].number if len(page) == self._size else 0
            self._page.extend(page)
        return self._page.popleft() if self._page else None

    async def _is_before(self, record: RunRecord, run: RunNote) -> bool:
        """Return whether a run is the one that another follows, not a later one with its id."""
        if record.thread == self._thread:
            return record.number < run.number
        # A fork follows a run of another thread.
        return bool(run_started_event(decode_lines(await self._store.load(run.run_id))).forked_from)

    async def part(self, run: RunNote) -> ThreadPart:
        """Return the part of a run, from its note or else from its log."""
        note = run.note or (await self._store.read_notes([run.run_id], THREAD_NOTE)).get(run.run_id)
        part = None if note is None else part_from_note(note, run.run_id, run.seq)
        return part or part_from_log(decode_lines(await self._store.load(run.run_id)))


class Thread:
    """A conversation in a store; created by `runner.thread(id)`."""

    def __init__(self, id: str, store: FullStore, reader: ThreadReader) -> None:
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
        return tuple([entry.message for entry in (await self._state(whole=True)).entries])

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

    async def _state(self, *, whole: bool = False) -> ThreadState:
        page = await self._store.list(thread=self.id, limit=1)
        try:
            return await self._reader.read(page.records[0], whole=whole) if page.records else NO_THREAD
        except RunNotFoundError:
            return NO_THREAD
