"""A store over any object that can get and set bytes by key: a cache, a bucket, a table of blobs."""

import asyncio
import inspect
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .._checks import check_arguments
from .._wording import type_of
from ..errors import LogError, SetupError, StoreError
from . import inboxes
from .memory import RunsInMemory
from .records import check_layout, copy_of, join_pieces, keeps_thread_busy, pack_lines, unpack_lines
from .store import InboxState, RunRecord, WaitingMessage

K = TypeVar("K")
T = TypeVar("T")

LAYOUT = 1
MAX_TAIL = 16_384
"""The size in bytes of the newest lines in the document of a run; more lines become a piece."""
PAGE_SIZE = 256
"""The number of runs in one page of the list of runs."""
_CALLS_AT_ONCE = 32
_INBOX = "inbox"
_encode = msgspec.json.Encoder().encode


class Documents:
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
        """Return a document, or None; an empty one counts as deleted."""
        found = await self._call("get", key)
        if found is None or isinstance(found, bytes | bytearray):
            return bytes(found) if found else None
        raise StoreError(f"get({self._prefix + key!r}) returned {type_of(found)}, not bytes", store=self.name)

    async def read(self, key: str, decode: Callable[[bytes], T]) -> T | None:
        """Return a decoded document, or None. Raises StoreError if it is damaged."""
        document = await self.get(key)
        try:
            return None if document is None else decode(document)
        except ValueError as problem:
            raise StoreError(f"cannot read {self._prefix + key!r}: {problem}", store=self.name) from problem

    async def set(self, key: str, document: bytes) -> None:
        """Write a document."""
        await self._call("set", key, document)

    async def remove(self, key: str) -> None:
        """Delete a document, or empty it if the backend has no `delete`."""
        has_delete = callable(getattr(self._backend, "delete", None))
        await (self._call("delete", key) if has_delete else self.set(key, b""))

    def missing(self, key: str) -> StoreError:
        """Return the error for a document that must exist."""
        return StoreError(f"{self._prefix + key!r} is missing", store=self.name)

    async def _call(self, method: str, key: str, *rest: bytes) -> Any:
        try:
            result = getattr(self._backend, method)(self._prefix + key, *rest)
            return await result if inspect.isawaitable(result) else result
        except Exception as failure:
            reason = f"{type(failure).__name__}: {failure}"
            raise StoreError(f"{method}({self._prefix + key!r}) failed ({reason})", store=self.name) from failure


class ListPage(Struct, frozen=True):
    """A page of the list of runs."""

    layout: int
    created: int
    """The number of runs that had been created when the page was written."""
    runs: Sequence[str]

    def encode(self) -> bytes:
        """Encode to bytes with a checksum."""
        return pack_lines([_encode(self)])

    @classmethod
    def decode(cls, document: bytes) -> "ListPage":
        """Decode. Raises ValueError if the bytes are damaged."""
        (page,) = unpack_lines(document)
        # Pages of unreleased versions were lists.
        return msgspec.json.decode(page, type=ListPage) if page.startswith(b"{") else ListPage(0, 0, ())


class RunDocument(Struct, frozen=True):
    """The document of a run."""

    record: RunRecord | None
    """The record; None if the run is being deleted."""
    pieces: Sequence[int] = ()
    """The first lines of the pieces of its log."""
    tail: Sequence[bytes] = ()
    """The lines after the last piece."""
    notes: Mapping[str, bytes] = {}
    taken: int = 0
    """The number of the last waiting message that the run took; 0 if it took none."""

    def encode(self) -> bytes:
        """Encode to bytes with a checksum."""
        numbers = _encode((self.taken, len(self.tail), *self.pieces))
        notes = [part for name, note in self.notes.items() for part in (name.encode(), note)]
        return pack_lines([_encode(self.record), numbers, *self.tail, *notes])

    @classmethod
    def decode(cls, document: bytes) -> "RunDocument":
        """Decode. Raises ValueError if the bytes are damaged."""
        record, numbers, *rest = unpack_lines(document)
        taken, count, *pieces = msgspec.json.decode(numbers, type=list[int])
        notes = dict(zip([name.decode() for name in rest[count::2]], rest[count + 1 :: 2], strict=True))
        return cls(msgspec.json.decode(record, type=RunRecord | None), pieces, rest[:count], notes, taken)


