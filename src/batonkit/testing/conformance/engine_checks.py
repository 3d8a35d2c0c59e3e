"""The conformance suite for engines, one function per check.

A check is an async function of an `EnginePlace`, which opens a store that was empty before, and engines for it:

    @pytest.mark.parametrize("check", ENGINE_CHECKS, ids=check_name)
    async def test_my_engine(check: EngineCheck, tmp_path: Path) -> None:
        await check(EnginePlace(partial(SQLiteStore, tmp_path / "runs.db"), MyEngine))
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias, Unpack

from ...agents import agent
from ...log import Default, InterruptAnswered
from ...runs import Runner
from ...stores import FINISHED_STATUSES, AppendOptions, RunFlags, RunStatus, Store
from ...worker import Concurrency, Engine, Worker
from ..faulty_store import FaultyStore
from .store_checks import expect, expect_same

SECONDS = 120.0
"""The time limit of each wait of the suite."""
_LEASE = 60.0
_LEASE_OF_THE_DEAD = 2.0
_DELAY = 3.0


class EnginePlace(NamedTuple):
    """A store that was empty before the check, and the engines of its workers."""

    open_store: Callable[[], Store]
    """Opens the store, each time at the same location."""
    open_engine: Callable[[Store], Engine]
    """Creates an engine for a store that `open_store` returned."""
    settle: float = 2.0
    """Seconds in which the engine learns of a few new runs, also on a busy machine."""
    let_pass: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Lets seconds pass by the store's clock; for a store whose clock can be set, a function that advances it."""


EngineCheck: TypeAlias = Callable[[EnginePlace], Awaitable[None]]
"""A check: raises AssertionError if the engine breaks the contract."""

_CHECKS: list[EngineCheck] = []


def _engine_check(check: EngineCheck) -> EngineCheck:
    _CHECKS.append(check)
    return check


