"""The parts that a store may lack: what runners find in their place, and the error of features that need them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Unpack

from ..errors import SetupError, quote_names
from .records import iter_records
from .store import (
    DEFAULT_LEASE_SECONDS,
    FINISHED_STATUSES,
    AppendOptions,
    CreateOptions,
    FullStore,
    Lease,
    RunFlags,
    RunNote,
    RunStatus,
    Store,
    SupportsInbox,
    SupportsNotes,
    SupportsRetention,
    WaitingMessage,
)

_NAMES: Mapping[type, str] = {
    SupportsInbox: "an inbox",
    SupportsNotes: "notes",
    SupportsRetention: "retention",
}


def methods_of(part: type) -> list[str]:
    """Return the names of the methods of `Store` or of one of its parts."""
    return [name for name, value in vars(part).items() if callable(value) and not name.startswith("_")]


def innermost_store(store: Store) -> Store:
    """Return the store that keeps the runs, inside its wrappers, which call it `inner`."""
    while (inner := getattr(store, "inner", None)) is not None and isinstance(inner, Store):
        store = inner
    return store


def has_part(store: Store, part: type) -> bool:
    """Return whether a store itself has a part, such as `SupportsNotes`."""
    return isinstance(innermost_store(store), part)


def require_part(store: Store, part: type, feature: str) -> None:
    """Raise SetupError, naming what the store lacks, unless the store itself has a part."""
    if not has_part(store, part):
        raise missing_part(store, part, feature)


def missing_part(store: Store, part: type, feature: str) -> SetupError:
    """Return the error of a feature that needs a part which the store lacks."""
    keeper = innermost_store(store)
    lacking = [name for name in methods_of(part) if not hasattr(keeper, name)]
    return SetupError(
        f"{feature} needs a store with {_NAMES[part]}; {type(keeper).__name__} lacks methods of "
        f"batonkit.stores.{part.__name__}: {quote_names(lacking)}"
    )


def with_all_parts(store: Store) -> FullStore:
    """Return a store in which the parts that it lacks are empty and refuse every change."""
    return store if isinstance(store, FullStore) else PartialStore(store)


class PartialStore:
    """A store that lacks some parts, and what takes their place."""

    def __init__(self, store: Store) -> None:
        self.inner = store
        """The store that keeps the runs."""
        self.lease_seconds: float = getattr(store, "lease_seconds", DEFAULT_LEASE_SECONDS)
        """Seconds for which a run stays reserved for a worker that died."""
        self.load = store.load
        self.record = store.record
        self.list = store.list
        self.delete = store.delete
        self.acquire = store.acquire
        self.renew = store.renew
        self.release = store.release
        self.request_cancel = store.request_cancel
        self.runnable = store.runnable
        self.now = store.now
        self.close = store.close
        inbox = store if isinstance(store, SupportsInbox) else _NoInbox(store)
        self.enqueue = inbox.enqueue
        self.waiting = inbox.waiting
        self.inbox = inbox.inbox
        self.withdraw = inbox.withdraw
        self.notify = inbox.notify
        self.idle_threads = inbox.idle_threads
        notes = store if isinstance(store, SupportsNotes) else _NoNotes(store)
        self._keeps_notes = notes is store
        self.put_note = notes.put_note
        self.notes = notes.notes
        self.read_notes = notes.read_notes
        self.thread_notes = notes.thread_notes
        retention = store if isinstance(store, SupportsRetention) else _NoRetention(store)
        self.expire = retention.expire
        self.erase = retention.erase

    def __repr__(self) -> str:
        return f"PartialStore({self.inner!r})"

    async def create(self, run_id: str, lines: Sequence[bytes], **options: Unpack[CreateOptions]) -> Lease:
        """Create a run, without its notes if the store keeps none; see `Store.create`."""
        if not self._keeps_notes:
            options.pop("notes", None)
        return await self.inner.create(run_id, lines, **options)

    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> RunFlags:
        """Append lines, without their notes if the store keeps none; see `Store.append`."""
        if not self._keeps_notes:
            options.pop("notes", None)
        return await self.inner.append(run_id, expected_seq, lines, **options)


class _NoInbox:
    """The inbox of a store that has none: no message waits."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def enqueue(self, message: WaitingMessage, *, limit: int) -> bool:
        raise missing_part(self._store, SupportsInbox, "a message that waits for a thread")

    async def waiting(self, run_id: str) -> WaitingMessage | None:
        return None

    async def inbox(self, thread: str, *, limit: int = 100) -> Sequence[WaitingMessage]:
        return ()

    async def withdraw(self, run_id: str) -> bool:
        return False

    async def notify(self, thread: str) -> bool:
        return False

    async def idle_threads(self, *, limit: int = 100) -> Sequence[str]:
        return ()


class _NoNotes:
    """The notes of a store that keeps none: everything is read from the logs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        raise missing_part(self._store, SupportsNotes, f"the note `{name}` of a run")

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        return {}

    async def read_notes(self, run_ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        return {}

    async def thread_notes(self, thread: str, name: str, *, before: int, limit: int = 100) -> Sequence[RunNote]:
        runs: list[RunNote] = []
        async for record in iter_records(self._store, thread=thread):
            if record.number < before:
                runs.append(RunNote(record.run_id, record.number, record.seq))
            if len(runs) == limit:
                break
        return runs


class _NoRetention:
    """The retention of a store that has none."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        raise missing_part(self._store, SupportsRetention, "expire()")

    async def erase(self, *, owner: str = "", thread: str = "") -> int:
        raise missing_part(self._store, SupportsRetention, "erase()")