class KeyValueStore(RunsInMemory):
    """A store over any object that can get and set bytes by key.

    Such a backend cannot compare and set, so only one process may use it at a time, and one KeyValueStore in it: within
    it all guarantees of a store hold, but two that write to the same documents do not notice each other.

    The first use reads the records and notes of all runs, which stay in memory; a log is read when it is needed. Each
    method changes what is in memory and then writes what has changed. Methods that are called meanwhile wait, and write
    together. There is a document for each run (its record, its notes and the newest lines of its log), one for each
    full piece of a log, one for 256 ids of runs, and one for all waiting messages.

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
        self._clock = clock
        self.lease_seconds = lease_seconds
        self._documents = Documents(backend, prefix)
        self._is_read = False
        """False if the documents must be read: at first, and after a write that failed."""
        self._reading: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[Mapping[str, StoreError]] | None = None
        """Writes what has changed; returns the failures by the ids of runs and messages."""
        self._is_writing = False
        """True once it has begun: what changes from then on is written by the next one."""
        self._forget()

    def __repr__(self) -> str:
        return self._documents.name

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """Load lines; see `Store.load`."""
        lines = await super().load(run_id, start=start)
        self._drop_lines(run_id)
        return lines

    async def close(self) -> None:
        """Forget what was read; the backend belongs to its creator."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self._is_read = False

    def _forget(self) -> None:
        super().__init__(self._clock, self.lease_seconds)
        self._changed: set[str] = set()
        """The runs to write."""
        self._pages: list[list[str]] = []
        """The ids of all stored runs."""
        self._page_of: dict[str, int] = {}
        """The number of the page with each stored run."""
        self._pieces: dict[str, Sequence[int]] = {}
        """The first lines of the stored pieces of each run."""
        self._packed: dict[str, int] = {}
        """The number of lines of each stored run that are in pieces."""
        self._taken: dict[str, int] = {}
        """The number of the last message that each run took."""
        self._stored_messages: dict[str, WaitingMessage] = {}

    def _touch(self, run_id: str) -> None:
        self._changed.add(run_id)

    def _drop_messages(self, thread: str, count: int, *, by: str = "") -> InboxState:
        if count:
            self._taken[by] = self._inboxes[thread][count - 1].number
        return super()._drop_messages(thread, count, by=by)

    def _delete_run(self, run_id: str) -> bool:
        self._packed.pop(run_id, None)
        self._taken.pop(run_id, None)
        return super()._delete_run(run_id)

    def _drop_lines(self, run_id: str) -> None:
        """Do not keep the lines of a finished run in memory, once they are written."""
        record = self._records.get(run_id)
        if record is not None and not keeps_thread_busy(record.status) and run_id not in self._changed:
            self._lines.pop(run_id, None)

    async def _open(self, *, lines_of: str = "") -> None:
        while True:
            if self._is_writing and self._writing is not None:
                await asyncio.wait([self._writing])
            elif not self._is_read:
                self._reading = self._reading or asyncio.create_task(self._read_all(), name="baton read")
                await _result_of(self._reading)
            elif lines_of in self._records and lines_of not in self._lines:
                await self._read_lines(lines_of)
            else:
                return

    async def _read_all(self) -> None:
        try:
            pages: list[ListPage] = []
            while (page := await self._documents.read(_page(len(pages)), ListPage.decode)) is not None:
                check_layout(page.layout, LAYOUT, self._documents.name)
                pages.append(page)
            documents = await _each(self._read_run, [run_id for page in pages for run_id in page.runs])
            messages = await self._documents.read(_INBOX, _decode_messages) or ()
            self._forget()
            self._pages = [[*page.runs] for page in pages]
            self._page_of = {run_id: number for number, page in enumerate(self._pages) for run_id in page}
            self._created = max((page.created for page in pages), default=0)
            self._keep_runs(documents)
            self._keep_messages(messages)
            self._is_read = True
        finally:
            self._reading = None

    def _keep_runs(self, documents: Mapping[str, RunDocument]) -> None:
        stored: list[RunRecord] = []
        for run_id, document in documents.items():
            self._pieces[run_id] = document.pieces
            if document.record is not None:
                stored.append(document.record)
                self._notes[run_id] = dict(document.notes)
                self._packed[run_id] = document.record.seq - len(document.tail)
                self._taken[run_id] = document.taken
        for record in sorted(stored, key=lambda record: record.number):
            self._put(record)
        # The rest of a run that a process was deleting when it died goes with the next write.
        self._changed = {run_id for run_id, document in documents.items() if document.record is None}

    def _keep_messages(self, messages: Iterable[WaitingMessage]) -> None:
        for message in messages:
            self._stored_messages[message.run_id] = message
            # A process may have died after a run had taken the message, and before it left the inbox.
            if all(self._taken[run_id] < message.number for run_id in self._threads.get(message.thread, ())):
                self._inboxes.setdefault(message.thread, []).append(message)
        numbers = [message.number for message in self._stored_messages.values()]
        self._enqueued = max([*numbers, *self._taken.values()], default=0)
        for thread, run_id in self._busy.items():
            state = inboxes.state_of(self._inboxes.get(thread, ()))
            self._records[run_id] = replace(self._records[run_id], inbox=state)

    async def _read_run(self, run_id: str) -> RunDocument:
        document = await self._documents.read(_run(run_id), RunDocument.decode)
        if document is None:
            raise self._documents.missing(_run(run_id))
        return document

    async def _read_lines(self, run_id: str) -> None:
        document = await self._read_run(run_id)
        pieces = await _each(lambda first: self._documents.get(_piece(run_id, first)), document.pieces)
        found: list[tuple[int, bytes]] = []
        for first, piece in pieces.items():
            if piece is None:
                raise LogError(first, f"the piece that starts there is missing from {self._documents.name}")
            found.append((first, piece))
        record = document.record
        known = self._records.get(run_id)
        if record is not None and document.tail:
            found.append((record.seq - len(document.tail), pack_lines(document.tail)))
        # Otherwise the run was changed meanwhile, and is read again if its lines are not in memory.
        if record is not None and known is not None and record.seq == known.seq and run_id not in self._lines:
            self._lines[run_id] = join_pieces(found, start=0, end=record.seq)

    async def _save(self, *ids: str) -> None:
        if not self._changed and self._waiting_by_id() == self._stored_messages:
            return
        self._writing = self._writing or asyncio.create_task(self._write_changes(), name="baton write")
        # If this task is cancelled, the changes are written nevertheless.
        failures = await _result_of(self._writing)
        for id in ids:
            if id in failures:
                raise copy_of(failures[id])

    async def _write_changes(self) -> Mapping[str, StoreError]:
        self._is_writing = True
        changed = self._changed
        self._changed = set()
        failures: dict[str, StoreError] = {}
        is_complete = False
        try:
            await self._write_all(changed, failures)
            is_complete = not failures
        finally:
            # After a failure only the documents say what was written.
            self._is_read = self._is_read and is_complete
            self._is_writing = False
            self._writing = None
        for run_id in changed:
            self._drop_lines(run_id)
        return failures

    async def _write_all(self, changed: set[str], failures: dict[str, StoreError]) -> None:
        """Write changes in an order that leaves every run and message whole if the process dies."""
        messages = self._waiting_by_id()
        if messages.keys() - self._stored_messages.keys():
            # First, with the messages that runs take: the document of the run says that it took them.
            arrived = self._write_messages({**self._stored_messages, **messages})
            await _attempt(arrived, failures, [*messages, *changed])
            if failures:
                return
        await _each(lambda run_id: _attempt(self._write_run(run_id), failures, [run_id]), changed)
        # A new run exists once it is in the list.
        for number, run_ids in self._changed_pages(changed - failures.keys()).items():
            await _attempt(self._write_page(number), failures, run_ids)
        gone = self._stored_messages.keys() - messages.keys()
        if gone:
            await _attempt(self._write_messages(messages), failures, gone - self._records.keys())

    async def _write_run(self, run_id: str) -> None:
        record = self._records.get(run_id)
        old_pieces = self._pieces.pop(run_id, ())
        pieces: Sequence[int] = ()
        if record is not None:
            pieces = await self._write_log(record, old_pieces if run_id in self._packed else ())
        elif run_id in self._page_of:
            # From here on the run does not exist; if the process dies, the next one removes the rest.
            await self._documents.set(_run(run_id), RunDocument(None, old_pieces).encode())
        for first in {*old_pieces} - {*pieces}:
            await self._documents.remove(_piece(run_id, first))

    async def _write_log(self, record: RunRecord, pieces: Sequence[int]) -> Sequence[int]:
        """Write the document of a run, and a piece if it has many new lines."""
        run_id = record.run_id
        packed = self._packed.get(record.run_id, 0)
        lines = self._lines.get(run_id)
        tail = lines[packed:] if lines is not None else (await self._read_run(run_id)).tail
        if sum(map(len, tail)) > MAX_TAIL:
            await self._documents.set(_piece(run_id, packed), pack_lines(tail))
            pieces = (*pieces, packed)
            packed = record.seq
            tail = ()
        document = RunDocument(record, pieces, tail, self._notes.get(run_id, {}), self._taken.get(run_id, 0))
        await self._documents.set(_run(run_id), document.encode())
        self._pieces[run_id] = pieces
        self._packed[run_id] = packed
        return pieces

    def _changed_pages(self, changed: Collection[str]) -> Mapping[int, Collection[str]]:
        """Assign new runs to pages of the list; return the changed runs by page."""
        pages: dict[int, set[str]] = {}
        for run_id in changed:
            if run_id in self._records and run_id not in self._page_of:
                if not self._pages or len(self._pages[-1]) >= PAGE_SIZE:
                    self._pages.append([])
                self._pages[-1].append(run_id)
                self._page_of[run_id] = len(self._pages) - 1
                pages.setdefault(self._page_of[run_id], set()).add(run_id)
            elif run_id not in self._records and run_id in self._page_of:
                pages.setdefault(self._page_of[run_id], set()).add(run_id)
        return pages

    async def _write_page(self, number: int) -> None:
        """Write a page of the list of runs, without deleted ones, whose documents are removed then."""
        deleted = [run_id for run_id in self._pages[number] if run_id not in self._records]
        self._pages[number] = [run_id for run_id in self._pages[number] if run_id in self._records]
        await self._documents.set(_page(number), ListPage(LAYOUT, self._created, self._pages[number]).encode())
        for run_id in deleted:
            del self._page_of[run_id]
            await self._documents.remove(_run(run_id))

    async def _write_messages(self, messages: Mapping[str, WaitingMessage]) -> None:
        await self._documents.set(_INBOX, pack_lines([_encode([*messages.values()])]))
        self._stored_messages = {**messages}

    def _waiting_by_id(self) -> dict[str, WaitingMessage]:
        return {message.run_id: message for message in self._messages()}


