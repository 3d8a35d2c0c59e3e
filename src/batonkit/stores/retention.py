"""Retention: delete runs that ended long ago, after writing them to an archive."""

import gzip
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO
from uuid import uuid4

import msgspec
from msgspec import Struct

from ..errors import RunConflictError, RunNotFoundError, SetupError
from .parts import with_all_parts
from .records import check_statuses, iter_records
from .store import FINISHED_STATUSES, SUMMARY_NOTE, FullStore, RunRecord, RunStatus, Store

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


def read_archive(path: str | os.PathLike[str]) -> "list[ArchivedRun]":
    """Read an archive."""
    decoder = msgspec.json.Decoder(ArchivedRun)
    with gzip.open(path, "rb") as file:
        return [decoder.decode(line) for line in file]


async def expire_runs(
    store: Store,
    older_than: float,
    *,
    status: Collection[RunStatus] = FINISHED_STATUSES,
    archive: str | os.PathLike[str] | None = None,
) -> int:
    """Delete runs whose status has not changed for some time, after writing them to an archive.

    A run is deleted only once the archive is on disk. Runs that a worker holds are kept.

    Returns:
        The number of deleted runs.

    Raises:
        SetupError: The archive exists.
    """
    if archive is None:
        return await with_all_parts(store).expire(older_than, status=status)
    until = await store.now() - older_than
    deleted = 0
    try:
        with Path(archive).open("xb") as raw, gzip.open(raw, "wb") as packed:  # noqa: ASYNC230 - small batches.
            async for batch in _batches(store, until, check_statuses(status)):
                deleted += await _archive_batch(with_all_parts(store), batch, until, raw, packed)
    except FileExistsError:
        raise SetupError(f"the archive `{os.fspath(archive)}` exists; choose another file") from None
    return deleted


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


async def _archive_batch(
    store: FullStore, batch: Sequence[RunRecord], until: float, raw: IO[bytes], packed: gzip.GzipFile
) -> int:
    """Write runs to the archive, and delete those that no one has changed meanwhile."""
    archived: list[str] = []
    for known in batch:
        try:
            # With the lease, so that no worker resumes the run between the copy and its deletion.
            lease = await store.acquire(known.run_id, f"archive {uuid4().hex}", ttl=_LEASE_SECONDS)
        except (RunConflictError, RunNotFoundError):
            continue
        record = await store.record(known.run_id)
        if record is None or record.status != known.status or record.changed_at >= until:
            await store.release(lease)
            continue
        notes = dict(await store.notes(record.run_id))
        summary = (await store.read_notes([record.run_id], SUMMARY_NOTE)).get(record.run_id)
        if summary is not None:
            notes[SUMMARY_NOTE] = summary
        lines = [msgspec.Raw(line) for line in await store.load(record.run_id)]
        packed.write(msgspec.json.encode(ArchivedRun(record, lines, notes)) + b"\n")
        archived.append(record.run_id)
    packed.flush()
    raw.flush()
    os.fsync(raw.fileno())
    return sum([await store.delete(run_id) for run_id in archived])
