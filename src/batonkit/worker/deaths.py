"""Runs whose workers die: counting the deaths, and failing a run that keeps killing its worker."""

import asyncio
import logging
from time import time

import msgspec
from msgspec import Struct

from ..errors import RunConflictError, RunNotFoundError, StoreError, WorkerDiedError
from ..log import RunFailed, encode_event
from ..log.event import RUN_ORIGIN
from ..runs.opening import new_id
from ..runs.stored.repository import RunRepository
from ..stores import RunRecord

_logger = logging.getLogger("baton.worker")
DEATHS_NOTE = "deaths"
"""The name of the note that counts the workers of a run that died."""
PARKED_NOTE = "parked"
"""The name of the note that says why a run was parked."""
SUSPECT_AFTER = 2
"""The number of deaths after which a run is driven without other suspects beside it."""


class Deaths(Struct, frozen=True):
    """The workers of a run that died one after the other, without a new line in its log."""

    count: int = 0
    """The number of deaths."""
    seq: int = 0
    """The number of lines that the log had."""
    fence: int = 0
    """The fence of the last lease that counts."""


def has_died(record: RunRecord) -> bool:
    """Return whether the last worker of a run died: its lease expired and was not released."""
    return record.status == "running" and record.lease_until > 0 and bool(record.worker)


class DeathCounter:
    """Counts the workers that a run took with it, and parks the run after too many.

    One run that kills its worker also takes down those that are driven beside it. A run with several deaths is
    therefore driven while no other such run is, so that only the one at fault goes on dying.
    """

    def __init__(self, repository: RunRepository, most: int) -> None:
        self._repository = repository
        self._most = most
        self.suspects = asyncio.Lock()
        """Held by the one suspect that is driven."""

    async def count(self, record: RunRecord) -> int:
        """Count the death of a run's last worker once; return the deaths since the log grew."""
        try:
            return await self._count(record)
        except (StoreError, RunNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            _logger.warning("could not count the dead workers of run `%s`", record.run_id, exc_info=True)
            return 0

    async def _count(self, record: RunRecord) -> int:
        store = self._repository.store
        note = (await store.notes(record.run_id)).get(DEATHS_NOTE)
        counted = Deaths() if note is None else msgspec.json.decode(note, type=Deaths)
        if not has_died(record) or (counted.fence == record.fence and counted.seq == record.seq):
            return counted.count if counted.seq == record.seq else 0
        count = counted.count + 1 if counted.seq == record.seq else 1
        deaths = Deaths(count, record.seq, record.fence)
        await store.put_note(record.run_id, DEATHS_NOTE, msgspec.json.encode(deaths))
        return count

    def is_too_many(self, deaths: int) -> bool:
        """Return whether a run with so many deaths is parked."""
        return deaths >= self._most

    async def park(self, record: RunRecord, deaths: int) -> bool:
        """Fail a run because its workers keep dying; return whether it was still there to fail."""
        repository = self._repository
        store = repository.store
        error = WorkerDiedError(record.run_id, deaths)
        try:
            lease = await store.acquire(record.run_id, new_id(), ttl=repository.ttl)
        except (RunConflictError, RunNotFoundError):
            return False
        try:
            current = await repository.record(record.run_id)
            if current.status != "running":
                return False
            event = RunFailed(
                f"failed{current.seq - 1}", RUN_ORIGIN, time(), error_type=type(error).__name__, message=str(error)
            )
            flags = await store.append(
                record.run_id,
                current.seq,
                [encode_event(event)],
                status="failed",
                fence=lease.fence,
                notes={PARKED_NOTE: str(error).encode()},
                release=True,
            )
        finally:
            await store.release(lease)
        _logger.error("parked: %s", error)
        if flags.inbox:
            await repository.inbox.promote_safely(record.thread)
        return True
