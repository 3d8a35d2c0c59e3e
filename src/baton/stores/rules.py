"""What may become of a record: the rules of the contract as functions from one record to the next.

Stores that read a record, change it and write it back live by these; stores that let a database decide say the same in
SQL, and ask here only for the words in which something is refused.
"""

from collections.abc import Collection
from typing import Literal

from msgspec.structs import replace

from ..errors import RunConflictError, SetupError, check_choice
from .base import FINISHED_STATUSES, RUN_STATUSES, Lease, RunRecord, RunStatus


def lease_of(record: RunRecord) -> Lease:
    """The lease that a record tells of."""
    return Lease(record.run_id, record.worker, record.fence, record.lease_until)


def begun(run_id: str, lines: int, *, thread: str, owner: str, worker: str, ttl: float, now: float) -> RunRecord:
    """The record of a new run."""
    checked_names(run_id, thread=thread, owner=owner, worker=worker)
    return RunRecord(
        run_id=run_id,
        seq=lines,
        thread=thread,
        owner=owner,
        created_at=now,
        updated_at=now,
        worker=worker,
        lease_until=now + ttl,
        fence=1,
    )


def appended(
    record: RunRecord, expected_seq: int, lines: int, *, status: RunStatus | None, fence: int | None, now: float
) -> RunRecord:
    """The record after lines have been added, or RunConflictError."""
    if (refused := refusal(record, expected_seq, fence)) is not None:
        raise refused
    return replace(record, seq=expected_seq + lines, status=status or record.status, updated_at=now)


def refusal(record: RunRecord, expected_seq: int, fence: int | None) -> RunConflictError | None:
    """Why a writer who expects this must stop, or None if it may write."""
    if fence is not None and fence != record.fence:
        return _taken(record, fence)
    if expected_seq != record.seq:
        return RunConflictError(record.run_id, f"its log has {record.seq} lines, and the writer knew {expected_seq}")
    return None


def acquired(record: RunRecord, worker: str, *, ttl: float, now: float) -> RunRecord:
    """The record after a worker has taken the lease, or RunConflictError if another has it."""
    if record.worker != worker and record.lease_until > now:
        raise held(record, now)
    return replace(record, worker=worker, fence=record.fence + 1, lease_until=now + ttl, cancel_requested="")


def held(record: RunRecord, now: float) -> RunConflictError:
    """Somebody else has the lease."""
    return RunConflictError(
        record.run_id, f"`{record.worker}` has its lease for another {max(record.lease_until - now, 0.0):.1f} s"
    )


def renewed(record: RunRecord, lease: Lease, *, ttl: float, now: float) -> RunRecord:
    """The record after a lease has been made longer, or RunConflictError if it is not the newest."""
    if record.fence != lease.fence:
        raise _taken(record, lease.fence)
    return replace(record, lease_until=now + ttl)


def released(record: RunRecord, lease: Lease) -> RunRecord:
    """The record after a lease has been given back; as it was if the lease is not the newest."""
    return replace(record, lease_until=0.0) if record.fence == lease.fence else record


def asked_to_cancel(record: RunRecord, when: Literal["now", "after_turn"]) -> RunRecord | None:
    """The record with word for its driver, or None if it is not running. Who was told "now" is not told to wait."""
    if record.status != "running":
        return None
    return replace(record, cancel_requested="now" if record.cancel_requested == "now" else when)


def is_expired(record: RunRecord, older_than: float, *, status: Collection[RunStatus], now: float) -> bool:
    """Whether a run may be forgotten: nobody has written to it for long, and nobody drives it."""
    return record.status in status and record.updated_at <= now - older_than and record.lease_until <= now


def keeps_thread_busy(status: str) -> bool:
    """Whether a run with this status keeps other runs of its thread from beginning."""
    return status not in FINISHED_STATUSES


def checked_names(run_id: str, **others: str) -> None:
    """Raise SetupError for names that not every store can keep: empty ids, zero bytes, halves of characters."""
    if not run_id:
        raise SetupError("run_id is empty; give it a name, or leave it out")
    for what, name in (("run_id", run_id), *others.items()):
        if "\0" in name or not _is_encodable(name):
            raise SetupError(f"{what} is {name!r}, which has characters that cannot be stored; use plain text")


def checked_status(status: Collection[RunStatus]) -> tuple[RunStatus, ...]:
    """The statuses that were asked for; SetupError for one that does not exist, or for a word in place of several."""
    if isinstance(status, str):
        raise SetupError(f"status is {status!r}; it must be several, such as ({status!r},)")
    for one in status:
        check_choice("status", one, RUN_STATUSES)
    return tuple(status)


def _taken(record: RunRecord, fence: int) -> RunConflictError:
    return RunConflictError(
        record.run_id, f"`{record.worker}` has taken its lease (fence {record.fence}; the writer has {fence})"
    )


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
