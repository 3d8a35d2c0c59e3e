"""What can be done with stored runs besides driving one here and now: leave it to others, pick it up, stop it."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from time import time
from typing import Any, Literal

from ..errors import RunConflict, RunError
from ..events import NOBODY, Cancelled, Completed, Event, RunStarted, encode_event, encode_head
from ..log import Log
from ..stores import RunRecord, RunStatus, all_records
from .answers import opening_of
from .courses import start_of
from .ids import new_id
from .live import LiveRun
from .reading import Reader, read_by
from .stored import Archive, NewRun, OldRun, TakenUp

_logger = logging.getLogger("baton.runner")
_PAUSE = 0.02


async def submit(archive: Archive, started: RunStarted, *, floor: Literal["sticky", "root"]) -> str:
    """Store a run as begun, held by nobody."""
    begun, _ = await NewRun(archive, started, floor=floor, owner="").begun()
    await archive.begin(begun, [encode_head(), encode_event(begun)], owner="", ttl=0)
    return begun.run_id


async def keep(archive: Archive, events: Sequence[Event]) -> str:
    """Store a log that was made elsewhere as a run that waits to be resumed."""
    started = start_of(events)
    lines = [encode_head(), *map(encode_event, events)]
    lease = await archive.store.create(
        started.run_id, lines, thread=started.thread, caller=started.caller, owner=new_id(), ttl=archive.ttl
    )
    await archive.store.append(started.run_id, len(lines), (), status="suspended", fence=lease.fence)
    await archive.store.release(lease)
    return started.run_id


async def drive(
    archive: Archive, run_id: str, *, context: Any, accepts_changes: bool, readers: Sequence[Reader] = ()
) -> RunStatus:
    """Drive a run that is not finished and waits for nobody; how it stands then."""
    record = await archive.record(run_id)
    if record.status != "running":
        return record.status
    if record.cancel and record.lease_until <= time():
        # Whoever was to read that word is dead; it counts all the same.
        return await cancel(archive, run_id, record.cancel)
    how = TakenUp(_nothing_new, context, accepts_changes=accepts_changes, only_if_running=True)
    live: LiveRun[Any] = LiveRun(read_by(readers, OldRun(archive, run_id, how, owner=new_id())))
    try:
        await live.drive()
    except RunConflict:
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


def picked_up(archive: Archive, run_id: str, *, context: Any, readers: Sequence[Reader]) -> LiveRun[Any]:
    """A run whose driver has died, to listen to. Raises RunConflict if it has been taken up or has stopped since."""
    how = TakenUp(partial(opening_of, answers=None), context, only_if_running=True)
    return LiveRun(read_by(readers, OldRun(archive, run_id, how, owner=new_id())))


async def answer(archive: Archive, run_id: str, answers: Any, *, values: Mapping[str, Any] | None = None) -> None:
    """Write answers to a run, and values that come with them; it is running again then, held by nobody."""
    lease = await archive.store.acquire(run_id, new_id(), ttl=archive.ttl)
    try:
        events = await archive.events(run_id)
        if isinstance(events[-1], Completed):
            raise RunError(f"run `{run_id}` is completed; it has no open questions")
        opening = opening_of(Log(events), answers=answers, values=values)
        lines = [encode_event(event) for event in opening]
        await archive.store.append(run_id, len(events) + 1, lines, status="running", fence=lease.fence)
    finally:
        await archive.store.release(lease)


async def cancel(archive: Archive, run_id: str, how: Literal["now", "after_turn"]) -> RunStatus:
    """Stop a run: by word to its driver, or, if it has none, by writing down that it is stopped."""
    while True:
        record = await archive.record(run_id)
        if record.status not in ("running", "suspended"):
            return record.status
        try:
            lease = await archive.store.acquire(run_id, new_id(), ttl=archive.ttl)
            break
        except RunConflict:
            # If it is held and not running, its driver is about to let go, or has only just begun.
            if await archive.store.ask_to_cancel(run_id, how):
                return "running"
            await asyncio.sleep(_PAUSE)
    try:
        record = await archive.record(run_id)
        if record.status not in ("running", "suspended"):
            return record.status
        line = encode_event(Cancelled(f"cancelled{record.seq - 1}", NOBODY, time()))
        await archive.store.append(run_id, record.seq, [line], status="cancelled", fence=lease.fence)
        return "cancelled"
    finally:
        await archive.store.release(lease)


async def unfinished(archive: Archive) -> list[RunRecord]:
    """Runs that are said to be running though nobody holds them, the oldest first."""
    running = all_records(archive.store, status=["running"], oldest_first=True)
    return [record async for record in running if record.lease_until <= time()]


async def recover(archive: Archive, *, context: Any, at_once: int) -> dict[str, RunStatus]:
    """Drive all unfinished runs, some at once. Others may do the same: what they hold is left to them.

    A run that cannot be driven, because its log is damaged for instance, is no reason to leave the others undone.
    """
    room = asyncio.Semaphore(at_once)
    statuses: dict[str, RunStatus] = {}

    async def drive_one(run_id: str) -> None:
        async with room:
            try:
                statuses[run_id] = await drive(archive, run_id, context=context, accepts_changes=False)
            except RunConflict:
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
