"""The contract of a store: what is kept of a run, and how it may change.

A run is kept as lines, each one event as JSON, and a record about it. A store never reads the lines. It promises:

1. `append` is all or nothing, and only if the run has just `expected_seq` lines: of two writers one gets RunConflict.
2. When `append` returns, the lines survive whatever the store promises to survive. A task that is cancelled in it
   leaves all of the lines or none, and the store as good as before.
3. A lease is held by one owner at a time; every acquisition has a higher fence, and lines that come with an older
   fence than the run's are refused with RunConflict. A lease of no seconds has run out at once.
   A store that never waits for anything but a lock may say so with `is_immediate = True`: it is then asked without a
   task of its own, and must leave nothing behind of an append that is cancelled.
4. Trouble of the store's own (unreachable, full, locked, read-only) is a StoreError, and nothing has been written.
"""

from collections.abc import Collection, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

RunStatus: TypeAlias = Literal["running", "suspended", "completed", "failed", "cancelled"]
"""Where a run stands."""

STATUSES: tuple[RunStatus, ...] = ("running", "suspended", "completed", "failed", "cancelled")
"""All there are."""

FINISHED: tuple[RunStatus, ...] = ("completed", "failed", "cancelled")
"""Statuses in which a run does not keep its thread busy."""


class RunRecord(Struct, frozen=True, kw_only=True):
    """What a store knows about a run without reading its log."""

    run_id: str
    status: RunStatus = "running"
    seq: int = 0
    """How many lines its log has."""
    thread: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    owner: str = ""
    """Who holds the lease, or held it last."""
    lease_until: float = 0.0
    fence: int = 0
    """How often a lease on the run has been taken."""
    cancel: Literal["", "now", "after_turn"] = ""
    """What somebody has asked the run's driver to do. Cleared when a lease is taken."""


class Page(Struct, frozen=True):
    """Some of the records that were asked for; `next` asks for more, and is "" if there are none."""

    records: tuple[RunRecord, ...] = ()
    next: str = ""


class Lease(Struct, frozen=True):
    """The right to drive a run until a point in time, by the store's clock."""

    run_id: str
    owner: str
    fence: int
    until: float


@runtime_checkable
class Store(Protocol):
    """Somewhere to keep logs. All methods are safe to call from several tasks at once."""

    async def create(
        self, run_id: str, lines: Sequence[bytes], *, thread: str = "", owner: str = "", ttl: float = 0.0
    ) -> Lease:
        """Begin a run with its first lines, status `running`, and a lease for its maker (fence 1, even if ttl is 0).

        RunExistsError if the id is taken. With a thread: ThreadBusy if it has a run that is running or suspended.
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

        RunConflict if the run has another number of lines or another fence; RunNotFoundError if there is no such run.
        ThreadBusy if the status would make a finished run go on while its thread has another that has not ended.
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

    async def list(
        self,
        *,
        status: Collection[RunStatus] | None = None,
        thread: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int = 100,
        after: str = "",
        oldest_first: bool = False,
    ) -> Page:
        """Records by status, thread and time of creation (`since` <= created_at < `until`), newest first.

        `after` is the `next` of the page before. Runs created meanwhile never make a page repeat or skip a record.
        """
        ...

    async def delete(self, run_id: str) -> bool:
        """Forget a run; whether there was one."""
        ...

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED) -> int:
        """Forget runs with these statuses not written to for `older_than` seconds; how many there were.

        A run whose lease is held is kept: somebody is about to write to it.
        """
        ...

    async def acquire(self, run_id: str, owner: str, *, ttl: float) -> Lease:
        """Take the lease on a run for `ttl` seconds, with the next fence; clears `cancel`.

        RunConflict if another owner has it and it has not run out; the same owner may take it again.
        RunNotFoundError if there is no such run.
        """
        ...

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Hold a lease for longer, also one that has run out. RunConflict if it has been taken again since."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give a lease back. Nothing happens if it has been taken again since, or the run is gone."""
        ...

    async def ask_to_cancel(self, run_id: str, how: Literal["now", "after_turn"]) -> bool:
        """Leave word for the run's driver to stop; whether it is there and running. "now" is not softened later."""
        ...

    async def close(self) -> None:
        """Give back connections and files. The store can be used again: it opens them anew."""
        ...
