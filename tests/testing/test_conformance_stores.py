"""The conformance suite of stores finds what it is for: each broken store here fails the check for its fault."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Unpack

import pytest
from msgspec.structs import replace
from tests.conformance.test_stores import ALL_CHECKS

from batonkit.errors import BatonError, RunConflictError, RunNotFoundError, StoreError
from batonkit.stores import (
    FINISHED_STATUSES,
    AppendOptions,
    CancelWhen,
    Lease,
    MemoryStore,
    RecordPage,
    RunFilters,
    RunFlags,
    RunRecord,
    RunStatus,
    Store,
    WaitingMessage,
)
from batonkit.testing.conformance import check_name

Append = Callable[..., Any]


class Strips(MemoryStore):
    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        return [line.strip() for line in await super().load(run_id, start=start)]


class Truncates(MemoryStore):
    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        return [line[:65_536] for line in await super().load(run_id, start=start)]


class LoadsWhole(MemoryStore):
    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        return await super().load(run_id)


class FirstHundred(MemoryStore):
    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        return (await super().load(run_id, start=start))[:100]


class EmptyIfMissing(MemoryStore):
    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        try:
            return await super().load(run_id, start=start)
        except RunNotFoundError:
            return []


class Changed(MemoryStore):
    """A store whose `append` is changed a little."""

    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> RunFlags:
        status, fence = options.pop("status", None), options.pop("fence", None)
        await self.changed(partial(super().append, run_id, **options), expected_seq, lines, status, fence)
        record = await self.record(run_id)
        return RunFlags(record.cancel_requested, record.inbox) if record is not None else RunFlags()

    async def changed(
        self, append: Append, expected: int, lines: Sequence[bytes], status: RunStatus | None, fence: int | None
    ) -> None:
        await append(expected, lines, status=status, fence=fence)


class TakesAnyMoment(Changed):
    """Appends at the end, whatever the writer expected."""

    async def changed(self, append: Append, expected: int, lines: Sequence[bytes], status: Any, fence: Any) -> None:
        try:
            await append(expected, lines, status=status, fence=fence)
        except RunConflictError as conflict:
            record = await self.record(conflict.run_id)
            assert record is not None
            await append(record.seq, lines, status=status, fence=fence)


class ForgetsTheStatus(Changed):
    async def changed(self, append: Append, expected: int, lines: Sequence[bytes], status: Any, fence: Any) -> None:
        await append(expected, lines, status=status if lines else None, fence=fence)


class IgnoresFences(Changed):
    async def changed(self, append: Append, expected: int, lines: Sequence[bytes], status: Any, fence: Any) -> None:
        await append(expected, lines, status=status)


class WritesInTwoSteps(Changed):
    async def changed(self, append: Append, expected: int, lines: Sequence[bytes], status: Any, fence: Any) -> None:
        for number, line in enumerate(lines):
            await append(expected + number, [line], fence=fence)
            await asyncio.sleep(0)
        await append(expected + len(lines), [], status=status, fence=fence)


class ChecksAndThenWrites(Changed):
    """Reads how long the log is, waits, and writes without looking again."""

    async def changed(self, append: Append, expected: int, lines: Sequence[bytes], status: Any, fence: Any) -> None:
        run_id: str = append.args[0]  # pyright: ignore[reportFunctionMemberAccess] - it is a partial
        record = await self.record(run_id)
        await asyncio.sleep(0)
        if record is None or record.seq != expected:
            await append(expected, lines, status=status, fence=fence)
        else:
            now = await self.record(run_id)
            await append(now.seq if now else 0, lines, status=status, fence=fence)


class BreaksWhenCancelled(Changed):
    broken = False

    async def changed(self, append: Append, expected: int, lines: Sequence[bytes], status: Any, fence: Any) -> None:
        if self.broken:
            raise StoreError("a cancelled task has left it locked")
        self.broken = True
        await asyncio.sleep(0)
        await append(expected, lines, status=status, fence=fence)
        self.broken = False


class Replaces(MemoryStore):
    async def create(self, run_id: str, lines: Sequence[bytes], **about: Any) -> Lease:
        await super().delete(run_id)
        return await super().create(run_id, lines, **about)


class HasNoThreads(MemoryStore):
    async def create(self, run_id: str, lines: Sequence[bytes], **about: Any) -> Lease:
        about["thread"] = ""
        return await super().create(run_id, lines, **about)


class FoldsCase(MemoryStore):
    async def create(self, run_id: str, lines: Sequence[bytes], **about: Any) -> Lease:
        return await super().create(run_id.lower(), lines, **about)


class GivesLeasesToAll(MemoryStore):
    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        if (record := await self.record(run_id)) is not None:
            await super().release(Lease(run_id, record.worker, record.fence, 0))
        return await super().acquire(run_id, worker, ttl=ttl)


class KeepsTheFence(MemoryStore):
    async def acquire(self, run_id: str, worker: str, *, ttl: float) -> Lease:
        return replace(await super().acquire(run_id, worker, ttl=ttl), fence=1)


class RenewsAnything(MemoryStore):
    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        found = [(lease, await self.record(lease.run_id)) for lease in leases]
        return await super().renew([replace(lease, fence=one.fence) for lease, one in found if one], ttl=ttl)


class ReleasesAnything(MemoryStore):
    async def release(self, lease: Lease) -> None:
        record = await self.record(lease.run_id)
        await super().release(replace(lease, fence=record.fence) if record else lease)


class ReleasesInASecondStep(MemoryStore):
    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> RunFlags:
        if options.get("status") == "suspended":
            options["release"] = False
        return await super().append(run_id, expected_seq, lines, **options)


class ReleasesBeforeTheCancellation(MemoryStore):
    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> RunFlags:
        flags = await super().append(run_id, expected_seq, lines, **options)
        if options.get("release"):
            await super().release(Lease(run_id, "", options.get("fence") or 0, 0))
        return flags


class RenewsReleasedLeases(MemoryStore):
    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        for lease in leases:
            record = await self.record(lease.run_id)
            if record is not None and not record.lease_until:
                self._records[lease.run_id] = replace(record, lease_until=1.0)
        return await super().renew(leases, ttl=ttl)


class WaitsForLockedRuns(MemoryStore):
    """Renews all leases in one step, which waits for the run that is locked until it gives up."""

    locked = ""

    @asynccontextmanager
    async def lock_run(self, run_id: str) -> AsyncGenerator[None]:
        self.locked = run_id
        yield
        self.locked = ""

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        if self.locked in {lease.run_id for lease in leases}:
            return {}
        return await super().renew(leases, ttl=ttl)


class AcceptsEveryCancelRequest(MemoryStore):
    async def request_cancel(self, run_id: str, when: CancelWhen) -> bool:
        await super().request_cancel(run_id, when)
        return True


class Lists(MemoryStore):
    """A store whose pages are made by `page`."""

    async def list(self, **wanted: Unpack[RunFilters]) -> RecordPage:
        limit, after = wanted.pop("limit", 100), wanted.pop("cursor", "")
        return await self.page(partial(super().list, **wanted), limit, after)

    async def page(self, ask: Callable[..., Any], limit: int, after: str) -> RecordPage:
        return await ask(limit=limit, cursor=after)


class PagesByNumber(Lists):
    """Pages that begin after a number of records, as LIMIT and OFFSET give them."""

    async def page(self, ask: Callable[..., Any], limit: int, after: str) -> RecordPage:
        if limit < 1 or (after and not after.isdigit()):
            raise BatonError("no such page")
        found: RecordPage = await ask(limit=10_000)
        begin = int(after or 0)
        end = begin + limit
        return RecordPage(found.records[begin:end], str(end) if end < len(found.records) else "", found.total)


class OnePageTooMany(Lists):
    async def page(self, ask: Callable[..., Any], limit: int, after: str) -> RecordPage:
        found: RecordPage = await ask(limit=limit, cursor=after)
        last = found.records[-1] if found.records else None
        return RecordPage(found.records, f"{last.created_at!r} {last.run_id}" if last else "")


class ListsByStatusOnly(MemoryStore):
    async def list(self, **wanted: Unpack[RunFilters]) -> RecordPage:
        return await super().list(
            status=wanted.get("status"), limit=wanted.get("limit", 100), cursor=wanted.get("after", "")
        )


class Shows(MemoryStore):
    """A store that does not know some of what it is asked for."""

    unknown: str

    async def list(self, **wanted: Unpack[RunFilters]) -> RecordPage:
        known: Any = {name: value for name, value in wanted.items() if name != self.unknown}
        return await super().list(**known)


class ShowsEverybodysRuns(Shows):
    unknown = "owner"


class ShowsByCreation(Shows):
    unknown = "order_by"


class CountsNothing(Shows):
    unknown = "count_total"


class CountsThePage(MemoryStore):
    async def list(self, **wanted: Unpack[RunFilters]) -> RecordPage:
        page = await super().list(**wanted)
        return replace(page, total=None if page.total is None else len(page.records))


class KeepsTheFirstNote(MemoryStore):
    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        if name not in await self.notes(run_id):
            await super().put_note(run_id, name, note)


class NotesAsRuns(MemoryStore):
    async def put_note(self, run_id: str, name: str, note: bytes | None) -> None:
        await super().put_note(run_id, name, note)
        await self.create(f"{run_id} {name} {await self.notes(run_id)}", [note or b""])


class KeepsOldNotes(MemoryStore):
    async def delete(self, run_id: str, *, fence: int | None = None) -> bool:
        notes = await self.notes(run_id)
        was_there = await super().delete(run_id, fence=fence)
        self._notes[run_id] = {**notes}
        return was_there


class LooksAtTheOldest(MemoryStore):
    """Applies the limit of each owner to the oldest runs only."""

    async def runnable(self, *, per_owner: int | None = None, driven: Any = None, **options: Any) -> Any:
        counts = Counter[str](driven)
        found: list[RunRecord] = []
        for record in await super().runnable(**options):
            if per_owner is None or not record.owner or counts[record.owner] < per_owner:
                counts[record.owner] += 1
                found.append(record)
        return found


class DeletesOnAnyFence(MemoryStore):
    async def delete(self, run_id: str, *, fence: int | None = None) -> bool:
        return await super().delete(run_id)


class ForgetsNothing(MemoryStore):
    async def delete(self, run_id: str, *, fence: int | None = None) -> bool:
        return await self.record(run_id) is not None


class ForgetsAll(MemoryStore):
    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        return await super().expire(0, status=status)


class ForgetsTheDriven(MemoryStore):
    async def expire(self, older_than: float, *, status: Collection[RunStatus] = FINISHED_STATUSES) -> int:
        for record in (await self.list()).records:
            await super().release(Lease(record.run_id, record.worker, record.fence, 0))
        return await super().expire(older_than, status=status)


class ClosesForGood(MemoryStore):
    closed = False

    async def close(self) -> None:
        self.closed = True

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        if self.closed:
            raise StoreError("it is closed")
        return await super().load(run_id, start=start)


class NoLease(MemoryStore):
    async def create(self, run_id: str, lines: Sequence[bytes], **about: Any) -> Lease:
        return replace(await super().create(run_id, lines, **about), fence=0)


class TellsNoRun(MemoryStore):
    """Adds messages without telling the unfinished run."""

    async def enqueue(self, message: WaitingMessage, *, limit: int) -> bool:
        busy = self._busy.pop(message.thread, None)
        await super().enqueue(message, limit=limit)
        if busy is not None:
            self._busy[message.thread] = busy
        return busy is not None


class TakesAndKeeps(MemoryStore):
    """Appends lines and leaves the messages that they take."""

    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> RunFlags:
        options["take"] = ()
        return await super().append(run_id, expected_seq, lines, **options)


class LetsRunsOvertake(MemoryStore):
    async def create(self, run_id: str, lines: Sequence[bytes], **about: Any) -> Lease:
        waiting = self._inboxes.pop(about.get("thread", ""), []) if not about.get("from_inbox") else []
        try:
            return await super().create(run_id, lines, **about)
        finally:
            if waiting:
                self._inboxes[about["thread"]] = waiting


class HasNoLimit(MemoryStore):
    async def enqueue(self, message: WaitingMessage, *, limit: int) -> bool:
        return await super().enqueue(message, limit=1000)


class NeverIdle(MemoryStore):
    async def idle_threads(self, *, limit: int = 100) -> Sequence[str]:
        return []


BROKEN: dict[type[MemoryStore], str] = {
    NoLease: "a_new_run_is_as_it_was_created",
    Strips: "lines_are_kept_byte_by_byte",
    Truncates: "large_lines_are_kept",
    LoadsWhole: "a_log_can_be_read_from_any_line",
    FirstHundred: "many_lines_stay_in_order",
    EmptyIfMissing: "a_missing_run_is_reported",
    TakesAnyMoment: "a_wrong_expectation_is_a_conflict",
    ForgetsTheStatus: "an_append_sets_the_status",
    IgnoresFences: "an_expired_lease_can_be_taken",
    WritesInTwoSteps: "a_cancelled_append_leaves_all_or_nothing",
    BreaksWhenCancelled: "a_cancelled_append_leaves_all_or_nothing",
    ChecksAndThenWrites: "one_of_many_writers_wins",
    Replaces: "an_id_is_taken_once",
    HasNoThreads: "a_thread_is_busy_until_its_run_has_ended",
    FoldsCase: "names_may_be_any_text",
    GivesLeasesToAll: "a_lease_is_held_by_one_worker",
    KeepsTheFence: "a_worker_may_take_its_lease_again",
    RenewsAnything: "a_lease_can_be_renewed",
    ReleasesAnything: "a_lease_can_be_released",
    ReleasesInASecondStep: "a_suspended_run_can_be_acquired_at_once",
    ReleasesBeforeTheCancellation: "a_suspended_run_can_be_acquired_at_once",
    RenewsReleasedLeases: "a_released_lease_is_not_renewed",
    WaitsForLockedRuns: "a_locked_run_does_not_delay_the_leases_of_others",
    LooksAtTheOldest: "runs_of_all_owners_are_found_with_a_limit_for_each",
    DeletesOnAnyFence: "a_run_is_deleted_on_the_fence",
    AcceptsEveryCancelRequest: "a_cancel_request_is_kept",
    PagesByNumber: "pages_are_stable_while_runs_come_and_go",
    OnePageTooMany: "pages_follow_one_another",
    ShowsEverybodysRuns: "runs_are_listed_by_owner",
    ShowsByCreation: "runs_are_listed_by_their_last_change",
    CountsNothing: "pages_count_all_records",
    CountsThePage: "pages_count_all_records",
    KeepsTheFirstNote: "notes_are_kept_by_name",
    NotesAsRuns: "notes_are_no_part_of_the_log",
    KeepsOldNotes: "notes_go_with_their_run",
    ListsByStatusOnly: "runs_are_listed_by_time",
    ForgetsNothing: "a_deleted_run_is_gone",
    ForgetsAll: "old_runs_expire",
    ForgetsTheDriven: "a_run_whose_lease_is_held_does_not_expire",
    ClosesForGood: "a_closed_store_can_be_used_again",
    TellsNoRun: "writes_tell_what_waits",
    TakesAndKeeps: "a_run_takes_the_oldest_messages",
    LetsRunsOvertake: "the_oldest_message_becomes_a_run",
    HasNoLimit: "an_inbox_has_a_limit",
    NeverIdle: "threads_without_a_run_are_idle",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
async def test_a_broken_store_fails_the_check_that_is_for_it(broken: type[MemoryStore]) -> None:
    (check,) = [check for check in ALL_CHECKS if check_name(check) == BROKEN[broken]]
    store: Store = broken()
    with pytest.raises((AssertionError, BatonError)):
        await check(lambda: store)


@pytest.mark.parametrize("broken", [PagesByNumber, IgnoresFences, ForgetsAll], ids=lambda broken: broken.__name__)
async def test_a_broken_store_passes_the_checks_that_are_for_other_things(broken: type[MemoryStore]) -> None:
    failed: list[str] = []
    for check in ALL_CHECKS:
        store = broken()
        try:
            await check(lambda store=store: store)
        except (AssertionError, BatonError):
            failed.append(check_name(check))
    assert BROKEN[broken] in failed
    assert len(failed) <= 2, failed


async def test_a_failed_check_says_what_was_wanted_and_found() -> None:
    (check,) = [check for check in ALL_CHECKS if check_name(check) == "old_runs_expire"]
    store = ForgetsAll()
    with pytest.raises(AssertionError, match="not been written to for an hour: expected 0, found 3"):
        await check(lambda: store)
