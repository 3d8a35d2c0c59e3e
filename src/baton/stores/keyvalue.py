"""A store over anything that can get and set bytes by a key: a cache, a bucket, a table of blobs.

What a key-value store keeps under its keys: heads of runs, and shelves that tell which runs there are.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal, NamedTuple, Unpack
from weakref import WeakValueDictionary

import msgspec

from ..errors import LogError, RunExistsError, RunNotFoundError, SetupError, StoreError, ThreadBusyError
from . import records
from .base import FINISHED_STATUSES, Lease, RecordPage, RunFilters, RunRecord, RunStatus
from .records import Place, log_of, packed, page_of, parse_filters, select_page, unpacked

VERSION = 1
PLACES_ON_A_SHELF = 256


class BlobClient:
    """Bytes by key, whether they come at once or are waited for, with failures as StoreError."""

    def __init__(self, blobs: Any, prefix: str) -> None:
        for wanted in ("get", "set"):
            if not callable(getattr(blobs, wanted, None)):
                raise SetupError(
                    f"a {type(blobs).__name__} has no method `{wanted}`; KeyValueStore needs "
                    "get(key) -> bytes | None and set(key, bytes), sync or async"
                )
        self._blobs = blobs
        self._prefix = prefix
        self.name = f"KeyValueStore({type(blobs).__name__})"

    async def get(self, key: str) -> bytes | None:
        """The bytes under a key; None if there are none. Empty bytes are what a deleted key without `delete` has."""
        found = await self._call("get", self._prefix + key)
        if found is None or isinstance(found, bytes | bytearray):
            return bytes(found) if found else None
        raise StoreError(f"get({self._prefix + key!r}) gave a {type(found).__name__}, not bytes", store=self.name)

    async def set(self, key: str, value: bytes) -> None:
        """Put bytes under a key."""
        await self._call("set", self._prefix + key, value)

    async def remove(self, key: str) -> None:
        """Take a key away, or its bytes if keys cannot be taken away."""
        if callable(getattr(self._blobs, "delete", None)):
            await self._call("delete", self._prefix + key)
        else:
            await self.set(key, b"")

    async def _call(self, method: str, key: str, *rest: bytes) -> Any:
        try:
            answer = getattr(self._blobs, method)(key, *rest)
            return await answer if inspect.isawaitable(answer) else answer
        except Exception as failure:
            said = f"{type(failure).__name__}: {failure}"
            raise StoreError(f"{method}({key!r}) failed ({said})", store=self.name) from failure


class RunHead(NamedTuple):
    """What changes when a run is written to: its record, where its segments begin, and the lines after the last."""

    record: RunRecord
    segments: Sequence[int]
    tail: Sequence[bytes]

    def ends(self) -> Sequence[int]:
        """The number of the line after each segment."""
        return (*self.segments[1:], self.record.seq - len(self.tail)) if self.segments else ()

    def encoded(self) -> bytes:
        """As bytes with a checksum."""
        return packed((_ENCODER.encode(self.record), _ENCODER.encode((VERSION, *self.segments)), *self.tail))

    @classmethod
    def decoded(cls, blob: bytes) -> "RunHead":
        """From bytes; ValueError if they are damaged, or were written by a newer Baton."""
        record, numbers, *tail = unpacked(blob)
        version, *segments = _NUMBERS.decode(numbers)
        if version > VERSION:
            raise ValueError(f"its layout is version {version}, made by a newer Baton; this one knows up to {VERSION}")
        return cls(_RECORD.decode(record), segments, tail)


class RunIndex:
    """The places of all runs, or of a thread's, on shelves of bounded size: one is set anew for each run that comes."""

    def __init__(self, blobs: BlobClient, name: str) -> None:
        self._blobs = blobs
        self._name = name

    async def add(self, run_id: str, created_at: float) -> None:
        """Note a run."""
        number = await self._newest()
        shelf = await self._shelf(number)
        if len(shelf) >= PLACES_ON_A_SHELF:
            number, shelf = number + 1, []
            await self._blobs.set(f"{self._name}/newest", b"%d" % number)
        await self._put(number, [*shelf, (created_at, run_id)])

    async def remove(self, run_id: str, created_at: float) -> None:
        """Strike out a run."""
        for number in range(await self._newest(), -1, -1):
            shelf = await self._shelf(number)
            if (created_at, run_id) in shelf:
                await self._put(number, [place for place in shelf if place != (created_at, run_id)])

    async def places(self) -> list[Place]:
        """Where all runs stand, in no order, each once."""
        shelves = [await self._shelf(number) for number in range(await self._newest() + 1)]
        return [*{place for shelf in shelves for place in shelf}]

    async def _newest(self) -> int:
        return int(await self._blobs.get(f"{self._name}/newest") or b"0")

    async def _shelf(self, number: int) -> list[Place]:
        blob = await self._blobs.get(f"{self._name}/{number}")
        if blob is None:
            return []
        try:
            return _PLACES.decode(unpacked(blob)[0])
        except ValueError as problem:
            said = f"the list of runs under `{self._name}/{number}` cannot be read: {problem}"
            raise StoreError(said, store=self._blobs.name) from problem

    async def _put(self, number: int, shelf: Sequence[Place]) -> None:
        await self._blobs.set(f"{self._name}/{number}", packed([_ENCODER.encode(shelf)]))


