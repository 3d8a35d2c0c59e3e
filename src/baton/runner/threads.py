"""Conversations: runs of one thread, one after the other, that share what was said and who has the floor."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..context import HistoryEntry
from ..errors import LogError, RunNotFoundError, SetupError, ThreadBusyError
from ..events import Event, RunStarted, decode_lines
from ..flow.log_history import history_from_log, last_active_agent
from ..messages import Message
from ..stores import FINISHED_STATUSES, RunRecord, Store, iter_records

_KEPT = 256


class ThreadState(Struct, frozen=True):
    """What was said in a thread up to and with one of its runs, and who had the floor at its end."""

    last_run: str = ""
    first_run: str = ""
    entries: tuple[HistoryEntry, ...] = ()
    floor: str = ""


class ThreadReader:
    """Reads conversations from a store. What it has read it keeps for a while: finished runs do not change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: OrderedDict[tuple[str, int], ThreadState] = OrderedDict()

    async def latest(self, thread: str) -> ThreadState:
        """The conversation up to the last run of the thread. Raises ThreadBusyError if that run has not ended."""
        page = await self._store.list(thread=thread, limit=1)
        if not page.records:
            return ThreadState()
        last = page.records[0]
        if last.status not in FINISHED_STATUSES:
            raise ThreadBusyError(thread, last.run_id, last.status)
        return await self.read(last)

    async def up_to(self, run_id: str) -> tuple[HistoryEntry, ...]:
        """What was said up to and with a run; nothing, if it has been deleted since."""
        record = await self._store.record(run_id)
        return () if record is None else (await self.read(record)).entries

    async def check_follows(self, thread: str, run_id: str, follows: str) -> None:
        """Make sure that no other run of the thread has come between. If one has, the new run is taken back."""
        page = await self._store.list(thread=thread, limit=2)
        between = [record for record in page.records if record.run_id != run_id]
        if between and between[0].run_id != follows:
            await self._store.delete(run_id)
            raise ThreadBusyError(thread, between[0].run_id, "just ended")

    async def read(self, record: RunRecord) -> ThreadState:
        """Read back to the first run of the thread, or to one that is known; then forward again."""
        waiting: list[tuple[RunRecord, list[Event]]] = []
        known: ThreadState | None = None
        current: RunRecord | None = record
        oldest = await self._store.list(thread=record.thread, limit=1, oldest_first=True)
        first_run = oldest.records[0].run_id if oldest.records else ""
        while current is not None:
            known = self._read.get((current.run_id, current.seq))
            # The thread may have been trimmed since, by somebody else.
            if known is not None and known.first_run == first_run:
                break
            known = None
            events = decode_lines(await self._store.load(current.run_id))
            waiting.append((current, events))
            current = await self._before(events)
        conversation = known or ThreadState()
        for each, events in reversed(waiting):
            entries = (*conversation.entries, *history_from_log(events))
            floor = last_active_agent(events) or conversation.floor
            conversation = ThreadState(each.run_id, first_run, entries, floor)
            self._keep(each, conversation)
        return conversation

    async def _before(self, events: Sequence[Event]) -> RunRecord | None:
        started = events[0] if events else None
        if not isinstance(started, RunStarted):
            raise LogError(0, "it is not the log of a run")
        return await self._store.record(started.previous_run_id) if started.previous_run_id else None

    def _keep(self, record: RunRecord, conversation: ThreadState) -> None:
        self._read[record.run_id, record.seq] = conversation
        while len(self._read) > _KEPT:
            self._read.popitem(last=False)


class Thread:
    """One conversation in a store: who has the floor, what was said, and its runs."""

    def __init__(self, id: str, store: Store, conversations: ThreadReader) -> None:
        self.id = id
        self._store = store
        self._conversations = conversations

    async def runs(self) -> list[RunRecord]:
        """Its runs, the oldest first."""
        return [record async for record in iter_records(self._store, thread=self.id, oldest_first=True)]

    async def messages(self) -> tuple[Message, ...]:
        """Everything that was said in it, by whomever."""
        return tuple([entry.message for entry in (await self._conversation()).entries])

    async def active_agent(self) -> str:
        """The agent that had the floor last; "" if nobody had it yet."""
        return (await self._conversation()).floor

    async def trim(self, keep: int) -> int:
        """Forget all but the last `keep` runs; how many were forgotten. What was said in them is not read any more.

        Raises ThreadBusyError if one that has not ended would be among them.
        """
        if keep < 0:
            raise SetupError(f"trim(keep={keep}) cannot keep that many runs; give 0 or more")
        records = await self.runs()
        forgotten = records[: max(0, len(records) - keep)]
        for record in forgotten:
            if record.status not in FINISHED_STATUSES:
                raise ThreadBusyError(self.id, record.run_id, record.status)
        return await self._forget(forgotten)

    async def delete(self) -> int:
        """Forget the whole conversation; how many runs it had. Raises ThreadBusyError if one of them is running."""
        records = await self.runs()
        for record in records:
            if record.status == "running":
                raise ThreadBusyError(self.id, record.run_id, record.status)
        return await self._forget(records)

    async def events(self) -> list[Event]:
        """All events of all its runs, the oldest first."""
        events: list[Event] = []
        for record in await self.runs():
            events += decode_lines(await self._store.load(record.run_id))
        return events

    async def _forget(self, records: Iterable[RunRecord]) -> int:
        return sum([await self._store.delete(record.run_id) for record in records])

    async def _conversation(self) -> ThreadState:
        page = await self._store.list(thread=self.id, limit=1)
        if not page.records:
            return ThreadState()
        try:
            return await self._conversations.read(page.records[0])
        except RunNotFoundError:
            return ThreadState()
