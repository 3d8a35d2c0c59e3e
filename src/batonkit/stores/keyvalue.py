"""A store over any object that can get and set bytes by key: a cache, a bucket, a table of blobs."""

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeVar, Unpack
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from ..arguments import check_arguments, check_positive
from ..errors import LogError, RunExistsError, SetupError, StoreError, ThreadBusyError
from ..events.codec import READER_VERSION
from ..wording import type_of
from . import inbox as inboxes
from . import records
from .base import FINISHED_STATUSES, Lease, RecordPage, RunFilters, RunFlags, RunRecord, RunStatus, WaitingMessage
from .records import Append, LeaseMethods, NewLog, keeps_thread_busy, pack_lines, unpack_lines

T = TypeVar("T")

VERSION = 3
_OLD_VERSION = 2
"""The version whose heads do not say which messages were taken."""
INDEX_PAGE_SIZE = 256


class BlobClient:
    """Access to a sync or async backend; its failures become StoreError."""

    def __init__(self, backend: Any, prefix: str) -> None:
        for method in ("get", "set"):
            if not callable(getattr(backend, method, None)):
                raise SetupError(
                    f"{type_of(backend)} has no method `{method}`; KeyValueStore needs "
                    "get(key) -> bytes | None and set(key, bytes), sync or async"
                )
        self._backend = backend
        self._prefix = prefix
        self.name = f"KeyValueStore({type(backend).__name__})"

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key, or None; an empty value counts as deleted."""
        found = await self._call("get", self._prefix + key)
        if found is None or isinstance(found, bytes | bytearray):
            return bytes(found) if found else None
        raise StoreError(f"get({self._prefix + key!r}) returned {type_of(found)}, not bytes", store=self.name)

    async def read(self, key: str, decode: Callable[[bytes], T], what: str) -> T | None:
        """Return the decoded value of a key, or None. Raises StoreError if it is damaged."""
        blob = await self.get(key)
        try:
            return None if blob is None else decode(blob)
        except ValueError as problem:
            raise StoreError(f"cannot read {what}: {problem}", store=self.name) from problem

    async def set(self, key: str, value: bytes) -> None:
        """Set the value of a key."""
        await self._call("set", self._prefix + key, value)

    async def remove(self, key: str) -> None:
        """Delete a key, or set it to empty bytes if the backend has no `delete`."""
        if callable(getattr(self._backend, "delete", None)):
            await self._call("delete", self._prefix + key)
        else:
            await self.set(key, b"")

    async def _call(self, method: str, key: str, *rest: bytes) -> Any:
        try:
            result = getattr(self._backend, method)(key, *rest)
            return await result if inspect.isawaitable(result) else result
        except Exception as failure:
            reason = f"{type(failure).__name__}: {failure}"
            raise StoreError(f"{method}({key!r}) failed ({reason})", store=self.name) from failure


class RunHead(NamedTuple):
    """A run's record, the first lines of its segments, its newest lines, and what it took."""

    record: RunRecord
    segments: Sequence[int]
    tail: Sequence[bytes]
    taken: int = 0
    """The number of the last waiting message that it took; 0 if it took none."""

    def ends(self) -> Sequence[int]:
        """Return the number of the line after each segment."""
        return (*self.segments[1:], self.record.seq - len(self.tail)) if self.segments else ()

    def encode(self) -> bytes:
        """Encode to bytes with a checksum."""
        numbers = _ENCODER.encode((VERSION, self.taken, *self.segments))
        return pack_lines((_ENCODER.encode(self.record), numbers, *self.tail))

    @classmethod
    def decode(cls, blob: bytes) -> "RunHead":
        """Decode. Raises ValueError if the bytes are damaged or have another layout."""
        record, numbers, *tail = unpack_lines(blob)
        version, *segments = _NUMBERS.decode(numbers)
        if version == _OLD_VERSION:
            return cls(_RECORD.decode(record), segments, tail)
        if version != VERSION:
            raise ValueError(f"its layout is version {version}; this Baton reads version {VERSION}")
        return cls(_RECORD.decode(record), segments[1:], tail, segments[0])


Messages = list[WaitingMessage]
"""Waiting messages, oldest first."""
Entry = tuple[int, str]
"""The number and the id of a run."""


