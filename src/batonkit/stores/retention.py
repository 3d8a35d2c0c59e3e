"""Retention: delete runs that ended long ago, after writing them to an archive."""

import asyncio
import gzip
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import IO
from uuid import uuid4

import msgspec
from msgspec import Struct

from ..errors import LogError, RunConflictError, RunNotFoundError, SetupError
from .parts import with_all_parts
from .records import check_statuses, iter_records
from .store import FINISHED_STATUSES, SUMMARY_NOTE, FullStore, Lease, RunRecord, RunStatus, Store

_BATCH = 100
_LEASE_SECONDS = 60.0


class ArchivedRun(Struct, frozen=True):
    """A run in an archive, which has one JSON object on each line."""

    record: RunRecord
    """Its record."""
    log: Sequence[msgspec.Raw]
    """The lines of its log."""
    notes: Mapping[str, bytes] = {}
    """Its notes, in base64."""


class ExpiredRuns(Struct, frozen=True):
    """The outcome of `expire_runs`."""

    deleted: int = 0
    """The number of deleted runs."""
    damaged: Mapping[str, str] = {}
    """Runs that could not be archived and were kept: what is wrong with each, by run id."""


_decoder = msgspec.json.Decoder(ArchivedRun)


def read_archive(path: str | os.PathLike[str]) -> "list[ArchivedRun]":
    """Read an archive."""
    with gzip.open(path, "rb") as file:
        return [_decoder.decode(line) for line in file]


async def expire_runs(
    store: Store,
    older_than: float,
    *,
    status: Collection[RunStatus] = FINISHED_STATUSES,
    archive: str | os.PathLike[str] | None = None,
) -> ExpiredRuns:
    """Delete runs whose status has not changed for some time, after writing them to an archive.

    A run is deleted only once the archive is on disk, and if no one has changed it since it was copied. Runs that a
    worker holds are kept, and so are runs whose log is damaged.

    Raises:
        SetupError: The archive exists.
    """
    if archive is None:
        return ExpiredRuns(await with_all_parts(store).expire(older_than, status=status))
    until = await store.now() - older_than
    try:
        with open(archive, "xb", opener=_open_private) as file:  # noqa: ASYNC230 - only the writes take long
            archiver = _Archiver(with_all_parts(store), until, file)
            async for batch in _batches(store, until, check_statuses(status)):
                await archiver.archive(batch)
    except FileExistsError:
        raise SetupError(f"the archive `{os.fspath(archive)}` exists; choose another file") from None
    return ExpiredRuns(archiver.deleted, archiver.damaged)


def _open_private(path: str, flags: int) -> int:
    """Create a file for this user only, like that of an SQLite store."""
    return os.open(path, flags, 0o600)


async def _batches(store: Store, until: float, status: Collection[RunStatus]) -> AsyncIterator[Sequence[RunRecord]]:
    batch: list[RunRecord] = []
    found = iter_records(store, status=status, until=until, order_by="changed", oldest_first=True, limit=_BATCH)
    async for record in found:
        batch.append(record)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


class _Archiver:
    """Writes batches of runs to a file, and deletes those that no one has changed meanwhile."""

    def __init__(self, store: FullStore, until: float, file: IO[bytes]) -> None:
        self.deleted = 0
        self.damaged: dict[str, str] = {}
        self._store = store
        self._until = until
        self._file = file
        self._worker = f"archive {uuid4().hex}"
        self._leases: dict[str, Lease] = {}
        """The leases of the runs that were copied and not deleted yet."""

    async def archive(self, batch: Sequence[RunRecord]) -> None:
        """Write a batch, wait for the disk, and delete its runs."""
        # Each batch is complete in itself, so that a crash damages none that was deleted.
        with gzip.GzipFile(fileobj=self._file, mode="wb") as member:
            for known in batch:
                content = await self._copy(known)
                if content is not None:
                    await asyncio.to_thread(member.write, content)
                    await self._renew_leases()
        await asyncio.to_thread(self._sync)
        for lease in self._leases.values():
            # A worker that took the lease over may have continued the run.
            self.deleted += await self._store.delete(lease.run_id, fence=lease.fence)
        self._leases.clear()

    async def _copy(self, known: RunRecord) -> bytes | None:
        """Acquire a run and return its line of the archive; None if the run is kept."""
        try:
            # So that no worker resumes the run between the copy and its deletion.
            lease = await self._store.acquire(known.run_id, self._worker, ttl=_LEASE_SECONDS)
        except (RunConflictError, RunNotFoundError):
            return None
        content = await self._read(known)
        if content is None:
            await self._store.release(lease)
        else:
            self._leases[lease.run_id] = lease
        return content

    async def _read(self, known: RunRecord) -> bytes | None:
        record = await self._store.record(known.run_id)
        if record is None or record.status != known.status or record.changed_at >= self._until:
            return None
        notes = dict(await self._store.notes(record.run_id))
        summary = (await self._store.read_notes([record.run_id], SUMMARY_NOTE)).get(record.run_id)
        if summary is not None:
            notes[SUMMARY_NOTE] = summary
        try:
            lines = [msgspec.Raw(line) for line in await self._store.load(record.run_id)]
            content = msgspec.json.encode(ArchivedRun(record, lines, notes))
            # A line that is not JSON would make the whole archive unreadable.
            _decoder.decode(content)
        except (LogError, msgspec.MsgspecError, UnicodeError) as problem:
            self.damaged[record.run_id] = str(problem)
            return None
        return content + b"\n"

    async def _renew_leases(self) -> None:
        """Renew the leases once a third of their time is over; those that are lost are not deleted."""
        oldest = min(lease.until for lease in self._leases.values())
        if oldest - await self._store.now() < _LEASE_SECONDS * 2 / 3:
            self._leases = dict(await self._store.renew([*self._leases.values()], ttl=_LEASE_SECONDS))

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
