"""A store over any object that can get and set bytes by key: a cache, a bucket, a table of blobs."""

import asyncio
import inspect
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, NamedTuple, Unpack
from weakref import WeakValueDictionary

import msgspec

from ..errors import LogError, RunExistsError, RunNotFoundError, SetupError, StoreError, ThreadBusyError
from . import records
from .base import FINISHED_STATUSES, Lease, RecordPage, RunFilters, RunRecord, RunStatus
from .records import (
    LeaseMethods,
    Position,
    join_pieces,
    make_page,
    pack_lines,
    parse_filters,
    select_page,
    unpack_lines,
)

VERSION = 1
INDEX_PAGE_SIZE = 256


class BlobClient:
    """Access to a sync or async backend; its failures become StoreError."""

    def __init__(self, backend: Any, prefix: str) -> None:
        for method in ("get", "set"):
            if not callable(getattr(backend, method, None)):
                raise SetupError(
                    f"a {type(backend).__name__} has no method `{method}`; KeyValueStore needs "
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
        raise StoreError(f"get({self._prefix + key!r}) returned a {type(found).__name__}, not bytes", store=self.name)

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
    """A run's record, the first line numbers of its segments, and its newest lines."""

    record: RunRecord
    segments: Sequence[int]
    tail: Sequence[bytes]

    def ends(self) -> Sequence[int]:
        """Return the number of the line after each segment."""
        return (*self.segments[1:], self.record.seq - len(self.tail)) if self.segments else ()

    def encode(self) -> bytes:
        """Encode to bytes with a checksum."""
        return pack_lines((_ENCODER.encode(self.record), _ENCODER.encode((VERSION, *self.segments)), *self.tail))

    @classmethod
    def decode(cls, blob: bytes) -> "RunHead":
        """Decode. Raises ValueError if the bytes are damaged or have a newer layout."""
        record, numbers, *tail = unpack_lines(blob)
        version, *segments = _NUMBERS.decode(numbers)
        if version > VERSION:
            raise ValueError(f"its layout is version {version}, made by a newer Baton; this one reads up to {VERSION}")
        return cls(_RECORD.decode(record), segments, tail)


class RunIndex:
    """The creation times and ids of all runs, or of a thread's, in pages of limited size."""

    def __init__(self, client: BlobClient, name: str) -> None:
        self._client = client
        self._name = name

    async def add(self, run_id: str, created_at: float) -> None:
        """Add a run to the last page, or to a new one."""
        number = await self._last_page()
        page = await self._load_page(number)
        if len(page) >= INDEX_PAGE_SIZE:
            number, page = number + 1, []
            await self._client.set(f"{self._name}/newest", b"%d" % number)
        await self._put(number, [*page, (created_at, run_id)])

    async def remove(self, run_id: str, created_at: float) -> None:
        """Remove a run."""
        for number in range(await self._last_page(), -1, -1):
            page = await self._load_page(number)
            if (created_at, run_id) in page:
                await self._put(number, [position for position in page if position != (created_at, run_id)])

    async def positions(self) -> list[Position]:
        """Return the positions of all runs, unordered."""
        pages = [await self._load_page(number) for number in range(await self._last_page() + 1)]
        return [*{position for page in pages for position in page}]

    async def _last_page(self) -> int:
        return int(await self._client.get(f"{self._name}/newest") or b"0")

    async def _load_page(self, number: int) -> list[Position]:
        blob = await self._client.get(f"{self._name}/{number}")
        if blob is None:
            return []
        try:
            return _POSITIONS.decode(unpack_lines(blob)[0])
        except ValueError as problem:
            message = f"cannot read the list of runs under `{self._name}/{number}`: {problem}"
            raise StoreError(message, store=self._client.name) from problem

    async def _put(self, number: int, page: Sequence[Position]) -> None:
        await self._client.set(f"{self._name}/{number}", pack_lines([_ENCODER.encode(page)]))


_ENCODER = msgspec.json.Encoder()
_NUMBERS = msgspec.json.Decoder(list[int])
_RECORD = msgspec.json.Decoder(RunRecord)
_POSITIONS = msgspec.json.Decoder(list[Position])

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
        clock: Returns the time, for tests.
    """

    def __init__(self, backend: Any, *, prefix: str = "baton/", clock: Callable[[], float] = time.time) -> None:
        self._client = BlobClient(backend, prefix)
        self._clock = clock
        self._all = RunIndex(self._client, "runs")
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __repr__(self) -> str:
        return self._client.name

    async def create(
        self,
        run_id: str,
        lines: Sequence[bytes],
        *,
        thread: str = "",
        owner: str = "",
        worker: str = "",
        ttl: float = 0.0,
    ) -> Lease:
        """Create a run; see `Store.create`."""
        record = records.new_record(
            run_id, len(lines), thread=thread, owner=owner, worker=worker, ttl=ttl, now=self._clock()
        )
        async with self._lock(f"run {run_id}"), self._thread_lock(thread):
            if await self._find(run_id) is not None:
                raise RunExistsError(run_id)
            await self._claim_thread(record)
            # Setting the head creates the run: if that fails, the index has a run too many, which does no harm.
            async with self._lock("index"):
                for index in self._indexes(thread):
                    await index.add(run_id, record.created_at)
            await self._put(RunHead(record, (), ()), lines)
        return records.to_lease(record)

    async def append(
        self,
        run_id: str,
        expected_seq: int,
        lines: Sequence[bytes],
        *,
        status: RunStatus | None = None,
        fence: int | None = None,
    ) -> None:
        """Append lines; see `Store.append`."""
        async with self._lock(f"run {run_id}"):
            head = await self._get(run_id)
            record = records.after_append(
                head.record, expected_seq, len(lines), status=status, fence=fence, now=self._clock()
            )
            is_revived = records.keeps_thread_busy(record.status) and not records.keeps_thread_busy(head.record.status)
            async with self._thread_lock(record.thread if is_revived else ""):
                if is_revived:
                    await self._claim_thread(record)
                await self._put(RunHead(record, head.segments, head.tail), lines)

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
        return join_pieces(found, start=start, end=head.record.seq)

    async def record(self, run_id: str) -> RunRecord | None:
        """Return a run's record; see `Store.record`."""
        head = await self._find(run_id)
        return None if head is None else head.record

    async def list(self, **filters: Unpack[RunFilters]) -> RecordPage:
        """Return a page of records, reading every head that the index cannot rule out."""
        query = parse_filters(filters)
        positions = await self._indexes(query.thread)[-1].positions()
        if query.count_total or query.order_by == "updated":
            found = [await self._record_at(position) for position in positions]
            return select_page(query, [record for record in found if record is not None])
        remaining = [each for each in positions if query.is_in_period(each) and query.is_beyond(each)]
        records: list[RunRecord] = []
        for position in sorted(remaining, reverse=not query.oldest_first):
            record = await self._record_at(position)
            if record is not None and query.accepts(record):
                records.append(record)
                if len(records) > query.limit:
                    break
        return make_page(query, records)

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Set or remove a note; see `Store.put_note`."""
        records.check_names(run_id, name=name)
        async with self._lock(f"run {run_id}"):
            await self._get(run_id)
            notes = {**await self.notes(run_id)}
            if note is None:
                notes.pop(name, None)
            else:
                notes[name] = note
            pairs = [part for each, content in notes.items() for part in (each.encode(), content)]
            await self._client.set(_notes(run_id), pack_lines(pairs))

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """Return a run's notes; see `Store.notes`."""
        blob = await self._client.get(_notes(run_id))
        try:
            pairs = unpack_lines(blob) if blob else ()
        except ValueError as problem:
            message = f"cannot read the notes of run `{run_id}`: {problem}"
            raise StoreError(message, store=self._client.name) from problem
        return {name.decode(): note for name, note in zip(pairs[::2], pairs[1::2], strict=True)}

    async def delete(self, run_id: str) -> bool:
        """Delete a run; see `Store.delete`."""
        async with self._lock(f"run {run_id}"):
            head = await self._find(run_id)
            if head is None:
                return False
            await self._delete_run(head)
            return True

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Delete old runs; see `Store.expire`."""
        statuses, now, deleted = records.check_statuses(status), self._clock(), 0
        for _, run_id in await self._all.positions():
            async with self._lock(f"run {run_id}"):
                head = await self._find(run_id)
                if head is not None and records.is_expired(head.record, older_than, status=statuses, now=now):
                    await self._delete_run(head)
                    deleted += 1
        return deleted

    async def close(self) -> None:
        """Do nothing: the backend belongs to its creator."""

    async def _update_record(self, run_id: str, update: Callable[[RunRecord], RunRecord | None]) -> RunRecord | None:
        async with self._lock(f"run {run_id}"):
            head = await self._find(run_id)
            record = None if head is None else update(head.record)
            if head is not None and record is not None:
                await self._put(RunHead(record, head.segments, head.tail), ())
            return record

    async def _put(self, head: RunHead, lines: Sequence[bytes]) -> None:
        """Set a head with additional lines; a segment is set before the head that refers to it."""
        tail = (*head.tail, *lines)
        if sum(map(len, tail)) > MAX_TAIL:
            first = head.record.seq - len(tail)
            await self._client.set(_segment(head.record.run_id, first), pack_lines(tail))
            head = RunHead(head.record, (*head.segments, first), ())
        else:
            head = RunHead(head.record, head.segments, tail)
        await self._client.set(f"head/{head.record.run_id}", head.encode())

    async def _delete_run(self, head: RunHead) -> None:
        record = head.record
        await self._client.remove(f"head/{record.run_id}")
        await self._client.remove(_notes(record.run_id))
        for first in head.segments:
            await self._client.remove(_segment(record.run_id, first))
        async with self._lock("index"):
            for index in self._indexes(record.thread):
                await index.remove(record.run_id, record.created_at)

    async def _claim_thread(self, record: RunRecord) -> None:
        """Claim the thread for a run. Raises ThreadBusyError if it has another unfinished run."""
        if not record.thread:
            return
        key = f"busy/{record.thread}"
        busy = ((await self._client.get(key)) or b"").decode()
        head = await self._find(busy) if busy and busy != record.run_id else None
        if head is not None and head.record.thread == record.thread and records.keeps_thread_busy(head.record.status):
            raise ThreadBusyError(record.thread, busy, head.record.status)
        await self._client.set(key, record.run_id.encode())

    async def _record_at(self, position: Position) -> RunRecord | None:
        """Return the record at a position, unless the run was deleted or created again since."""
        record = await self.record(position[1])
        return record if record is not None and record.created_at == position[0] else None

    async def _find(self, run_id: str) -> RunHead | None:
        blob = await self._client.get(f"head/{run_id}")
        if blob is None:
            return None
        try:
            return RunHead.decode(blob)
        except ValueError as problem:
            raise StoreError(f"cannot read the head of run `{run_id}`: {problem}", store=self._client.name) from problem

    async def _get(self, run_id: str) -> RunHead:
        if (head := await self._find(run_id)) is None:
            raise RunNotFoundError(run_id, store=self._client.name)
        return head

    def _indexes(self, thread: str | None) -> tuple[RunIndex, ...]:
        return (self._all, RunIndex(self._client, f"thread/{thread}")) if thread else (self._all,)

    def _thread_lock(self, thread: str) -> AbstractAsyncContextManager[Any]:
        return self._lock(f"thread {thread}") if thread else nullcontext()

    def _lock(self, name: str) -> asyncio.Lock:
        """Return a lock that exists while it is held; take them in the order run, thread, index."""
        if (lock := self._locks.get(name)) is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock


def _segment(run_id: str, first: int) -> str:
    # The number first, so that no run id can look like the segment of another run.
    return f"segment/{first}/{run_id}"


def _notes(run_id: str) -> str:
    return f"notes/{run_id}"
