"""Test stores: they record their calls, fail or confirm late; and the copy that a dead process leaves behind."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from batonkit.log import Event, decode_lines
from batonkit.stores import AppendOptions, Lease, MemoryStore, RunFlags, RunRecord, RunStatus

Fault = Exception | Callable[[], Any]


class RecordingStore(MemoryStore):
    """A memory store that records its calls. Each of the `faults` of a method happens before one call of it."""

    def __init__(self, *, clock: Callable[[], float] | None = None) -> None:
        if clock is None:
            super().__init__()
        else:
            super().__init__(clock=clock)
        self.calls: list[str] = []
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.after: defaultdict[str, list[Fault]] = defaultdict(list)
        """Faults that happen after the call: the caller does not learn that it succeeded."""
        self.seen: asyncio.Queue[str] = asyncio.Queue()

    async def create(self, run_id: str, lines: Sequence[bytes], **about: Any) -> Lease:
        await self._run_fault("create", self.faults)
        return await super().create(run_id, lines, **about)

    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> RunFlags:
        await self._run_fault("append", self.faults)
        flags = await super().append(run_id, expected_seq, lines, **options)
        await self._run_fault("append", self.after)
        return flags

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        await self._run_fault("renew", self.faults)
        renewed = await super().renew(leases, ttl=ttl)
        self.seen.put_nowait("renew")
        return renewed

    async def release(self, lease: Lease) -> None:
        await self._run_fault("release", self.faults)
        await super().release(lease)

    async def _run_fault(self, method: str, faults: dict[str, list[Fault]]) -> None:
        if faults is self.faults:
            self.calls.append(method)
        if faults[method]:
            fault = faults[method].pop(0)
            if isinstance(fault, Exception):
                raise fault
            await fault()

    def keys(self, run_id: str) -> list[str]:
        """Return the keys of a run's stored events."""
        return [event.key for event in decode_lines(self._lines[run_id])] if run_id in self._lines else []


class HeldStore(MemoryStore):
    """A memory store whose writer learns only when `go` is set that a status is stored; others see it at once."""

    def __init__(self, status: RunStatus) -> None:
        super().__init__()
        self.stored = asyncio.Event()
        self.go = asyncio.Event()
        self._status = status

    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> RunFlags:
        flags = await super().append(run_id, expected_seq, lines, **options)
        if options.get("status") == self._status and not self.stored.is_set():
            self.stored.set()
            await self.go.wait()
        return flags


class ManualClock:
    """A clock that only tests advance."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def copy_without_leases(store: MemoryStore) -> MemoryStore:
    """Return a copy of the store without leases, as if all workers had died."""
    copy = MemoryStore()
    for record in (await store.list(oldest_first=True)).records:
        lines = await store.load(record.run_id)
        lease = await copy.create(record.run_id, lines, thread=record.thread, worker="dead", ttl=0)
        if record.status != "running":
            await copy.append(record.run_id, record.seq, (), status=record.status, fence=lease.fence)
    return copy


async def get_record(store: MemoryStore, run_id: str) -> RunRecord:
    """Return the record of an existing run."""
    record = await store.record(run_id)
    assert record is not None
    return record


async def load_events(store: MemoryStore, run_id: str) -> list[Event]:
    """Return the stored events of a run."""
    return decode_lines(await store.load(run_id))
