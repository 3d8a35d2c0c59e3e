"""The contract of a store: the records and lines it keeps, and its guarantees.

A run is stored as lines, each one event as JSON, and a record. A store never reads the lines. `Store` is what every
store has; the protocols `SupportsInbox`, `SupportsNotes`, `SupportsRetention` and `SupportsChannel` are parts that a
store may have in addition. Every store guarantees:

1. `append` is atomic and succeeds only if the run has exactly `expected_seq` lines: of two writers, one gets
   RunConflictError.
2. When `append` returns, the lines survive whatever the store promises to survive. A task that is cancelled in
   `append` has written all of the lines or none, and the store remains usable.
3. A lease is held by one worker at a time. Every acquisition has a higher fence, and an append with an older fence
   raises RunConflictError. A lease of 0 seconds has expired at once. All times are those of the store's clock, never of
   a worker's. A lease that has more than its seconds left is not valid: the clock was set back. `append` can end the
   lease in the transaction that sets the status, so that no reader sees a run that has stopped and is still leased.
4. Failures of the store itself (unreachable, full, locked, read-only) raise StoreError, and nothing has been written.
5. Runs are ordered by a number that the store assigns at creation, not by time. The runs of a thread form a chain:
   `create` with `previous` checks and inserts atomically, so that a run has at most one successor.
6. A request to cancel stays with the run until the run has finished; acquiring the lease does not clear it.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias, TypedDict, Unpack, runtime_checkable

from msgspec import Struct

from ..log.codec import READER_VERSION

RunStatus: TypeAlias = Literal["running", "suspended", "completed", "failed", "cancelled"]
"""The status of a run."""

RUN_STATUSES: tuple[RunStatus, ...] = ("running", "suspended", "completed", "failed", "cancelled")
"""All statuses."""

FINISHED_STATUSES: tuple[RunStatus, ...] = ("completed", "failed", "cancelled")
"""Statuses in which a run does not keep its thread busy."""

DEFAULT_LEASE_SECONDS = 30.0
"""The duration of leases in stores without `lease_seconds`."""

SUMMARY_NOTE = "baton.summary"
"""The name of the note that summarises a run, for lists that do not read logs."""
THREAD_NOTE = "baton.thread"
"""The name of the note with what later runs of its thread need of a run, and the number of lines that it covers."""
INTERNAL_NOTES = "baton."
"""The prefix of the names of notes that `SupportsNotes.notes` leaves out."""

NOTHING_DRIVEN: Mapping[str, int] = MappingProxyType({})
"""The runs of each owner that a worker drives which drives none."""

CancelWhen: TypeAlias = Literal["now", "after_response", "after_turn"]
"""When a run is to be cancelled, the earliest first."""

CancelRequest: TypeAlias = Literal["", "now", "after_response", "after_turn"]
"""A request to cancel a run; "" for none."""

WaitMode: TypeAlias = Literal["queue", "steer", "preempt"]
"""The purpose of a waiting message: a run after the active one, the active run itself, or a run in its place."""

InboxState: TypeAlias = Literal["", "waiting", "steer"]
"""The inbox of a run's thread: empty, not empty, or with a message to steer the run as its oldest one."""


class WaitingMessage(Struct, frozen=True, kw_only=True):
    """A message that waits for a thread's unfinished run."""

    run_id: str
    """The id of the run that it becomes, unless it steers another one."""
    thread: str
    """The thread it is for."""
    mode: WaitMode = "queue"
    """Its purpose."""
    owner: str = ""
    """The tenant it belongs to, if any."""
    body: bytes = b""
    """The message and the options of its run; the store never reads it."""
    number: int = 0
    """Its place in the order of the store's messages; the store sets it."""
    created_at: float = 0.0
    """The time at which it was added; the store sets it."""


class RunFlags(Struct, frozen=True, gc=False):
    """Requests to the driver of a run, as the store returns them with every write."""

    cancel_requested: CancelRequest = ""
    """A request to cancel the run."""
    inbox: InboxState = ""
    """The messages that wait for the run's thread."""


