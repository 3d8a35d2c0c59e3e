"""A store that fails, hangs, loses answers or shifts times at chosen operations, to test programs against faults."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Literal, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from .._checks import check_choice
from ..errors import StoreError
from ..stores import Lease, RecordPage, RunRecord, Store, SupportsInbox, SupportsNotes, SupportsRetention
from ..stores.parts import with_all_parts
from ..stores.store import DEFAULT_LEASE_SECONDS

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

Operation: TypeAlias = Literal[
    "create",
    "append",
    "load",
    "record",
    "list",
    "put_note",
    "notes",
    "read_notes",
    "thread_notes",
    "delete",
    "expire",
    "erase",
    "acquire",
    "renew",
    "release",
    "request_cancel",
    "runnable",
    "enqueue",
    "waiting",
    "inbox",
    "withdraw",
    "notify",
    "idle_threads",
    "now",
]
"""A method of a store."""

OPERATIONS: tuple[Operation, ...] = Operation.__args__
_TIMES = ("created_at", "updated_at", "changed_at", "lease_until")


class _Fault(Struct, frozen=True):
    """A planned fault of one call."""

    kind: Literal["fail", "lose", "hang"]
    error: Exception | None = None


def _faulty(method: F) -> F:
    """Make a method that passes an operation on to the inner store, unless a fault is planned."""

    @wraps(method)
    async def call(store: "FaultyStore", *args: Any, **kwargs: Any) -> Any:
        forward = getattr(store._parts, method.__name__)
        return await store._call(cast("Operation", method.__name__), lambda: forward(*args, **kwargs))

    return cast("F", call)


class FaultyStore:
    """A store that passes calls on to another one, except where a fault was planned.

    Planned faults of one operation happen one after the other, one per call; calls beyond them are passed on.

    Args:
        inner: The store that keeps the runs.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        """The store that keeps the runs."""
        self._parts = with_all_parts(inner)
        self.calls: list[Operation] = []
        """The operations that were called, in order."""
        self.lease_seconds: float = getattr(inner, "lease_seconds", DEFAULT_LEASE_SECONDS)
        """Seconds for which a run stays reserved for a worker that died."""
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
            case float():
                shifted = shifted + self.time_offset
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

    create = _faulty(Store.create)
    append = _faulty(Store.append)
    load = _faulty(Store.load)
    record = _faulty(Store.record)
    list = _faulty(Store.list)
    put_note = _faulty(SupportsNotes.put_note)
    notes = _faulty(SupportsNotes.notes)
    read_notes = _faulty(SupportsNotes.read_notes)
    thread_notes = _faulty(SupportsNotes.thread_notes)
    delete = _faulty(Store.delete)
    expire = _faulty(SupportsRetention.expire)
    erase = _faulty(SupportsRetention.erase)
    acquire = _faulty(Store.acquire)
    renew = _faulty(Store.renew)
    release = _faulty(Store.release)
    request_cancel = _faulty(Store.request_cancel)
    runnable = _faulty(Store.runnable)
    enqueue = _faulty(SupportsInbox.enqueue)
    waiting = _faulty(SupportsInbox.waiting)
    inbox = _faulty(SupportsInbox.inbox)
    withdraw = _faulty(SupportsInbox.withdraw)
    notify = _faulty(SupportsInbox.notify)
    idle_threads = _faulty(SupportsInbox.idle_threads)
    now = _faulty(Store.now)

    async def close(self) -> None:
        """Close the inner store; never fails on purpose."""
        await self.inner.close()