def _page(number: int) -> str:
    return f"runs/{number}"


def _run(run_id: str) -> str:
    return f"run/{run_id}"


def _piece(run_id: str, first: int) -> str:
    # The number first, so that no run id can look like the piece of another run.
    return f"piece/{first}/{run_id}"


def _decode_messages(document: bytes) -> list[WaitingMessage]:
    return msgspec.json.decode(unpack_lines(document)[0], type=list[WaitingMessage])


async def _each(work: Callable[[K], Coroutine[Any, Any, T]], keys: Collection[K]) -> dict[K, T]:
    """Return the results by key, or raise the first failure once all calls have ended."""
    limit = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def limited(key: K) -> T:
        async with limit:
            return await work(key)

    results = await asyncio.gather(*map(limited, keys), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return dict(zip(keys, cast("list[T]", results), strict=True))


async def _attempt(work: Coroutine[Any, Any, None], failures: dict[str, StoreError], ids: Iterable[str]) -> None:
    """Do something; a failure is that of these ids."""
    try:
        await work
    except StoreError as failure:
        failures.update(dict.fromkeys(ids, failure))


async def _result_of(task: "asyncio.Task[T]") -> T:
    """Return the result of a task that several wait for; it outlives each of them."""
    await asyncio.wait([task])
    failure = None if task.cancelled() else task.exception()
    if isinstance(failure, StoreError):
        raise copy_of(failure)
    return task.result()