class RunRecord(Struct, frozen=True, kw_only=True):
    """Metadata of a stored run."""

    run_id: str
    """The run's id."""
    number: int = 0
    """Its place in the order in which the store's runs were created."""
    status: RunStatus = "running"
    """The run's status."""
    seq: int = 0
    """The number of lines in its log."""
    thread: str = ""
    """The thread it belongs to, if any."""
    previous: str = ""
    """The run of the thread that it follows, if any."""
    owner: str = ""
    """The tenant it belongs to, if any."""
    created_at: float = 0.0
    """The time of its creation, in seconds since the epoch."""
    updated_at: float = 0.0
    """The time of the last append."""
    changed_at: float = 0.0
    """The time of the last change of its status."""
    worker: str = ""
    """The worker that holds the lease, or held it last."""
    lease_until: float = 0.0
    """The time at which the lease expires."""
    lease_seconds: float = 0.0
    """The duration of the lease when it was acquired or renewed last."""
    is_leased: bool = False
    """True if a worker held a valid lease when the store read the record."""
    is_due: bool = True
    """False if `wake_at` was in the future when the store read the record."""
    fence: int = 0
    """The number of times that the lease was acquired."""
    cancel_requested: CancelRequest = ""
    """A request to cancel the run; cleared when the run has finished."""
    team: str = ""
    """The hash of the team that it was created by, `Team.fingerprint`; "" if not known."""
    priority: int = 0
    """Runs with a higher priority are driven first."""
    wake_at: float = 0.0
    """The time before which a running run is not driven, or at which a suspended one is; 0 for none."""
    inbox: InboxState = ""
    """The messages that wait for the thread while the run is unfinished."""
    reader: int = 1
    """The version that a reader of its log must have: the newest `READER_VERSION` of its writers."""
    origins: tuple[str, ...] = ()
    """The owners and threads whose data the run may hold besides its own: `owner:NAME`, `thread:ID`.

    These are the ones of the runs that a fork descends from, and other owners of earlier runs of its thread.
    """


class RunFilters(TypedDict, total=False):
    """Filters and order of `Store.list`; absent filters and None do not restrict the result."""

    status: Collection[RunStatus] | None
    """Runs with one of these statuses."""
    thread: str | None
    """Runs of this thread."""
    owner: str | None
    """Runs of this owner; "" for runs without one."""
    since: float | None
    """Runs at or after this time."""
    until: float | None
    """Runs before this time."""
    order_by: Literal["created", "changed"]
    """Apply `since`, `until` and the order to the creation (default) or to the last change of status.

    Runs are ordered by their numbers if it is the creation, unless `since` or `until` is given, and otherwise by the
    time, then by their numbers.
    """
    oldest_first: bool
    """Ascending order; newest first by default."""
    limit: int
    """The maximum size of a page; 100 by default."""
    cursor: str
    """The `next_cursor` of the previous page; the other filters must be the same as for that page."""
    count_total: bool
    """Also count the records on all pages, which reads all of them."""


class RecordPage(Struct, frozen=True):
    """A page of records."""

    records: tuple[RunRecord, ...] = ()
    """The records of this page."""
    next_cursor: str = ""
    """The cursor of the next page; "" on the last one."""
    total: int | None = None
    """The number of records on all pages, if requested."""


class RunNote(Struct, frozen=True, gc=False):
    """A run of a thread with one of its notes."""

    run_id: str
    """The run's id."""
    number: int
    """Its place in the order in which the store's runs were created."""
    seq: int
    """The number of lines in its log."""
    note: bytes | None = None
    """The note; None if the run has none of that name."""


class Lease(Struct, frozen=True):
    """The exclusive right to write to a run until a point in time."""

    run_id: str
    """The run."""
    worker: str
    """The worker that holds the lease."""
    fence: int
    """The fence to pass to `append`."""
    until: float
    """The time of expiry, by the store's clock."""
    cancel_requested: CancelRequest = ""
    """A request to cancel the run, when the lease was acquired or renewed."""
    inbox: InboxState = ""
    """The messages that waited for the run's thread at that time."""