class RunIndex:
    """The numbers and ids of all runs, or of a thread's, in pages of limited size."""

    def __init__(self, client: BlobClient, name: str) -> None:
        self._client = client
        self._name = name

    async def next_number(self) -> int:
        """Return a number that no run of this index had before."""
        number = int(await self._client.get(f"{self._name}/created") or b"0") + 1
        await self._client.set(f"{self._name}/created", b"%d" % number)
        return number

    async def add(self, entry: Entry) -> None:
        """Add a run to the last page, or to a new one."""
        number = await self._last_page()
        page = await self._load_page(number)
        if len(page) >= INDEX_PAGE_SIZE:
            number, page = number + 1, []
            await self._client.set(f"{self._name}/newest", b"%d" % number)
        await self._put(number, [*page, entry])

    async def remove(self, entry: Entry) -> None:
        """Remove a run."""
        for number in range(await self._last_page(), -1, -1):
            page = await self._load_page(number)
            if entry in page:
                await self._put(number, [other for other in page if other != entry])

    async def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""
        pages = [await self._load_page(number) for number in range(await self._last_page() + 1)]
        return sorted({entry for page in pages for entry in page})

    async def _last_page(self) -> int:
        return int(await self._client.get(f"{self._name}/newest") or b"0")

    async def _load_page(self, number: int) -> list[Entry]:
        key = f"{self._name}/{number}"
        return await self._client.read(key, _decode_entries, f"the list of runs under `{key}`") or []

    async def _put(self, number: int, page: Sequence[Entry]) -> None:
        await self._client.set(f"{self._name}/{number}", pack_lines([_ENCODER.encode(page)]))


_ENCODER = msgspec.json.Encoder()
_NUMBERS = msgspec.json.Decoder(list[int])
_RECORD = msgspec.json.Decoder(RunRecord)
_MESSAGES = msgspec.json.Decoder(list[WaitingMessage])


def _decode_entries(blob: bytes) -> list[Entry]:
    return msgspec.json.decode(unpack_lines(blob)[0], type=list[Entry])


def _decode_messages(blob: bytes) -> list[WaitingMessage]:
    return _MESSAGES.decode(unpack_lines(blob)[0])


def _decode_threads(blob: bytes) -> list[str]:
    return msgspec.json.decode(unpack_lines(blob)[0], type=list[str])


MAX_TAIL = 16_384
"""Maximum size of the lines in a head, in bytes; more lines become a segment."""


