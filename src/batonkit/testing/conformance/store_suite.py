"""The conformance suites for stores, one for each protocol; one function per check.

A check is an async function of `open`, which opens a store at a location that was empty before the check:

    @pytest.mark.parametrize("check", [*STORE_CHECKS, *NOTES_CHECKS], ids=check_name)
    async def test_my_store(check: StoreCheck, tmp_path: Path) -> None:
        await check(partial(MyStore, tmp_path / "runs"))

`open` may be called several times; the check closes what it returns. A store in memory may return the same object. For
`SHARED_STORE_CHECKS` and `SHARED_INBOX_CHECKS`, `open` must be picklable, because other processes call it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeAlias, cast

from ...errors import MessageGoneError, RunConflictError, RunExistsError, StoreError, ThreadBusyError
from ...stores import Store, WaitingMessage
from . import store_channel as store_channel  # These add their checks.
from . import store_inbox as store_inbox
from . import store_leases as store_leases
from . import store_logs as store_logs
from . import store_notes as store_notes
from . import store_retention as store_retention
from .store_checks import (
    Open,
    StoreCheck,
    StoreWithInbox,
    SupportsRunLocks,
    channel_check,
    check_name,
    expect,
    expect_log,
    expect_same,
    inbox_check,
    notes_check,
    opened,
    retention_check,
    store_check,
)

OpenWithInbox: TypeAlias = Callable[[], StoreWithInbox]
Work: TypeAlias = Callable[[Any, int], Coroutine[Any, Any, list[str]]]
"""The work of one process; returns the lines that it reports."""

TASKS = 20
PROCESSES = 3
LINES = 25


@store_check
async def one_of_many_writers_wins(store: Store) -> None:
    """Each line is written by one task; the others get a conflict."""
    await store.create("r", [])
    lines: list[bytes] = []
    for round_ in range(5):
        mine = [b"%d by %d" % (round_, task) for task in range(TASKS)]
        winner = await _one_winner([store.append("r", round_, [line]) for line in mine], RunConflictError)
        lines.append(mine[winner])
    await expect_log(store, "r", lines)


@store_check
async def one_of_many_creators_wins(store: Store) -> None:
    """One task creates a run, and one the next run of a thread."""
    winner = await _one_winner([store.create("r", [b"%d" % task]) for task in range(TASKS)], RunExistsError)
    await expect_log(store, "r", [b"%d" % winner])
    winner = await _one_winner([store.create(f"t{task}", [], thread="t") for task in range(TASKS)], ThreadBusyError)
    page = await store.list(thread="t")
    expect_same([record.run_id for record in page.records], [f"t{winner}"], "the runs of the thread")


@store_check
async def one_of_many_workers_wins(store: Store) -> None:
    """One worker takes a free lease."""
    await store.create("r", [])
    drivers = [store.acquire("r", f"driver {task}", ttl=60) for task in range(TASKS)]
    winner = await _one_winner(drivers, RunConflictError)
    record = await store.record("r")
    expect(record is not None and record.worker == f"driver {winner}", "the record names another owner")


@store_check
async def a_cancelled_append_leaves_all_or_nothing(store: Store) -> None:
    """A cancelled append writes all lines or none, and the store remains usable."""
    await store.create("r", [])
    await store.create("other", [])
    lines: list[bytes] = []
    for steps in range(30):
        mine = [b"%d first" % steps, b"%d second" % steps]
        task = asyncio.ensure_future(store.append("r", len(lines), mine))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await store.append("other", steps, [b"%d" % steps])
        found = list(await store.load("r"))
        expect(found in (lines, lines + mine), f"a cancelled append left {found[len(lines) :]!r} of {mine!r}")
        if not task.cancelled():
            expect_same(found, lines + mine, "the log after an append that ended before it could be cancelled")
        lines = found
    await store.append("r", len(lines), [b"last"])
    await expect_log(store, "r", [*lines, b"last"])


async def processes_share_a_log(open: Open) -> None:
    """Processes that write to one run keep every line once and in order."""
    wrote = await _in_processes(_write_lines, open)
    async with opened(open) as store:
        lines = [line.decode() for line in await store.load("shared")]
        expect_same(sorted(lines), sorted(line for mine in wrote for line in mine), "the lines of all processes")
        for mine in wrote:
            expect_same([line for line in lines if line in set(mine)], mine, "the lines of one process, in order")


async def processes_create_a_run_once(open: Open) -> None:
    """One of several processes wins each run, lease and thread."""
    won = await _in_processes(_count_wins, open)
    for what in ("create", "thread", "acquire"):
        wins = sorted(name for names in won for name in names if name.startswith(what))
        expect_same(wins, sorted(f"{what} {number}" for number in range(LINES)), f"who won {what}, over all processes")


async def processes_share_an_inbox(open: OpenWithInbox) -> None:
    """Processes that send and take messages handle each one once."""
    async with opened(open) as store:
        await store.create("inbox", [], thread="shared inbox")
    took = await _in_processes(_exchange_messages, open)
    async with opened(open) as store:
        lines = [line.decode() for line in await store.load("inbox")]
        expect_same(list(await store.inbox("shared inbox")), [], "the messages that are left")
        expect_same(sorted(lines), sorted(line for mine in took for line in mine), "the messages that were taken")
        for me in range(PROCESSES):
            mine = [line for line in lines if line.endswith(f" by {me}")]
            expect_same(mine, [f"{number} by {me}" for number in range(LINES)], "the messages of one process, in order")


async def _write_lines(open: Open, me: int) -> list[str]:
    mine = [f"{number} by {me}" for number in range(LINES)]
    async with opened(open) as store:
        await _succeeds(store.create("shared", []), RunExistsError)
        for line in mine:
            seq = 0
            while not await _succeeds(store.append("shared", seq, [line.encode()]), RunConflictError):
                seq += len(await store.load("shared", start=seq))
    return mine


async def _count_wins(open: Open, me: int) -> list[str]:
    won: list[str] = []
    async with opened(open) as store:
        for number in range(LINES):
            if await _succeeds(store.create(f"run {number}", [b"x"]), RunExistsError):
                won.append(f"create {number}")
            if await _succeeds(store.create(f"{number} of {me}", [], thread=f"thread {number}"), ThreadBusyError):
                won.append(f"thread {number}")
            if await _succeeds(store.acquire(f"run {number}", f"process {me}", ttl=600), RunConflictError):
                won.append(f"acquire {number}")
    return won


async def _exchange_messages(open: OpenWithInbox, me: int) -> list[str]:
    sent = 0
    took = list[str]()
    async with opened(open) as store:
        while True:
            if sent < LINES:
                message = WaitingMessage(run_id=f"{sent} by {me}", thread="shared inbox", mode="steer")
                await store.enqueue(message, limit=PROCESSES * LINES)
                sent += 1
            waiting = [message.run_id for message in await store.inbox("shared inbox", limit=2)]
            if not waiting and sent == LINES:
                return took
            seq = len(await store.load("inbox"))
            lines = [run_id.encode() for run_id in waiting]
            taking = store.append("inbox", seq, lines, take=waiting)
            if await _succeeds(taking, (RunConflictError, MessageGoneError)):
                took += waiting


async def _succeeds(attempt: Awaitable[object], refusal: type[StoreError] | tuple[type[StoreError], ...]) -> bool:
    try:
        await attempt
    except refusal:
        return False
    return True


async def _one_winner(attempts: Sequence[Awaitable[object]], refusal: type[StoreError]) -> int:
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    odd = [one for one in outcomes if isinstance(one, BaseException) and not isinstance(one, refusal)]
    expect(not odd, f"wanted {refusal.__name__} for all but one of {len(outcomes)}, and found {odd[:1]!r}")
    winners = [number for number, one in enumerate(outcomes) if not isinstance(one, BaseException)]
    expect_same(len(winners), 1, f"how many of {len(outcomes)} at once succeeded")
    return winners[0]


async def _in_processes(work: Work, open: Callable[[], Store]) -> list[list[str]]:
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as processes:
        calls = [loop.run_in_executor(processes, _run, work, open, number) for number in range(PROCESSES)]
        return await asyncio.gather(*calls)


def _run(work: Work, open: Callable[[], Store], me: int) -> list[str]:
    return asyncio.run(work(open, me))


STORE_CHECKS: tuple[StoreCheck, ...] = tuple(store_check.checks)
"""The checks that every store must pass: logs, records, leases and threads."""

INBOX_CHECKS: tuple[StoreCheck, ...] = tuple(inbox_check.checks)
"""The checks of `SupportsInbox`."""

NOTES_CHECKS: tuple[StoreCheck, ...] = tuple(notes_check.checks)
"""The checks of `SupportsNotes`."""

RETENTION_CHECKS: tuple[StoreCheck, ...] = tuple(retention_check.checks)
"""The checks of `SupportsRetention`."""

CHANNEL_CHECKS: tuple[StoreCheck, ...] = tuple(channel_check.checks)
"""The checks of `SupportsChannel`."""

SHARED_STORE_CHECKS: tuple[StoreCheck, ...] = (processes_share_a_log, processes_create_a_run_once)
"""Additional checks for stores that several processes share."""

SHARED_INBOX_CHECKS: tuple[StoreCheck, ...] = (cast("StoreCheck", processes_share_an_inbox),)
"""Additional checks for stores that several processes share and that keep messages."""

__all__ = [
    "CHANNEL_CHECKS",
    "INBOX_CHECKS",
    "NOTES_CHECKS",
    "RETENTION_CHECKS",
    "SHARED_INBOX_CHECKS",
    "SHARED_STORE_CHECKS",
    "STORE_CHECKS",
    "StoreCheck",
    "SupportsRunLocks",
    "check_name",
]