class CreateOptions(TypedDict, total=False):
    """Keyword arguments of `Store.create`."""

    status: RunStatus
    """The status of the new run; `"running"` by default."""
    thread: str
    """The thread it belongs to, if any."""
    previous: str | None
    """The last run of the thread, or "" if the thread must be empty; None (default) checks nothing."""
    owner: str
    """The tenant it belongs to, if any."""
    worker: str
    """The worker that gets the lease."""
    ttl: float
    """Seconds until the lease expires; 0 by default."""
    team: str
    """The hash of the team that creates it."""
    priority: int
    """Its priority; 0 by default."""
    wake_at: float
    """The time before which it is not driven."""
    from_inbox: bool
    """Remove the waiting message with this run id, which must be the oldest of the thread; see `SupportsInbox`."""
    reader: int
    """The version that a reader of its log must have; 1 by default."""
    forked_from: str
    """The run that it is a copy of, whose `origins`, owner and thread become its `origins`."""
    origins: tuple[str, ...]
    """More `origins`: of the earlier runs of its thread, and of a run that is not in the store if it is a copy."""
    notes: Mapping[str, bytes]
    """Notes to write in the same transaction; see `SupportsNotes`."""


class AppendOptions(TypedDict, total=False):
    """Keyword arguments of `Store.append`."""

    status: RunStatus | None
    """The new status; unchanged by default."""
    fence: int | None
    """The fence of the writer's lease; not checked by default."""
    wake_at: float | None
    """The time at which a worker drives the run next; unchanged by default, 0 for none."""
    take: Sequence[str]
    """Ids of waiting messages to remove: the oldest ones of the run's thread, in order; see `SupportsInbox`."""
    reader: int
    """The version that a reader of the log must have, if it is newer than before; not changed by default."""
    notes: Mapping[str, bytes]
    """Notes to write in the same transaction; see `SupportsNotes`."""
    release: bool
    """End the lease in the same transaction, unless the holder has yet to cancel the run; False by default."""