class EngineBench:
    """Runs of one small team at a place, and workers that drive them."""

    def __init__(self, place: EnginePlace, lease_seconds: float = _LEASE) -> None:
        self._place = place
        self._lease_seconds = lease_seconds
        self.started: Counter[str] = Counter()
        """The number of times that the agent was active, by run."""
        self.started_at: dict[str, float] = {}
        """The time at which the agent was active first, by run and by the store's clock."""
        self.order: list[str] = []
        """The runs in the order in which they were driven first."""
        self.at_once = 0
        self.most_at_once = 0
        self.go = asyncio.Event()
        """Runs with the input `wait` wait for it."""
        self.stores: list[Store] = []
        self.runner = self.new_runner()
        """A runner for submitting and answering runs."""

    def new_runner(self, name: str = "Echo", *, wrap_store: Callable[[Store], Store] | None = None) -> Runner[Any, Any]:
        """Return a runner of the team with a store of its own."""
        bench = self

        @agent(name)
        async def echo(ctx: Any) -> None:
            run_id = ctx.run_id
            text = ctx.messages()[-1].content
            bench.started[run_id] += 1
            if bench.started[run_id] == 1:
                bench.order.append(run_id)
                bench.started_at[run_id] = await store.now()
            bench.at_once += 1
            bench.most_at_once = max(bench.most_at_once, bench.at_once)
            try:
                await ctx.step("work", lambda: bench._work(text))
                answer = await bench._answer(ctx, text)
                if text == "fail":
                    raise ValueError("this run fails")
                await ctx.say(f"{answer}!")
            finally:
                bench.at_once -= 1

        store: Any = self._place.open_store()
        store.lease_seconds = self._lease_seconds
        self.stores.append(store)
        if wrap_store is not None:
            store = wrap_store(store)
        return Runner(echo, store=store)

    async def _answer(self, ctx: Any, text: str) -> Any:
        if text == "expire":
            deadline = timedelta(seconds=_DELAY)
            return await ctx.interrupt({"question": text}, deadline=deadline, on_expiry=Default("late"))
        return await ctx.interrupt({"question": text}) if text == "ask" else text

    async def _work(self, text: str) -> str:
        if text == "wait":
            await self.go.wait()
        return "done"

    @asynccontextmanager
    async def working(
        self,
        *,
        name: str = "Echo",
        drain: float = SECONDS,
        concurrency: int = 20,
        limits: Concurrency | None = None,
        wrap_store: Callable[[Store], Store] | None = None,
    ) -> AsyncGenerator[Worker]:
        """Run a worker with an engine of its own while a block runs."""
        runner = self.new_runner(name, wrap_store=wrap_store)
        engine = self._place.open_engine(self.stores[-1])
        worker = Worker(runner, engine=engine, drain=drain, concurrency=concurrency, limits=limits)
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        except BaseException:
            worker.stop()  # The next call ends the wait for turns in flight.
            raise
        finally:
            worker.stop()
            await task

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait until a condition holds."""
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    found = condition()
                    if await found if isinstance(found, Awaitable) else found:
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"still not true after {SECONDS:g} s: {what}") from None

    async def status(self, run_id: str) -> RunStatus:
        """Return the status of a run."""
        record = await self.stores[0].record(run_id)
        expect(record is not None, f"run {run_id!r} is gone")
        return record.status if record is not None else "failed"

    async def until_status(self, run_id: str, *statuses: RunStatus) -> None:
        """Wait until a run has one of these statuses."""

        async def holds() -> bool:
            return await self.status(run_id) in statuses

        await self.until(holds, f"run {run_id!r} is {' or '.join(statuses)}")

    async def until_finished(self, run_ids: list[str]) -> Counter[str]:
        """Wait until runs have finished; return the numbers of their statuses."""
        for run_id in run_ids:

            async def holds(run_id: str = run_id) -> bool:
                return await self.status(run_id) in FINISHED_STATUSES

            await self.until(holds, f"run {run_id!r} has finished")
        return Counter([await self.status(run_id) for run_id in run_ids])


class _LateStore(FaultyStore):
    """A store whose writer learns late, when `go` is set, that it suspended a run."""

    def __init__(self, inner: Store, go: asyncio.Event) -> None:
        super().__init__(inner)
        self._go = go

    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **options: Unpack[AppendOptions]
    ) -> RunFlags:
        flags = await self.inner.append(run_id, expected_seq, lines, **options)
        if options.get("status") == "suspended":
            await self._go.wait()
        return flags


@asynccontextmanager
async def _bench(place: EnginePlace, *, lease_seconds: float = _LEASE) -> AsyncGenerator[EngineBench]:
    bench = EngineBench(place, lease_seconds)
    try:
        yield bench
    finally:
        for store in bench.stores:
            await store.close()


@_engine_check
async def submitted_runs_are_driven_once(place: EnginePlace) -> None:
    """Runs submitted before the worker started, and while it runs, are driven once each."""
    async with _bench(place) as bench:
        runs = [await bench.runner.submit("early") for _ in range(5)]
        async with bench.working():
            await bench.until_status(runs[0], "completed")
            runs += [await bench.runner.submit("late") for _ in range(5)]
            expect_same(await bench.until_finished(runs), {"completed": 10}, "the statuses of the runs")
        expect_same(bench.started, dict.fromkeys(runs, 1), "how often each run was driven")


@_engine_check
async def answered_runs_are_resumed(place: EnginePlace) -> None:
    """A run that was suspended is driven again after its answer, and not before."""
    async with _bench(place) as bench, bench.working():
        run_id = await bench.runner.submit("ask")
        await bench.until_status(run_id, "suspended")
        other = await bench.runner.submit("other")
        await bench.until_status(other, "completed")
        expect_same(await bench.status(run_id), "suspended", "the status of a run without an answer")
        await bench.runner.runs.answer(run_id, "yes")
        await bench.until_status(run_id, "completed")
        expect_same(bench.started[run_id], 2, "how often the run was driven")


@_engine_check
async def runs_are_answered_before_their_worker_knows_that_they_are_suspended(place: EnginePlace) -> None:
    """A run can be answered as soon as others see that it is suspended."""
    go = asyncio.Event()
    async with _bench(place) as bench, bench.working(wrap_store=lambda store: _LateStore(store, go)):
        run_id = await bench.runner.submit("ask")
        await bench.until_status(run_id, "suspended")
        await bench.runner.runs.answer(run_id, "yes")
        go.set()
        await bench.until_status(run_id, "completed")
        expect_same(bench.started[run_id], 2, "how often the run was driven")


@_engine_check
async def failed_runs_are_not_delivered_again(place: EnginePlace) -> None:
    """A run that failed by its own code stays failed."""
    async with _bench(place) as bench, bench.working():
        run_id = await bench.runner.submit("fail")
        await bench.until_status(run_id, "failed")
        runs = [await bench.runner.submit("other") for _ in range(3)]
        await bench.until_finished(runs)
        expect_same(bench.started[run_id], 1, "how often the failed run was driven")


@_engine_check
async def runs_of_a_drained_worker_go_to_another(place: EnginePlace) -> None:
    """Runs that a worker releases when it is stopped are driven by another one."""
    async with _bench(place) as bench:
        async with bench.working(drain=0.0) as first:
            runs = [await bench.runner.submit("wait") for _ in range(4)]
            await bench.until(lambda: len(bench.started) == 4, "all runs are driven")
        await bench.until(lambda: first.counts.released == 4, "the first worker has released all runs")
        expect_same(first.counts.completed, 0, "the number of runs that the first worker completed")
        expect_same({await bench.status(run_id) for run_id in runs}, {"running"}, "the statuses after the release")
        async with bench.working() as second:
            await bench.until(lambda: sum(bench.started.values()) == 8, "the other worker drives them")
            bench.go.set()
            expect_same(await bench.until_finished(runs), {"completed": 4}, "the statuses of the runs")
        expect_same(second.counts.completed, 4, "the number of runs that the second worker completed")


@_engine_check
async def runs_of_a_dead_worker_are_driven(place: EnginePlace) -> None:
    """A run whose worker died is driven once its lease has expired."""
    async with _bench(place, lease_seconds=_LEASE_OF_THE_DEAD) as bench:
        run_id = await bench.runner.submit("left behind")
        lease = await bench.stores[0].acquire(run_id, "dead worker", ttl=_LEASE_OF_THE_DEAD)
        async with bench.working():
            await place.let_pass(_LEASE_OF_THE_DEAD)
            await bench.until_status(run_id, "completed")
        expect_same(bench.started[run_id], 1, "how often it was driven")
        expect(bench.started_at[run_id] >= lease.until, "it was driven before the lease expired")


@_engine_check
async def duplicates_do_no_harm(place: EnginePlace) -> None:
    """A run that is delivered eight times at once is driven once."""
    async with _bench(place) as bench, bench.working() as one, bench.working() as other:
        run_id = await bench.runner.submit("wait")
        await bench.until(lambda: bench.started[run_id] == 1, "the run is driven")
        outcomes = await asyncio.gather(*[worker.drive(run_id) for worker in (one, other) for _ in range(4)])
        expect(all(outcome.is_elsewhere for outcome in outcomes), f"duplicates were driven: {outcomes!r}")
        bench.go.set()
        await bench.until_status(run_id, "completed")
        again = await asyncio.gather(*[worker.drive(run_id) for worker in (one, other) for _ in range(4)])
        expect_same(
            {(outcome.status, outcome.retry_in) for outcome in again if not outcome.is_elsewhere},
            {("completed", None)},
            "the outcome of late duplicates",
        )
        expect_same(bench.started[run_id], 1, "how often it was driven")


@_engine_check
async def runs_of_other_teams_are_left_alone(place: EnginePlace) -> None:
    """Two versions of a team work side by side, each on its own runs."""
    async with _bench(place) as bench:
        old = [await bench.runner.submit("old") for _ in range(3)]
        new = [await bench.new_runner("Changed").submit("new") for _ in range(3)]
        async with bench.working(name="Changed") as changed:
            await bench.until_finished(new)
            expect_same({await bench.status(run_id) for run_id in old}, {"running"}, "runs of the other team")
            expect_same(changed.counts.postponed, 0, "the attempts on runs of the other team")
            async with bench.working():
                expect_same(await bench.until_finished(old), {"completed": 3}, "the runs of the first team")


@_engine_check
async def a_worker_drives_as_many_runs_as_it_may(place: EnginePlace) -> None:
    """No more runs than `concurrency` are driven at once, and the rest follow."""
    async with _bench(place) as bench, bench.working(concurrency=3):
        runs = [await bench.runner.submit("wait") for _ in range(7)]
        await bench.until(lambda: bench.at_once == 3, "three runs are driven")
        bench.go.set()
        expect_same(await bench.until_finished(runs), {"completed": 7}, "the statuses of the runs")
        expect_same(bench.most_at_once, 3, "how many were driven at once")


@_engine_check
async def many_runs_of_one_owner_do_not_hold_up_another(place: EnginePlace) -> None:
    """With a limit for each owner, if the engine has limits, many runs of one delay no other."""
    async with _bench(place) as bench:
        if not place.open_engine(bench.stores[0]).has_limits:
            return
        flood = [await bench.runner.submit("wait", owner="ada") for _ in range(60)]
        async with bench.working(concurrency=10, limits=Concurrency(per_owner=2)):
            await bench.until(lambda: bench.at_once == 2, "two runs of the first owner are driven")
            other = await bench.runner.submit("work", owner="bob")
            await bench.until_status(other, "completed")
            expect_same(bench.most_at_once, 3, "how many were driven at once")
            bench.go.set()
            expect_same(await bench.until_finished(flood), {"completed": 60}, "the statuses of the runs")


@_engine_check
async def urgent_runs_come_first(place: EnginePlace) -> None:
    """Waiting runs are driven by priority, then by age."""
    async with _bench(place) as bench:
        blocker = await bench.runner.submit("wait")
        async with bench.working(concurrency=1):
            await bench.until(lambda: bench.at_once == 1, "the first run is driven")
            runs = [await bench.runner.submit("work", priority=priority) for priority in (0, 5, 1, 5)]
            await asyncio.sleep(place.settle)
            bench.go.set()
            await bench.until_finished(runs)
        expect_same(bench.order, [blocker, runs[1], runs[3], runs[2], runs[0]], "the order of the runs")


@_engine_check
async def runs_are_not_driven_before_their_time(place: EnginePlace) -> None:
    """A run with `not_before` waits, also if it is delivered, and is driven then."""
    async with _bench(place) as bench, bench.working() as worker:
        later = await bench.runner.submit("later", not_before=timedelta(seconds=_DELAY))
        record = await bench.stores[0].record(later)
        wake_at = 0.0 if record is None else record.wake_at
        expect(wake_at > 0, "the store does not know when to drive it")
        await worker.drive(later)
        await place.let_pass(_DELAY)
        await bench.until_status(later, "completed")
        early = wake_at - bench.started_at[later]
        expect(early <= 0, f"it was driven {early:.3f} s too early")


@_engine_check
async def deadlines_wake_suspended_runs(place: EnginePlace) -> None:
    """A suspended run whose interrupt expires is driven again."""
    async with _bench(place) as bench, bench.working():
        run_id = await bench.runner.submit("expire")
        await bench.until_status(run_id, "suspended", "completed")
        await place.let_pass(_DELAY)
        await bench.until_status(run_id, "completed")
        answered = [event for event in await bench.runner.runs.events(run_id) if isinstance(event, InterruptAnswered)]
        expect_same([(event.answer, event.expired) for event in answered], [("late", True)], "the answers")


@_engine_check
async def messages_of_a_thread_keep_their_order(place: EnginePlace) -> None:
    """Messages for a busy thread are driven one after the other, across a suspension too."""
    async with _bench(place) as bench, bench.working(), bench.working():
        runs = [await bench.runner.submit("one", thread="t")]
        texts = ("two", "ask", "four", "five", "six")
        runs += [await bench.runner.submit(text, thread="t", when_busy="queue") for text in texts]
        await bench.until(lambda: runs[2] in bench.order, "the third message is driven")
        await bench.until_status(runs[2], "suspended")
        await bench.runner.runs.answer(runs[2], "three")

        async def all_finished() -> bool:
            records = await bench.runner.thread("t").runs()
            return len(records) == 6 and all(record.status == "completed" for record in records)

        await bench.until(all_finished, "all messages are handled")
        expect_same(bench.order, runs, "the order of the messages")


ENGINE_CHECKS: tuple[EngineCheck, ...] = tuple(_CHECKS)
"""The checks that every engine must pass."""
