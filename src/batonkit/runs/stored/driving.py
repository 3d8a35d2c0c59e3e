"""Driving a stored run that has no live worker; and replays."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from ...errors import RunConflictError, RunError
from ...log import Event, RunCancelled, RunFailed, RunResumed, keys
from ...log.codec import require_known_events
from ...log.log import Log, ReadOnlyLog
from ...stores import RunRecord, RunStatus
from ..answers import resume_events
from ..opening import NullBackend, open_run, run_started_event
from ..result import Interrupt, RunResult, StoppedStatus, to_interrupt
from ..run_args import ResumeArgs
from ..stream import REPLAYED_EVENTS, STATUS_BY_EVENT, RunStream
from .backends import ReopenedRun
from .repository import RunRepository, first_deadline, is_drivable

_logger = logging.getLogger("baton.runner")


class DriveResult(Struct, frozen=True):
    """The state in which `runner.runs.drive` left a run."""

    status: RunStatus
    """The run's status; `running` if it is to be driven later, at `wake_at`."""
    wake_at: float = 0.0
    """The time at which to drive it again, by the store's clock; 0 for none."""
    interrupts: tuple[Interrupt, ...] = ()
    """The open interrupts of a suspended run."""


async def drive_run(
    repository: RunRepository, run_id: str, args: ResumeArgs[Any], *, worker: str | None = None
) -> DriveResult:
    """Drive a run until it stops, unless it has stopped or is not due yet.

    Raises:
        RunConflictError: Another worker drives it.
    """
    record = await repository.record(run_id)
    if not is_drivable(record):
        return await _describe(repository, record)
    stream = stream_run(repository, run_id, args, worker=worker)
    try:
        await stream._drive()
    except RunConflictError:
        record = await repository.record(run_id)
        if record.status == "running" or is_drivable(record):
            raise
        return await _describe(repository, record)
    except Exception:
        record = await repository.record(run_id)
        # An error of the run is recorded; an error that kept us from driving it is not.
        if record.status != "failed":
            raise
        _logger.warning("run `%s` failed", run_id, exc_info=True)
        return DriveResult("failed")
    result = stream.result
    if result.status != "suspended":
        return DriveResult(result.status)
    return DriveResult("suspended", first_deadline(result.interrupts), result.interrupts)


async def _describe(repository: RunRepository, record: RunRecord) -> DriveResult:
    """Return the state of a run that is not driven."""
    interrupts: tuple[Interrupt, ...] = ()
    if record.status == "suspended":
        log = Log(await repository.events(record.run_id))
        interrupts = tuple(map(to_interrupt, log.open_interrupts().values()))
    is_waiting = record.status in ("running", "suspended")
    return DriveResult(record.status, record.wake_at if is_waiting else 0.0, interrupts)


def stream_run(
    repository: RunRepository, run_id: str, args: ResumeArgs[Any], *, worker: str | None = None, resumes: bool = False
) -> RunStream[Any]:
    """Return a stream of a run that has no live worker.

    If its task is cancelled, the run is left to other workers.
    """
    first_events = partial(resume_events, answers=None) if resumes else None
    backend = ReopenedRun(repository, run_id, first_events, args, only_if_due=True, worker=worker)
    return RunStream(backend, observers=repository.observers, releases=True)


async def replay_run(repository: RunRepository, events: Sequence[Event], args: ResumeArgs[Any]) -> RunResult[Any]:
    """Run the agents' code over a log without effects, and return the result.

    Where the log of a run that has not completed ends, the code stops, and the result has the status of the log.

    Raises:
        ReplayMismatchError: The code does not produce what the log recorded.
    """
    require_known_events(events)
    started = run_started_event(events)
    thread = await repository.threads.state_before(started)
    log = ReadOnlyLog(events)
    opened = open_run(
        started,
        log,
        repository.config,
        args,
        prior_entries=thread.entries,
        is_whole=thread.is_whole,
    )
    stream: RunStream[Any] = RunStream(NullBackend(started.run_id, opened))
    await stream._drive()
    if stream.result.status != "completed":
        log.check_end(*REPLAYED_EVENTS, besides=keys.HOOK)
        status, error = _stopped(events)
        stream._set_result(status, failure=error)
    return stream.result


def _stopped(events: Sequence[Event]) -> tuple[StoppedStatus, RunError | None]:
    """Return how an unfinished run stopped; one that is being driven counts as suspended."""
    last = next((event for event in reversed(events) if isinstance(event, (*STATUS_BY_EVENT, RunResumed))), None)
    if isinstance(last, RunFailed):
        return "failed", RunError(f"run `{run_started_event(events).run_id}` failed: {last.error_type}: {last.message}")
    return ("cancelled" if isinstance(last, RunCancelled) else "suspended"), None
