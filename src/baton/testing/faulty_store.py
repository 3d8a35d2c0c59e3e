"""A store that fails, hangs, loses answers or shifts times at chosen operations, to test programs against faults."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from ..arguments import check_choice
from ..errors import StoreError
from ..stores import (
    FINISHED_STATUSES,
    AppendOptions,
    CancelRequest,
    CancelWhen,
    CreateOptions,
    Lease,
    RecordPage,
    RunFilters,
    RunRecord,
    RunStatus,
    Store,
)

T = TypeVar("T")

Operation: TypeAlias = Literal[
    "create",
    "append",
    "load",
    "record",
    "list",
    "put_note",
    "notes",
    "delete",
    "expire",
    "acquire",
    "renew",
    "release",
    "request_cancel",
    "runnable",
]
"""A method of a store."""

OPERATIONS: tuple[Operation, ...] = Operation.__args__
_TIMES = ("created_at", "updated_at", "changed_at", "lease_until")


class _Fault(Struct, frozen=True):
    """A planned fault of one call."""

    kind: Literal["fail", "lose", "hang"]
    error: Exception | None = None


class FaultyStore:
    """A store that passes calls on to another one, except where a fault was planned.

    Planned faults of one operation happen one after the other, one per call; calls beyond them are passed on.

    Args:
        inner: The store that keeps the runs.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        """The store that keeps the runs."""
        self.calls: list[Operation] = []
        """The operations that were called, in order."""
        self.time_offset = 0.0
        """Seconds added to every time in the records and leases that the store returns."""
        self._faults: defaultdict[str, deque[_Fault]] = defaultdict(deque)
        self._is_hanging = asyncio.Event()
        self._resumed = asyncio.Event()

    def __repr__(self) -> str:
        return f"FaultyStore({self.inner!r})"

    def fail(self, operation: Operation, *, times: int = 1, error: Exception | None = None) -> None:
        """Make the next calls of an operation raise an error, without any effect.

        Args:
            operation: The operation.
            times: The number of calls.
            error: The error; a StoreError by default.
        """
        self._plan(operation, times, _Fault("fail", error))

    def lose_answer(self, operation: Operation, *, times: int = 1, error: Exception | None = None) -> None:
        """Make the next calls of an operation take effect and raise an error nevertheless.

        Args:
            operation: The operation.
            times: The number of calls.
            error: The error; a StoreError by default.
        """
        self._plan(operation, times, _Fault("lose", error))

    def hang(self, operation: Operation, *, times: int = 1) -> None:
        """Make the next calls of an operation wait until `resume`.

        Args:
            operation: The operation.
            times: The number of calls.
        """
        self._plan(operation, times, _Fault("hang"))
        self._resumed.clear()

    def resume(self) -> None:
        """Let calls that hang go on."""
        self._resumed.set()

    async def wait_until_hanging(self) -> None:
        """Wait until a call hangs."""
        await self._is_hanging.wait()

    def _plan(self, operation: Operation, times: int, fault: _Fault) -> None:
        check_choice("operation", operation, OPERATIONS)
        self._faults[operation].extend([fault] * times)

    async def _call(self, operation: Operation, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(operation)
        fault = self._faults[operation].popleft() if self._faults[operation] else None
        if fault is None:
            return self._shift(await call())
        if fault.kind == "hang":
            self._is_hanging.set()
            await self._resumed.wait()
            self._is_hanging.clear()
            return self._shift(await call())
        if fault.kind == "lose":
            await call()
        raise fault.error or StoreError(f"planned fault of `{operation}`", store=repr(self))

    def _shift(self, result: T) -> T:
        if not self.time_offset:
            return result
        shifted: Any = result
        match shifted:
            case Lease():
                shifted = replace(shifted, until=shifted.until + self.time_offset)
            case RunRecord():
                shifted = self._shift_record(shifted)
            case RecordPage():
                shifted = replace(shifted, records=tuple([self._shift_record(one) for one in shifted.records]))
            case _:
                pass
        return shifted

    def _shift_record(self, record: RunRecord) -> RunRecord:
        return replace(record, **{name: getattr(record, name) + self.time_offset for name in _TIMES})

    async def create(self, run_id: str, lines: Sequence[bytes], **options: Unpack[CreateOptions]) -> Lease:
        """Create a run; see `Store.create`."""
        return await self._call("create", lambda: self.inner.create(run_id, lines, **options))

    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> CancelRequest:
        """Append lines; see `Store.append`."""
        return await self._call("append", lambda: self.inner.append(run_id, expected_seq, lines, **options))

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        """Load lines; see `Store.load`."""
        return await self._call("load", lambda: self.inner.load(run_id, start=start))

    async def record(self, run_id: str) -> RunRecord | None:
        """Return a run's record; see `Store.record`."""
        return await self._call("record", lambda: self.inner.record(run_id))

    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        """Set or remove a note; see `Store.put_note`."""
        await self._call("put_note", lambda: self.inner.put_note(run_id, name, note))

    async def notes(self, run_id: str) -> Mapping[str, bytes]:
        """Return a run's notes; see `Store.notes`."""
        return await self._call("notes", lambda: self.inner.notes(run_id))

    async def delete(self, run_id: str) -> bool:
        """Delete a run; see `Store.delete`."""
        return await self._call("delete", lambda: self.inner.delete(run_id))

    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        """Delete old runs; see `Store.expire`."""
        return await self._call("expire", lambda: self.inner.expire(older_than, status=status))

    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        """Acquire a lease; see `Store.acquire`."""
        return await self._call("acquire", lambda: self.inner.acquire(run_id, worker, ttl=ttl))

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        """Renew leases; see `Store.renew`."""
        return await self._call("renew", lambda: self.inner.renew(leases, ttl=ttl))

    async def release(self, lease: Lease) -> None:
        """Release a lease; see `Store.release`."""
        await self._call("release", lambda: self.inner.release(lease))

    async def request_cancel(self, run_id: str, when: CancelWhen) -> bool:
        """Request cancellation; see `Store.request_cancel`."""
        return await self._call("request_cancel", lambda: self.inner.request_cancel(run_id, when))

    async def runnable(self, *, teams: Collection[str] | None = None, limit: int = 100) -> Sequence[RunRecord]:
        """Return the runs to drive; see `Store.runnable`."""
        return await self._call("runnable", lambda: self.inner.runnable(teams=teams, limit=limit))

    async def list(self, **filters: Unpack[RunFilters]) -> RecordPage:
        """Return a page of records; see `Store.list`."""
        return await self._call("list", lambda: self.inner.list(**filters))

    async def close(self) -> None:
        """Close the inner store; never fails on purpose."""
        await self.inner.close()
