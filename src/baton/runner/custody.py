"""What can be done with stored runs besides driving one here and now: leave it to others, pick it up, stop it."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from time import time
from typing import Any, Literal

from ..errors import RunConflictError, RunError
from ..events import RUN_ORIGIN, Event, RunCancelled, RunCompleted, RunStarted, encode_event, encode_header
from ..log import Log
from ..stores import RunRecord, RunStatus, iter_records
from .answers import resume_events
from .courses import run_started_event
from .ids import new_id
from .live import RunStream
from .reading import Observer, with_observers
from .stored import NewStoredRun, ReopenedRun, ReopenOptions, RunRepository

_logger = logging.getLogger("baton.runner")
_PAUSE = 0.02


async def submit(archive: RunRepository, started: RunStarted, *, floor: Literal["active", "root"]) -> str:
    """Store a run as begun, held by nobody."""
    begun, _ = await NewStoredRun(archive, started, floor=floor, worker="").begun()
    await archive.begin(begun, [encode_header(), encode_event(begun)], owner="", ttl=0)
    return begun.run_id


async def store_log(archive: RunRepository, events: Sequence[Event]) -> str:
    """Store a log that was made elsewhere as a run that waits to be resumed."""
    started = run_started_event(events)
    lines = [encode_header(), *map(encode_event, events)]
    lease = await archive.store.create(
        started.run_id, lines, thread=started.thread, owner=started.owner, worker=new_id(), ttl=archive.ttl
    )
    await archive.store.append(started.run_id, len(lines), (), status="suspended", fence=lease.fence)
    await archive.store.release(lease)
    return started.run_id


async def drive(
    archive: RunRepository, run_id: str, *, context: Any, accepts_changes: bool, readers: Sequence[Observer] = ()
) -> RunStatus:
    """Drive a run that is not finished and waits for nobody; how it stands then."""
    record = await archive.record(run_id)
    if record.status != "running":
        return record.status
    if record.cancel_requested and record.lease_until <= time():
        # Whoever was to read that word is dead; it counts all the same.
        return await cancel(archive, run_id, record.cancel_requested)
    how = ReopenOptions(_nothing_new, context, accepts_changes=accepts_changes, only_if_running=True)
    live: RunStream[Any] = RunStream(with_observers(readers, ReopenedRun(archive, run_id, how, worker=new_id())))
    try:
        await live._drive()
    except RunConflictError:
        record = await archive.record(run_id)
        if record.status == "running":
            raise
        return record.status
    except Exception:
        record = await archive.record(run_id)
        # What ended the run is on record; what kept us from driving it is not, and is raised.
        if record.status != "failed":
            raise
        _logger.warning("run `%s` failed", run_id, exc_info=True)
        return record.status
    return live.result.status


def take_over_run(archive: RunRepository, run_id: str, *, context: Any, readers: Sequence[Observer]) -> RunStream[Any]:
    """A run whose driver has died, to listen to. Raises RunConflictError if it has been taken up or has stopped since."""
    how = ReopenOptions(partial(resume_events, answers=None), context, only_if_running=True)
    return RunStream(with_observers(readers, ReopenedRun(archive, run_id, how, worker=new_id())))


async def answer(archive: RunRepository, run_id: str, answers: Any, *, values: Mapping[str, Any] | None = None) -> None:
    """Write answers to a run, and values that come with them; it is running again then, held by nobody."""
    lease = await archive.store.acquire(run_id, new_id(), ttl=archive.ttl)
    try:
        events = await archive.events(run_id)
        if isinstance(events[-1], RunCompleted):
            raise RunError(f"run `{run_id}` is completed; it has no open questions")
        opening = resume_events(Log(events), answers=answers, values=values)
        lines = [encode_event(event) for event in opening]
        await archive.store.append(run_id, len(events) + 1, lines, status="running", fence=lease.fence)
    finally:
        await archive.store.release(lease)


async def cancel(archive: RunRepository, run_id: str, when: Literal["now", "after_turn"]) -> RunStatus:
    """Stop a run: by word to its driver, or, if it has none, by writing down that it is stopped."""
    while True:
        record = await archive.record(run_id)
        if record.status not in ("running", "suspended"):
            return record.status
        try:
            lease = await archive.store.acquire(run_id, new_id(), ttl=archive.ttl)
            break
        except RunConflictError:
            # If it is held and not running, its driver is about to let go, or has only just begun.
            if await archive.store.request_cancel(run_id, when):
                return "running"
            await asyncio.sleep(_PAUSE)
    try:
        record = await archive.record(run_id)
        if record.status not in ("running", "suspended"):
            return record.status
        line = encode_event(RunCancelled(f"cancelled{record.seq - 1}", RUN_ORIGIN, time()))
        await archive.store.append(run_id, record.seq, [line], status="cancelled", fence=lease.fence)
        return "cancelled"
    finally:
        await archive.store.release(lease)


async def unfinished(archive: RunRepository) -> list[RunRecord]:
    """Runs that are said to be running though nobody holds them, the oldest first."""
    running = iter_records(archive.store, status=["running"], oldest_first=True)
    return [record async for record in running if record.lease_until <= time()]


async def recover(archive: RunRepository, *, context: Any, max_concurrency: int) -> dict[str, RunStatus]:
    """Drive all unfinished runs, some at once. Others may do the same: what they hold is left to them.

    A run that cannot be driven, because its log is damaged for instance, is no reason to leave the others undone.
    """
    room = asyncio.Semaphore(max_concurrency)
    statuses: dict[str, RunStatus] = {}

    async def drive_one(run_id: str) -> None:
        async with room:
            try:
                statuses[run_id] = await drive(archive, run_id, context=context, accepts_changes=False)
            except RunConflictError:
                _logger.info("run `%s` is driven by somebody else", run_id)
            except Exception:
                _logger.exception("run `%s` could not be driven", run_id)
                statuses[run_id] = "running"

    async with asyncio.TaskGroup() as tasks:
        for record in await unfinished(archive):
            tasks.create_task(drive_one(record.run_id))
    return statuses


def _nothing_new(log: Log) -> Sequence[Event]:
    return ()