_ENCODER = msgspec.json.Encoder()
_NUMBERS = msgspec.json.Decoder(list[int])
_RECORD = msgspec.json.Decoder(RunRecord)
_PLACES = msgspec.json.Decoder(list[Place])

TAIL = 16_384
"""How many bytes of the newest lines stand in the head of a run before they become a segment of their own."""


class KeyValueStore:
    """Keeps logs in anything that can `get(key) -> bytes | None` and `set(key, bytes)`, at best also `delete(key)`.

    Its methods may be sync or async. Such a thing cannot compare and set, so only one process may use it at a time:
    within it all promises of a store hold; two processes that write to one run at the same moment are not noticed.
    `prefix` goes before every key.

    An append sets one key, the head: the record and the newest lines. Full heads are cut off into segments, which are
    set once and never again, so what is stored grows with the lines and an append stays the same size.
    """

    def __init__(self, backend: Any, *, prefix: str = "baton/", clock: Callable[[], float] = time.time) -> None:
        self._blobs = BlobClient(backend, prefix)
        self._clock = clock
        self._all = RunIndex(self._blobs, "runs")
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __repr__(self) -> str:
        return self._blobs.name

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
        """Begin a run with its first lines."""
        record = records.begun(
            run_id, len(lines), thread=thread, owner=owner, worker=worker, ttl=ttl, now=self._clock()
        )
        async with self._alone(f"run {run_id}"), self._thread(thread):
            if await self._found(run_id) is not None:
                raise RunExistsError(run_id)
            await self._check_thread(record)
            # The head makes the run: if setting it fails, the shelves name a run that is not there, which harms nobody.
            async with self._alone("shelves"):
                for shelves in self._shelves(thread):
                    await shelves.add(run_id, record.created_at)
            await self._put(RunHead(record, (), ()), lines)
        return records.lease_of(record)

    async def append(
        self,
        run_id: str,
        expected_seq: int,
        lines: Sequence[bytes],
        *,
        status: RunStatus | None = None,
        fence: int | None = None,
    ) -> None:
        """Add lines after the first `expected_seq`."""
        async with self._alone(f"run {run_id}"):
            head = await self._known(run_id)
            record = records.appended(
                head.record, expected_seq, len(lines), status=status, fence=fence, now=self._clock()
            )
            goes_on = records.keeps_thread_busy(record.status) and not records.keeps_thread_busy(head.record.status)
            async with self._thread(record.thread if goes_on else ""):
                if goes_on:
                    await self._check_thread(record)
                await self._put(RunHead(record, head.segments, head.tail), lines)

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """The lines of a run from number `start` on. LogError if any are damaged or missing."""
        head = await self._known(run_id)
        kept = [segment for segment, end in zip(head.segments, head.ends(), strict=True) if end > start]
        pieces = await asyncio.gather(*(self._blobs.get(_segment(run_id, first)) for first in kept))
        found: list[tuple[int, bytes]] = []
        for first, piece in zip(kept, pieces, strict=True):
            if piece is None:
                raise LogError(first, f"the segment that begins there is gone from {self._blobs.name}")
            found.append((first, piece))
        if head.tail:
            found.append((head.record.seq - len(head.tail), packed(head.tail)))
        return log_of(found, start=start, end=head.record.seq)

    async def record(self, run_id: str) -> RunRecord | None:
        """What is known about a run."""
        head = await self._found(run_id)
        return None if head is None else head.record

    async def list(self, **wanted: Unpack[RunFilters]) -> RecordPage:
        """A page of records. Reads the heads of all that are not ruled out by their thread or time of creation."""
        query = parse_filters(wanted)
        shelves = self._shelves(query.thread)[-1] if query.thread else self._all
        places = await shelves.places()
        if query.count_total or query.order_by == "updated":
            found = [await self._at(place) for place in places]
            return select_page(query, [record for record in found if record is not None])
        coming = [place for place in places if query.is_in_time(place) and query.is_beyond(place)]
        records: list[RunRecord] = []
        for place in sorted(coming, reverse=not query.oldest_first):
            record = await self._at(place)
            if record is not None and query.accepts(record):
                records.append(record)
                if len(records) > query.limit:
                    break
        return page_of(query, records)

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Keep a note beside a run's log, or take it away."""
        records.checked_names(run_id, name=name)
        async with self._alone(f"run {run_id}"):
            await self._known(run_id)
            notes = {**await self.notes(run_id)}
            if note is None:
                notes.pop(name, None)
            else:
                notes[name] = note
            pairs = [part for each, kept in notes.items() for part in (each.encode(), kept)]
            await self._blobs.set(_notes(run_id), packed(pairs))

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """The notes of a run by name."""
        blob = await self._blobs.get(_notes(run_id))
        try:
            pairs = unpacked(blob) if blob else ()
        except ValueError as problem:
            said = f"the notes of run `{run_id}` cannot be read: {problem}"
            raise StoreError(said, store=self._blobs.name) from problem
        return {name.decode(): note for name, note in zip(pairs[::2], pairs[1::2], strict=True)}

    async def delete(self, run_id: str) -> bool:
        """Forget a run."""
        async with self._alone(f"run {run_id}"):
            head = await self._found(run_id)
            if head is None:
                return False
            await self._forget(head)
            return True

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Forget runs that nobody has written to for long."""
        wanted, now, forgotten = records.checked_status(status), self._clock(), 0
        for _, run_id in await self._all.places():
            async with self._alone(f"run {run_id}"):
                head = await self._found(run_id)
                if head is not None and records.is_expired(head.record, older_than, status=wanted, now=now):
                    await self._forget(head)
                    forgotten += 1
        return forgotten

    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        """Take the lease on a run."""
        return await self._change(run_id, lambda record: records.acquired(record, worker, ttl=ttl, now=self._clock()))

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Hold a lease for longer."""
        return await self._change(
            lease.run_id, lambda record: records.renewed(record, lease, ttl=ttl, now=self._clock())
        )

    async def release(self, lease: Lease) -> None:
        """Give a lease back."""
        async with self._alone(f"run {lease.run_id}"):
            head = await self._found(lease.run_id)
            if head is not None:
                await self._put(RunHead(records.released(head.record, lease), head.segments, head.tail), ())

    async def request_cancel(self, run_id: str, when: Literal["now", "after_turn"]) -> bool:
        """Leave word for the run's driver to stop."""
        async with self._alone(f"run {run_id}"):
            head = await self._found(run_id)
            told = head and records.asked_to_cancel(head.record, when)
            if head is None or told is None:
                return False
            await self._put(RunHead(told, head.segments, head.tail), ())
            return True

    async def close(self) -> None:
        """Nothing to give back: whoever made the thing that gets and sets closes it."""

    async def _change(self, run_id: str, change: Callable[[RunRecord], RunRecord]) -> Lease:
        async with self._alone(f"run {run_id}"):
            head = await self._known(run_id)
            changed = change(head.record)
            await self._put(RunHead(changed, head.segments, head.tail), ())
            return records.lease_of(changed)

    async def _put(self, head: RunHead, lines: Sequence[bytes]) -> None:
        """Set a head with more lines. A segment is set before the head that names it: until then nobody reads it."""
        tail = (*head.tail, *lines)
        if sum(map(len, tail)) > TAIL:
            first = head.record.seq - len(tail)
            await self._blobs.set(_segment(head.record.run_id, first), packed(tail))
            head = RunHead(head.record, (*head.segments, first), ())
        else:
            head = RunHead(head.record, head.segments, tail)
        await self._blobs.set(f"head/{head.record.run_id}", head.encoded())

    async def _forget(self, head: RunHead) -> None:
        record = head.record
        await self._blobs.remove(f"head/{record.run_id}")
        await self._blobs.remove(_notes(record.run_id))
        for first in head.segments:
            await self._blobs.remove(_segment(record.run_id, first))
        async with self._alone("shelves"):
            for shelves in self._shelves(record.thread):
                await shelves.remove(record.run_id, record.created_at)

    async def _check_thread(self, record: RunRecord) -> None:
        """Raise ThreadBusyError if another run of the thread goes on; otherwise note that this one does."""
        if not record.thread:
            return
        key = f"busy/{record.thread}"
        busy = ((await self._blobs.get(key)) or b"").decode()
        head = await self._found(busy) if busy and busy != record.run_id else None
        if head is not None and head.record.thread == record.thread and records.keeps_thread_busy(head.record.status):
            raise ThreadBusyError(record.thread, busy, head.record.status)
        await self._blobs.set(key, record.run_id.encode())

    async def _at(self, place: Place) -> RunRecord | None:
        """The record that stands at a place. A shelf may name a run that was deleted, and made again elsewhere."""
        record = await self.record(place[1])
        return record if record is not None and record.created_at == place[0] else None

    async def _found(self, run_id: str) -> RunHead | None:
        blob = await self._blobs.get(f"head/{run_id}")
        if blob is None:
            return None
        try:
            return RunHead.decoded(blob)
        except ValueError as problem:
            raise StoreError(
                f"the head of run `{run_id}` cannot be read: {problem}", store=self._blobs.name
            ) from problem

    async def _known(self, run_id: str) -> RunHead:
        if (head := await self._found(run_id)) is None:
            raise RunNotFoundError(run_id, store=self._blobs.name)
        return head

    def _shelves(self, thread: str | None) -> tuple[RunIndex, ...]:
        return (self._all, RunIndex(self._blobs, f"thread/{thread}")) if thread else (self._all,)

    def _thread(self, thread: str) -> AbstractAsyncContextManager[Any]:
        return self._alone(f"thread {thread}") if thread else nullcontext()

    def _alone(self, what: str) -> asyncio.Lock:
        """A lock that lives as long as somebody holds it. Taken in the order run, thread, shelves."""
        if (lock := self._locks.get(what)) is None:
            lock = self._locks[what] = asyncio.Lock()
        return lock


def _segment(run_id: str, first: int) -> str:
    """The key of a segment: the number stands first, so that no run's id can be mistaken for another's segment."""
    return f"segment/{first}/{run_id}"


def _notes(run_id: str) -> str:
    return f"notes/{run_id}"
