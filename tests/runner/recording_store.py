"""Test stores: one that records its calls and can be made to fail, and the copy that a dead process leaves behind."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from baton.events import Event, decode_lines
from baton.stores import Lease, MemoryStore, RunRecord, RunStatus

Fault = Exception | Callable[[], Any]


class RecordingStore(MemoryStore):
    """Keeps logs in memory, and tells what was asked of it. `faults` happen before what they are for, one at a time."""

    def __init__(self, *, clock: Callable[[], float] | None = None) -> None:
        if clock is None:
            super().__init__()
        else:
            super().__init__(clock=clock)
        self.asked: list[str] = []
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.after: defaultdict[str, list[Fault]] = defaultdict(list)
        """The same, but happening when it is done: the caller does not learn that it was."""
        self.seen: asyncio.Queue[str] = asyncio.Queue()

    async def create(self, run_id: str, lines: Sequence[bytes], **about: Any) -> Lease:
        await self._happen("create", self.faults)
        return await super().create(run_id, lines, **about)

    async def append(
        self,
        run_id: str,
        expected_seq: int,
        lines: Sequence[bytes],
        *,
        status: RunStatus | None = None,
        fence: int | None = None,
    ) -> None:
        await self._happen("append", self.faults)
        await super().append(run_id, expected_seq, lines, status=status, fence=fence)
        await self._happen("append", self.after)

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        await self._happen("renew", self.faults)
        renewed = await super().renew(lease, ttl=ttl)
        self.seen.put_nowait("renew")
        return renewed

    async def release(self, lease: Lease) -> None:
        await self._happen("release", self.faults)
        await super().release(lease)

    async def _happen(self, what: str, faults: dict[str, list[Fault]]) -> None:
        if faults is self.faults:
            self.asked.append(what)
        if faults[what]:
            fault = faults[what].pop(0)
            if isinstance(fault, Exception):
                raise fault
            await fault()

    def keys(self, run_id: str) -> list[str]:
        """The keys of the events it has of a run, now."""
        return [event.key for event in decode_lines(self._lines[run_id])] if run_id in self._lines else []


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def copy_without_leases(store: MemoryStore) -> MemoryStore:
    """Return a copy of the store without leases, as if all workers had died."""
    left = MemoryStore()
    for record in (await store.list(oldest_first=True)).records:
        lines = await store.load(record.run_id)
        lease = await left.create(record.run_id, lines, thread=record.thread, worker="the dead", ttl=0)
        if record.status != "running":
            await left.append(record.run_id, record.seq, (), status=record.status, fence=lease.fence)
    return left


async def get_record(store: MemoryStore, run_id: str) -> RunRecord:
    """The record of a run that there is."""
    record = await store.record(run_id)
    assert record is not None
    return record


async def load_events(store: MemoryStore, run_id: str) -> list[Event]:
    """The events that a store has of a run."""
    return decode_lines(await store.load(run_id))