@runtime_checkable
class Store(Protocol):
    """A place for the logs of runs, with leases for those who drive them.

    All methods may be called from several tasks at once.
    """

    async def create(self, run_id: str, lines: Sequence[bytes], **options: Unpack[CreateOptions]) -> Lease:
        """Create a run with a lease with fence 1.

        Args:
            run_id: The run's id.
            lines: The first lines of its log.
            **options: See `CreateOptions`.

        Returns:
            The lease.

        Raises:
            RunExistsError: The id is taken.
            ThreadBusyError: The thread has a run that is running or suspended, its last run is not `previous`, or
                messages wait for it, and this run is not made of the oldest one.
            MessageGoneError: With `from_inbox`, no message with this id waits.
            RunNotFoundError: There is no run `forked_from`.
        """
        ...

    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> RunFlags:
        """Append lines and set the status; a finished status clears `cancel_requested`.

        Args:
            run_id: The run.
            expected_seq: The number of lines that the run must have.
            lines: The new lines; may be empty.
            **options: See `AppendOptions`.

        Returns:
            The run's `cancel_requested` and `inbox`.

        Raises:
            RunNotFoundError: There is no such run.
            RunConflictError: The run has another number of lines or another fence, or a finished run would continue
                although it is not the last one of its thread.
            MessageGoneError: One of `take` does not wait any more, or an older message does.
            ThreadBusyError: A finished run would continue while its thread has another unfinished one.
        """
        ...

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """Load the lines of a run.

        Args:
            run_id: The run.
            start: The number of lines to skip.

        Raises:
            RunNotFoundError: There is no such run.
            LogError: Lines are damaged or missing; the error names the first one.
        """
        ...

    async def record(self, run_id: str) -> RunRecord | None:
        """Return the record of a run, or None if there is no such run.

        Args:
            run_id: The run.
        """
        ...

    async def list(self, **filters: Unpack[RunFilters]) -> RecordPage:
        """Return a page of records, newest first by default.

        Runs that are created or changed meanwhile never make a page repeat or skip a record, except that with
        `order_by="changed"` a changed run moves to the front.

        Args:
            **filters: See `RunFilters`.
        """
        ...

    async def delete(self, run_id: str, *, fence: int | None = None) -> bool:
        """Delete a run.

        Args:
            run_id: The run.
            fence: Delete it only if its lease has not been acquired since it had this fence; not checked by default.

        Returns:
            Whether it was deleted.
        """
        ...

    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        """Acquire the lease on a run with the next fence.

        Args:
            run_id: The run.
            worker: The new holder; the current holder may acquire the lease again.
            ttl: Seconds until the lease expires.

        Raises:
            RunNotFoundError: There is no such run.
            RunConflictError: Another worker holds a lease that has not expired.
        """
        ...

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        """Extend leases, also expired ones, in as few statements as possible.

        A run that another process has locked never delays the leases of other runs.

        Args:
            leases: The leases; at most one per run.
            ttl: Seconds from now until they expire.

        Returns:
            The renewed leases by run id. A lease that was released or acquired since, or whose run is gone, is missing.
            So is one that cannot be renewed yet because another process has locked the run; the run's record still
            has its fence.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Release a lease; does nothing if it has been acquired again since, or the run was deleted.

        Args:
            lease: The lease.
        """

    async def request_cancel(self, run_id: str, when: CancelWhen) -> bool:
        """Request cancellation of a running or suspended run; an earlier time replaces a later one.

        Args:
            run_id: The run.
            when: When the driver should stop.

        Returns:
            Whether the run is running or suspended.
        """
        ...

    async def runnable(
        self,
        *,
        teams: Collection[str] | None = None,
        limit: int = 100,
        reader: int = READER_VERSION,
        per_owner: int | None = None,
        driven: Mapping[str, int] = NOTHING_DRIVEN,
    ) -> Sequence[RunRecord]:
        """Return the runs that a worker should drive now.

        The highest priority comes first, then the oldest run.

        These are the running ones without a valid lease, and the suspended ones with a `wake_at`; in both cases only
        if `wake_at` has passed.

        Args:
            teams: Only runs of these teams; runs of all teams by default.
            limit: The maximum number of runs.
            reader: The version of the worker: runs with a newer `reader` are left out.
            per_owner: The maximum number of runs of one owner, together with those in `driven`; no maximum by default.
                Runs without an owner are not limited by it. However many runs of one owner wait, those of others are
                found, and as fast.
            driven: The number of runs of each owner that the caller drives already.
        """
        ...

    async def now(self) -> float:
        """Return the time of the store's clock, in seconds since the epoch."""
        ...

    async def close(self) -> None:
        """Close connections and files. The store remains usable: it opens them again when needed."""