class KeyValueStore(LeaseMethods):
    """A store over any object that can get and set bytes by key.

    Such a backend cannot compare and set, so only one process may use it at a time: within it all guarantees of a
    store hold, but two processes that write to one run at the same moment are not detected.

    An append sets one key, the head: the record and the newest lines. A full head becomes a segment, which is set once,
    so that the size of an append does not grow with the log.

    Args:
        backend: An object with `get(key) -> bytes | None`, `set(key, bytes)` and, if possible, `delete(key)`; its
            methods may be sync or async.
        prefix: Prepended to every key.
        lease_seconds: How long a run stays reserved for a worker that died.
        clock: Returns the time, for tests.
    """

    @check_arguments
    def __init__(
        self,
        backend: Any,
        *,
        prefix: str = "baton/",
        lease_seconds: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_positive("KeyValueStore(lease_seconds=…)", lease_seconds)
        self.lease_seconds = lease_seconds
        """Seconds for which a run stays reserved for a worker that died."""
        self._client = BlobClient(backend, prefix)
        self._clock = clock
        self._all = RunIndex(self._client, "runs")
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __repr__(self) -> str:
        return self._client.name

    async def _create(self, record: RunRecord, log: NewLog, previous: str | None, *, from_inbox: bool) -> Lease:
        async with self._lock(f"run {record.run_id}"), self._thread_lock(record.thread):
            if await self._find(record.run_id) is not None:
                raise RunExistsError(record.run_id)
            await self._check_not_busy(record)
            waiting = await self._clean_inbox(record.thread) if record.thread else ()
            oldest = waiting[0].run_id if waiting else ""
            inboxes.check_turn(record.thread, oldest, record.run_id, from_inbox=from_inbox)
            last = records.check_previous(record.thread, await self._last_run(record.thread), previous)
            # Setting the head creates the run: if that fails, the index has a run too many, which does no harm.
            async with self._lock("index"):
                record = replace(
                    record,
                    number=await self._all.next_number(),
                    previous=last,
                    inbox=inboxes.state_of(waiting[1:]) if from_inbox else "",
                )
                for index in self._indexes(record.thread):
                    await index.add((record.number, record.run_id))
            if log.forked_from:
                # After it was indexed: an `erase` that deletes the other run meanwhile finds this one.
                record = records.after_fork(record, (await self._get(log.forked_from)).record)
            await self._claim_thread(record)
            # Before the head: a run that exists has its notes.
            if log.notes:
                await self._put_notes(record.run_id, log.notes)
            await self._put(RunHead(record, (), ()), log.lines)
            if from_inbox:
                await self._set_inbox(record.thread, waiting[1:])
                await self._client.remove(_message(record.run_id))
        return records.to_lease(record)

    async def _append(self, change: Append) -> RunFlags:
        async with self._lock(f"run {change.run_id}"):
            head = await self._get(change.run_id)
            record = change.apply(head.record, self._clock())
            is_revived = keeps_thread_busy(record.status) and not keeps_thread_busy(head.record.status)
            async with self._thread_lock(record.thread if is_revived or change.take else ""):
                if is_revived:
                    await self._check_not_busy(record)
                    if record.thread:
                        records.check_is_last(record.run_id, await self._last_run(record.thread))
                    await self._claim_thread(record)
                if change.take:
                    return await self._append_taking(change, record, head)
                if change.notes:
                    await self._put_notes(change.run_id, change.notes)
                await self._put(RunHead(record, head.segments, head.tail, head.taken), change.lines)
        return records.to_flags(record)

    async def _append_taking(self, change: Append, record: RunRecord, head: RunHead) -> RunFlags:
        waiting, count = await self._clean_inbox(record.thread), len(change.take)
        inboxes.check_taken(change.take, [message.run_id for message in waiting[:count]])
        record = replace(record, inbox=inboxes.state_of(waiting[count:]))
        if change.notes:
            await self._put_notes(change.run_id, change.notes)
        # The head says which messages were taken, in case the process dies before the inbox is set.
        await self._put(RunHead(record, head.segments, head.tail, waiting[count - 1].number), change.lines)
        await self._set_inbox(record.thread, waiting[count:])
        for run_id in change.take:
            await self._client.remove(_message(run_id))
        return records.to_flags(record)

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """Load lines; see `Store.load`."""
        head = await self._get(run_id)
        needed = [segment for segment, end in zip(head.segments, head.ends(), strict=True) if end > start]
        pieces = await asyncio.gather(*(self._client.get(_segment(run_id, first)) for first in needed))
        found: list[tuple[int, bytes]] = []
        for first, piece in zip(needed, pieces, strict=True):
            if piece is None:
                raise LogError(first, f"the segment that starts there is missing from {self._client.name}")
            found.append((first, piece))
        if head.tail:
            found.append((head.record.seq - len(head.tail), pack_lines(head.tail)))
        return records.join_pieces(found, start=start, end=head.record.seq)

    async def record(self, run_id: str) -> RunRecord | None:
        """Return a run's record; see `Store.record`."""
        head = await self._find(run_id)
        return None if head is None else records.read_at(head.record, self._clock())

    async def list(self, **filters: Unpack[RunFilters]) -> RecordPage:
        """Return a page of records, reading every head that the index cannot rule out."""
        query = records.parse_filters(filters)
        entries = await self._indexes(query.thread)[-1].entries()
        if query.count_total or query.order_by == "changed":
            found = [await self._record_at(entry) for entry in entries]
            return records.select_page(query, [record for record in found if record is not None])
        page: list[RunRecord] = []
        for entry in entries if query.oldest_first else reversed(entries):
            record = await self._record_at(entry) if query.is_beyond((entry[0],)) else None
            if record is not None and query.accepts(record):
                page.append(record)
                if len(page) > query.limit:
                    break
        return records.make_page(query, page)

    async def runnable(
        self, *, teams: Collection[str] | None = None, limit: int = 100, reader: int = READER_VERSION
    ) -> Sequence[RunRecord]:
        """Return the runs to drive, reading every head."""
        now = self._clock()
        found = [await self._record_at(entry) for entry in await self._all.entries()]
        due = [record for record in found if record is not None and records.is_runnable(record, teams, reader, now)]
        return sorted(due, key=records.runnable_order)[:limit]

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        """Renew leases; see `Store.renew`."""
        renewed: dict[str, Lease] = {}
        for lease in leases:
            record = await self._update_record(
                lease.run_id, partial(records.after_renew, lease=lease, ttl=ttl, now=self._clock())
            )
            if record is not None:
                renewed[lease.run_id] = records.to_lease(record)
        return renewed

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Set or remove a note; see `Store.put_note`."""
        records.check_names(run_id, name=name)
        async with self._lock(f"run {run_id}"):
            await self._get(run_id)
            await self._put_notes(run_id, {name: note})

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """Return a run's notes; see `Store.notes`."""
        return records.public_notes(await self._all_notes(run_id))

    async def read_notes(self, run_ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one note of several runs; see `Store.read_notes`."""
        found = {run_id: (await self._all_notes(run_id)).get(name) for run_id in run_ids}
        return {run_id: note for run_id, note in found.items() if note is not None}

    async def _all_notes(self, run_id: str) -> dict[str, bytes]:
        pairs = await self._client.read(_notes(run_id), unpack_lines, f"the notes of run `{run_id}`") or ()
        return {name.decode(): note for name, note in zip(pairs[::2], pairs[1::2], strict=True)}

    async def _put_notes(self, run_id: str, changes: Mapping[str, bytes | None]) -> None:
        """Set or remove notes of a run, which must be locked."""
        notes: dict[str, bytes | None] = {**await self._all_notes(run_id), **changes}
        pairs = [part for name, note in notes.items() if note is not None for part in (name.encode(), note)]
        await self._client.set(_notes(run_id), pack_lines(pairs))

    async def delete(self, run_id: str) -> bool:
        """Delete a run; see `Store.delete`."""
        return await self._delete_if(run_id, lambda record: True)

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Delete old runs; see `Store.expire`."""
        is_expired = partial(
            records.is_expired, older_than=older_than, status=records.check_statuses(status), now=self._clock()
        )
        return sum([await self._delete_if(run_id, is_expired) for _, run_id in await self._all.entries()])

    async def erase(self, *, owner: str = "", thread: str = "") -> int:
        """Delete everything of an owner or a thread, reading every head; see `Store.erase`."""
        origin = records.erased_origin(owner, thread)
        for name in [thread] if thread else await self._inbox_threads():
            for message in await self._read_inbox(name):
                if not owner or message.owner == owner:
                    await self.withdraw(message.run_id)
        has_data, erased = partial(records.has_data_of, origin=origin), 0
        while count := sum([await self._delete_if(run_id, has_data) for _, run_id in await self._all.entries()]):
            erased += count
        return erased

    async def enqueue(self, message: WaitingMessage, *, limit: int) -> bool:
        """Add a waiting message; see `Store.enqueue`."""
        records.check_names(message.run_id, thread=message.thread, owner=message.owner)
        thread = message.thread
        async with self._lock(f"message {message.run_id}"), self._locked_thread(thread) as head:
            if await self._find(message.run_id) is not None or await self.waiting(message.run_id) is not None:
                raise RunExistsError(message.run_id)
            waiting = await self._clean_inbox(thread)
            inboxes.check_room(thread, len(waiting), limit)
            async with self._lock("index"):
                number = int(await self._client.get("messages/created") or b"0") + 1
                await self._client.set("messages/created", b"%d" % number)
            await self._client.set(_message(message.run_id), thread.encode())
            waiting.append(replace(message, number=number, created_at=self._clock()))
            await self._set_inbox(thread, waiting)
            if head is not None:
                record = inboxes.after_enqueue(head.record, inboxes.state_of(waiting), message.mode)
                await self._put(head._replace(record=record), ())
            return head is not None

    async def waiting(self, run_id: str) -> WaitingMessage | None:
        """Return a waiting message; see `Store.waiting`."""
        thread = ((await self._client.get(_message(run_id))) or b"").decode()
        messages = await self._read_inbox(thread) if thread else ()
        return next((message for message in messages if message.run_id == run_id), None)

    async def inbox(self, thread: str, *, limit: int = 100) -> Sequence[WaitingMessage]:
        """Return the messages of a thread; see `Store.inbox`."""
        return (await self._read_inbox(thread))[:limit]

    async def withdraw(self, run_id: str) -> bool:
        """Remove a waiting message; see `Store.withdraw`."""
        thread = ((await self._client.get(_message(run_id))) or b"").decode()
        if not thread:
            return False
        async with self._locked_thread(thread) as head:
            waiting = await self._clean_inbox(thread)
            left = [message for message in waiting if message.run_id != run_id]
            if len(left) < len(waiting):
                await self._set_inbox(thread, left)
                await self._client.remove(_message(run_id))
                await self._tell(head, left)
            return len(left) < len(waiting)

    async def notify(self, thread: str) -> bool:
        """Tell a thread's unfinished run what waits; see `Store.notify`."""
        async with self._locked_thread(thread) as head:
            await self._tell(head, await self._clean_inbox(thread))
            return head is not None

    async def idle_threads(self, *, limit: int = 100) -> Sequence[str]:
        """Return threads whose messages wait for no run; see `Store.idle_threads`."""
        idle = [waiting for each in await self._inbox_threads() if (waiting := await self._read_inbox(each))]
        oldest = [waiting[0] for waiting in idle if await self._busy_head(waiting[0].thread) is None]
        return [message.thread for message in sorted(oldest, key=lambda message: message.number)[:limit]]

    async def close(self) -> None:
        """Do nothing: the backend belongs to its creator."""

    async def _update_record(self, run_id: str, update: Callable[[RunRecord], RunRecord | None]) -> RunRecord | None:
        async with self._lock(f"run {run_id}"):
            head = await self._find(run_id)
            record = None if head is None else update(head.record)
            if head is not None and record is not None:
                await self._put(head._replace(record=record), ())
            return record

    async def _put(self, head: RunHead, lines: Sequence[bytes]) -> None:
        """Set a head with additional lines; a segment is set before the head that refers to it."""
        tail = (*head.tail, *lines)
        if sum(map(len, tail)) > MAX_TAIL:
            first = head.record.seq - len(tail)
            await self._client.set(_segment(head.record.run_id, first), pack_lines(tail))
            head = RunHead(head.record, (*head.segments, first), (), head.taken)
        else:
            head = head._replace(tail=tail)
        await self._client.set(f"head/{head.record.run_id}", head.encode())

    async def _delete_if(self, run_id: str, condition: Callable[[RunRecord], bool]) -> bool:
        """Delete a run whose record fulfils a condition; return whether it was deleted."""
        async with self._lock(f"run {run_id}"):
            head = await self._find(run_id)
            if head is None or not condition(head.record):
                return False
            for key in (f"head/{run_id}", _notes(run_id), *(_segment(run_id, first) for first in head.segments)):
                await self._client.remove(key)
            async with self._lock("index"):
                for index in self._indexes(head.record.thread):
                    await index.remove((head.record.number, run_id))
            return True

    @asynccontextmanager
    async def _locked_thread(self, thread: str) -> AsyncGenerator[RunHead | None]:
        """Lock a thread and its unfinished run; yields the head of that run, if there is one."""
        while True:
            head = await self._busy_head(thread)
            lock = nullcontext() if head is None else self._lock(f"run {head.record.run_id}")
            async with lock, self._thread_lock(thread):
                found = await self._busy_head(thread)
                # The run may have ended, or another one begun, before the locks were acquired.
                if (found is None) == (head is None) and (
                    found is None or head is None or found.record.run_id == head.record.run_id
                ):
                    yield found
                    return

    async def _busy_head(self, thread: str) -> RunHead | None:
        """Return the head of a thread's unfinished run."""
        head = await self._last_busy(thread)
        return head if head is not None and keeps_thread_busy(head.record.status) else None

    async def _last_busy(self, thread: str) -> RunHead | None:
        run_id = ((await self._client.get(_busy(thread))) or b"").decode() if thread else ""
        head = await self._find(run_id) if run_id else None
        return head if head is not None and head.record.thread == thread else None

    async def _inbox_threads(self) -> Sequence[str]:
        return await self._client.read("inboxes", _decode_threads, "the list of inboxes") or ()

    async def _read_inbox(self, thread: str) -> Messages:
        """Return the messages of a thread, without those that a run has taken."""
        return await self._without_taken(thread, await self._stored_inbox(thread))

    async def _clean_inbox(self, thread: str) -> Messages:
        """Remove messages that were taken, and return the others; the thread must be locked."""
        stored = await self._stored_inbox(thread)
        messages = await self._without_taken(thread, stored)
        if len(stored) > len(messages):
            await self._set_inbox(thread, messages)
        return messages

    async def _stored_inbox(self, thread: str) -> Messages:
        return await self._client.read(_inbox(thread), _decode_messages, f"the inbox of thread `{thread}`") or []

    async def _without_taken(self, thread: str, stored: Messages) -> Messages:
        last = await self._last_busy(thread) if stored else None
        if last is None:
            return stored
        run_id, taken = last.record.run_id, last.taken
        return [message for message in stored if message.number > taken and message.run_id != run_id]

    async def _set_inbox(self, thread: str, messages: Sequence[WaitingMessage]) -> None:
        async with self._lock("index"):
            threads = await self._inbox_threads()
            if messages and thread not in threads:
                await self._client.set("inboxes", pack_lines([_ENCODER.encode([*threads, thread])]))
            if messages:
                await self._client.set(_inbox(thread), pack_lines([_ENCODER.encode(messages)]))
                return
            await self._client.remove(_inbox(thread))
            left = [other for other in threads if other != thread]
            await self._client.set("inboxes", pack_lines([_ENCODER.encode(left)]))

    async def _tell(self, head: RunHead | None, waiting: Sequence[WaitingMessage]) -> None:
        """Set `inbox` of a run, which must be locked."""
        if head is not None:
            await self._put(head._replace(record=replace(head.record, inbox=inboxes.state_of(waiting))), ())

    async def _check_not_busy(self, record: RunRecord) -> None:
        """Raise ThreadBusyError if the thread of a run has another unfinished one."""
        if not record.thread or not keeps_thread_busy(record.status):
            return
        busy = ((await self._client.get(_busy(record.thread))) or b"").decode()
        head = await self._find(busy) if busy and busy != record.run_id else None
        if head is not None and head.record.thread == record.thread and keeps_thread_busy(head.record.status):
            raise ThreadBusyError(record.thread, busy, head.record.status)

    async def _claim_thread(self, record: RunRecord) -> None:
        if record.thread and keeps_thread_busy(record.status):
            await self._client.set(_busy(record.thread), record.run_id.encode())

    async def _last_run(self, thread: str) -> str:
        if thread:
            for entry in reversed(await self._indexes(thread)[-1].entries()):
                if await self._record_at(entry) is not None:
                    return entry[1]
        return ""

    async def _record_at(self, entry: Entry) -> RunRecord | None:
        """Return the record of an entry, unless the run was deleted or created again since."""
        record = await self.record(entry[1])
        return record if record is not None and record.number == entry[0] else None

    async def _find(self, run_id: str) -> RunHead | None:
        return await self._client.read(f"head/{run_id}", RunHead.decode, f"the head of run `{run_id}`")

    async def _get(self, run_id: str) -> RunHead:
        return records.require_run(await self._find(run_id), run_id, self)

    def _indexes(self, thread: str | None) -> tuple[RunIndex, ...]:
        return (self._all, RunIndex(self._client, f"thread/{thread}")) if thread else (self._all,)

    def _thread_lock(self, thread: str) -> AbstractAsyncContextManager[Any]:
        return self._lock(f"thread {thread}") if thread else nullcontext()

    def _lock(self, name: str) -> asyncio.Lock:
        """Return a lock that exists while it is held.

        Take locks in the order message, run, thread, index.
        """
        if (lock := self._locks.get(name)) is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock


def _segment(run_id: str, first: int) -> str:
    # The number first, so that no run id can look like the segment of another run.
    return f"segment/{first}/{run_id}"


def _busy(thread: str) -> str:
    return f"busy/{thread}"


def _inbox(thread: str) -> str:
    return f"inbox/{thread}"


def _message(run_id: str) -> str:
    return f"message/{run_id}"


def _notes(run_id: str) -> str:
    return f"notes/{run_id}"
