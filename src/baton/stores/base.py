"""The contract of a store: what is kept of a run, and how it may change.

A run is kept as lines, each one event as JSON, and a record about it. A store never reads the lines. It promises:

1. `append` is all or nothing, and only if the run has just `expected_seq` lines: of two writers one gets RunConflictError.
2. When `append` returns, the lines survive whatever the store promises to survive. A task that is cancelled in it
   leaves all of the lines or none, and the store as good as before.
3. A lease is held by one owner at a time; every acquisition has a higher fence, and lines that come with an older
   fence than the run's are refused with RunConflictError. A lease of no seconds has run out at once.
   A store that never waits for anything but a lock may say so with `is_immediate = True`: it is then asked without a
   task of its own, and must leave nothing behind of an append that is cancelled.
4. Trouble of the store's own (unreachable, full, locked, read-only) is a StoreError, and nothing has been written.
5. Notes are what else is to be known about a run and is no part of its log: bytes by name, the last to write wins. They
   have no fence and change nothing in the record, and they go when the run goes.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, TypedDict, Unpack, runtime_checkable

from msgspec import Struct

RunStatus: TypeAlias = Literal["running", "suspended", "completed", "failed", "cancelled"]
"""Where a run stands."""

RUN_STATUSES: tuple[RunStatus, ...] = ("running", "suspended", "completed", "failed", "cancelled")
"""All there are."""

FINISHED_STATUSES: tuple[RunStatus, ...] = ("completed", "failed", "cancelled")
"""Statuses in which a run does not keep its thread busy."""


class RunRecord(Struct, frozen=True, kw_only=True):
    """What a store knows about a run without reading its log."""

    run_id: str
    status: RunStatus = "running"
    seq: int = 0
    """How many lines its log has."""
    thread: str = ""
    owner: str = ""
    """The name of whoever asked for it from outside, and whose it is; "" if nobody in particular did."""
    created_at: float = 0.0
    updated_at: float = 0.0
    worker: str = ""
    """Who holds the lease, or held it last."""
    lease_until: float = 0.0
    fence: int = 0
    """How often a lease on the run has been taken."""
    cancel_requested: Literal["", "now", "after_turn"] = ""
    """What somebody has asked the run's driver to do. Cleared when a lease is taken."""


class RunFilters(TypedDict, total=False):
    """Which records `list` gives, and in which order. What is left out, or None, is not asked for."""

    status: Collection[RunStatus] | None
    thread: str | None
    owner: str | None
    """The runs of one caller; "" are those of nobody."""
    since: float | None
    """Those whose time is not before this one."""
    until: float | None
    """Those whose time is before this one."""
    order_by: Literal["created", "updated"]
    """Which time counts, also for the order: that of creation, or that of the last line. Creation if left out."""
    oldest_first: bool
    limit: int
    """How many a page has at most: 100 if left out."""
    cursor: str
    """The `next` of the page before. The rest must be as it was then, and `counted` may be left out."""
    count_total: bool
    """Whether the page is to say how many there are on all pages."""


class RecordPage(Struct, frozen=True):
    """Some of the records that were asked for; `next` asks for more, and is "" if there are none."""

    records: tuple[RunRecord, ...] = ()
    next_cursor: str = ""
    total: int | None = None
    """How many there are on all pages, if that was asked for."""


class Lease(Struct, frozen=True):
    """The right to drive a run until a point in time, by the store's clock."""

    run_id: str
    worker: str
    fence: int
    until: float


@runtime_checkable
class Store(Protocol):
    """Somewhere to keep logs. All methods are safe to call from several tasks at once."""

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
        """Begin a run with its first lines, status `running`, and a lease for its maker (fence 1, even if ttl is 0).

        RunExistsError if the id is taken. With a thread: ThreadBusyError if it has a run that is running or suspended.
        """
        ...

    async def append(
        self,
        run_id: str,
        expected_seq: int,
        lines: Sequence[bytes],
        *,
        status: RunStatus | None = None,
        fence: int | None = None,
    ) -> None:
        """Add lines after the first `expected_seq`, and set the status if one is given. Lines may be none.

        RunConflictError if the run has another number of lines or another fence; RunNotFoundError if there is no such run.
        ThreadBusyError if the status would make a finished run go on while its thread has another that has not ended.
        """
        ...

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """The lines of a run from number `start` on; none if it has fewer.

        RunNotFoundError if there is no such run; LogError, with the line's number, if what is kept was damaged.
        """
        ...

    async def record(self, run_id: str) -> RunRecord | None:
        """What is known about a run, or None if there is no such run."""
        ...

    async def list(self, **wanted: Unpack[RunFilters]) -> RecordPage:
        """A page of records, newest first unless `oldest_first`.

        Runs created meanwhile never make a page repeat or skip a record; nor do runs that change, unless the order is
        that of changes: then one that changes moves to the front.
        """
        ...

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Keep a note beside a run's log, in place of the one of that name; None takes it away.

        RunNotFoundError if there is no such run.
        """
        ...

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """The notes of a run by name, the oldest first; none if there is no such run."""
        ...

    async def delete(self, run_id: str) -> bool:
        """Forget a run; whether there was one."""
        ...

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Forget runs with these statuses not written to for `older_than` seconds; how many there were.

        A run whose lease is held is kept: somebody is about to write to it.
        """
        ...

    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        """Take the lease on a run for `ttl` seconds, with the next fence; clears `cancel`.

        RunConflictError if another owner has it and it has not run out; the same owner may take it again.
        RunNotFoundError if there is no such run.
        """
        ...

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Hold a lease for longer, also one that has run out. RunConflictError if it has been taken again since."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give a lease back. Nothing happens if it has been taken again since, or the run is gone."""
        ...

    async def request_cancel(self, run_id: str, when: Literal["now", "after_turn"]) -> bool:
        """Leave word for the run's driver to stop; whether it is there and running. "now" is not softened later."""
        ...

    async def close(self) -> None:
        """Give back connections and files. The store can be used again: it opens them anew."""
        ...