@runtime_checkable
class SupportsInbox(Protocol):
    """A store that keeps messages for threads with an unfinished run.

    1. The messages that wait for a thread are its inbox, ordered by a number that the store assigns. A message leaves
       the inbox in the same transaction that records what became of it: `create` turns the oldest one into a run,
       `append` takes the oldest ones into a run in progress, `withdraw` removes one. No message leaves it twice.
    2. While messages wait, only `create` with `from_inbox` adds a run to the thread. `enqueue` and `notify` set `inbox`
       of the thread's unfinished run before they return True, and every later `append` and `renew` of that run returns
       it. So either the run's last append shows that messages wait, or `enqueue` returns False and its caller looks
       after them.
    """

    async def enqueue(self, message: WaitingMessage, *, limit: int) -> bool:
        """Add a message to the inbox of its thread, and tell the thread's unfinished run.

        A message with the mode "preempt" also requests that a running run is cancelled after its turn.

        Args:
            message: The message; the store sets its number and time.
            limit: The number of messages that may wait for the thread.

        Returns:
            Whether the thread has an unfinished run. If not, the caller must create a run of the oldest message.

        Raises:
            RunExistsError: A run or another message has this id.
            InboxFullError: So many messages wait already.
        """
        ...

    async def waiting(self, run_id: str) -> WaitingMessage | None:
        """Return the waiting message with this id, or None.

        Args:
            run_id: The id of the message.
        """
        ...

    async def inbox(self, thread: str, *, limit: int = 100) -> Sequence[WaitingMessage]:
        """Return the messages that wait for a thread, oldest first.

        Args:
            thread: The thread.
            limit: The maximum number of messages.
        """
        ...

    async def withdraw(self, run_id: str) -> bool:
        """Remove a waiting message.

        Args:
            run_id: The id of the message.

        Returns:
            Whether it was waiting.
        """
        ...

    async def notify(self, thread: str) -> bool:
        """Set `inbox` of the thread's unfinished run to what waits now.

        Args:
            thread: The thread.

        Returns:
            Whether the thread has an unfinished run.
        """
        ...

    async def idle_threads(self, *, limit: int = 100) -> Sequence[str]:
        """Return threads that have waiting messages and no unfinished run, oldest message first.

        Args:
            limit: The maximum number of threads.
        """
        ...


@runtime_checkable
class SupportsNotes(Protocol):
    """A store that keeps bytes by name beside each log, such as the webhooks of A2A tasks.

    The last write of a name wins. Notes need no lease, do not change the record, and are deleted with the run. `create`
    and `append` write their `notes` in the transaction of their lines.
    """

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Set or remove a note of a run.

        Args:
            run_id: The run.
            name: The note's name.
            note: Its new content; None removes it.

        Raises:
            RunNotFoundError: There is no such run.
        """

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """Return the notes of a run by name, oldest first; empty if there is no such run.

        Notes whose names begin with `baton.` may be large and are left out; see `read_notes`.

        Args:
            run_id: The run.
        """
        ...

    async def read_notes(self, run_ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        """Return one note of each of several runs, by run id; runs without it are missing.

        Args:
            run_ids: The runs.
            name: The note's name.
        """
        ...

    async def thread_notes(self, thread: str, name: str, *, before: int, limit: int = 100) -> Sequence[RunNote]:
        """Return runs of a thread, newest first, each with one note.

        It takes as few statements as possible.

        Args:
            thread: The thread.
            name: The note's name.
            before: Only runs with a smaller number.
            limit: The maximum number of runs.
        """
        ...


@runtime_checkable
class SupportsRetention(Protocol):
    """A store that deletes many runs at once."""

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Delete runs whose status has not changed for some time; runs with a valid lease are kept.

        Args:
            older_than: Seconds since the last change of status.
            status: Delete only runs with one of these statuses.

        Returns:
            The number of deleted runs.
        """
        ...

    async def erase(self, *, owner: str = "", thread: str = "") -> int:
        """Delete all runs, also those in progress, and messages of an owner or a thread.

        All other runs with their name in `origins` are deleted as well, such as forks of these runs, also if the runs
        themselves were deleted before. When it returns, no copy is left that the store can remove.

        Args:
            owner: The owner; "" for none.
            thread: The thread; "" for none.

        Returns:
            The number of deleted runs.

        Raises:
            SetupError: Not exactly one of them is given.
        """
        ...


@runtime_checkable
class SupportsChannel(Protocol):
    """A store with a channel for short messages between its processes; they may be lost."""

    async def publish(self, messages: Sequence[str]) -> None:
        """Send messages to all processes that listen, in as few statements as possible.

        Args:
            messages: The messages, each of at most 7,999 bytes.
        """
        ...

    def listen(self) -> AsyncIterator[str]:
        """Receive messages, also those of this process; the first item is "", once it listens.

        Raises:
            StoreError: The connection is lost.
        """
        ...


@runtime_checkable
class FullStore(Store, SupportsInbox, SupportsNotes, SupportsRetention, Protocol):
    """A store with the parts that runners use; `resolve_store` returns one for any store."""
