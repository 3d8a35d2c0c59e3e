"""The engine `postgres`: limits for all workers, the pause, and a queue that can be lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from batonkit import Runner
from batonkit.agents import agent
from batonkit.errors import SetupError
from batonkit.stores import PostgresStore
from batonkit.worker import Concurrency, PostgresEngine, Worker

LIMIT = 120


async def _wait_for_a_lock(connection: psycopg.AsyncConnection[Any]) -> None:
    """Wait until another connection waits for a lock on a table."""
    async with asyncio.timeout(LIMIT):
        while True:
            found = await (await connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted")).fetchone()
            if found is not None:
                return
            await asyncio.sleep(0.01)


async def test_a_queue_is_made_while_a_run_is_submitted(postgres_url: str) -> None:
    # The submission has locked one table and needs the other, and so has the worker that starts.
    store = PostgresStore(postgres_url)
    await store.list()
    async with await psycopg.AsyncConnection.connect(postgres_url) as writer:
        await writer.execute("LOCK TABLE baton_runs IN ROW EXCLUSIVE MODE")
        engine = PostgresEngine(store)
        starting = asyncio.create_task(engine.is_paused())
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as observer:
            await _wait_for_a_lock(observer)
            held = "SELECT mode FROM pg_locks WHERE granted AND relation = 'baton_runnable'::regclass"
            assert await (await observer.execute(held)).fetchall() == []
        await writer.execute("LOCK TABLE baton_runnable IN ROW EXCLUSIVE MODE")
        await writer.commit()
    assert await starting is False
    await store.close()


async def test_a_queue_with_another_layout_is_refused_with_what_to_do(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    await PostgresEngine(store).is_paused()
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        queue = (await (await connection.execute("SELECT 'baton_queue_' || current_schema()")).fetchone() or ("",))[0]
        await connection.execute(f'UPDATE "{queue}".baton_settings SET layout = 3'.encode())
        with pytest.raises(SetupError, match=rf'has layout 3, but this .* DROP SCHEMA "{queue}" CASCADE, which loses'):
            await PostgresEngine(store).is_paused()
        await connection.execute(f'DROP SCHEMA "{queue}" CASCADE'.encode())
    assert await PostgresEngine(store).is_paused() is False
    await store.close()


class Site:
    """A store, and workers whose runs wait until they may go on."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.go = asyncio.Event()
        self.active: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[str] = []
        self.runner = self.new_runner()

    def new_runner(self) -> Runner[Any, Any]:
        @agent("Slow")
        async def slow(ctx: Any) -> None:
            owner = ctx.context
            self.order.append(ctx.run_id)
            for name in (owner, "all"):
                self.active[name] += 1
                self.most[name] = max(self.most[name], self.active[name])
            try:
                await self.go.wait()
                await asyncio.sleep(0.02)
            finally:
                self.active[owner] -= 1
                self.active["all"] -= 1

        store = PostgresStore(self.url, lease_seconds=5)
        return Runner(slow, store=store, context_factory=lambda record: record.owner)

    @asynccontextmanager
    async def working(self, **options: Any) -> AsyncGenerator[Worker]:
        runner = self.new_runner()
        worker = Worker(runner, engine="postgres", **options)
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await task
            await runner.close()

    async def until_completed(self, count: int) -> None:
        store = self.runner._require_store("test")

        async def holds() -> bool:
            return (await store.list(status=["completed"], limit=1, count_total=True)).total == count

        await until(holds)

    async def query(self, statement: str) -> Any:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            cursor = await connection.execute(statement.encode())
            return await cursor.fetchall() if cursor.description is not None else []

    async def queue(self) -> str:
        """The name of the queue's schema."""
        return f"baton_queue_{(await self.query('SELECT current_schema()'))[0][0]}"


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(LIMIT):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.02)


async def test_limits_hold_over_all_workers(postgres_url: str) -> None:
    site, limits = Site(postgres_url), Concurrency(per_owner=2, total=5)
    async with site.working(limits=limits), site.working(limits=limits):
        await until(lambda: _has_queue(site))
        for _ in range(6):
            await site.runner.submit("hi", owner="ada")
        await until(lambda: site.active["ada"] == 2)
        # Another owner's run does not wait for those of the first.
        for owner in ("bob", "eve", "bob", "eve", "bob", "eve"):
            await site.runner.submit("hi", owner=owner)
        await until(lambda: site.active["all"] == 5)
        await asyncio.sleep(0.3)
        assert (site.active["all"], site.active["ada"]) == (5, 2)
        site.go.set()
        await site.until_completed(12)
    assert (site.most["ada"], site.most["all"]) == (2, 5)
    assert max(site.most["bob"], site.most["eve"]) <= 2
    await site.runner.close()


async def test_a_second_job_of_a_run_does_not_admit_another_while_the_first_drives_it(postgres_url: str) -> None:
    site = Site(postgres_url)
    async with site.working(limits=Concurrency(per_owner=1, total=50)):
        await until(lambda: _has_queue(site))
        driven = await site.runner.submit("hi", owner="ada")
        await until(lambda: site.active["ada"] == 1)
        await site.runner.submit("hi", owner="ada")
        queue = await site.queue()
        # The end of a job does this.
        await site.query(f"SELECT {queue}.baton_admit('ada', '{driven}')")
        assert await site.query(f"SELECT queueing_lock FROM {queue}.procrastinate_jobs") == [(driven,)]
        site.go.set()
        await site.until_completed(2)
    await site.runner.close()


async def _has_queue(site: Site) -> bool:
    """Return whether a worker has created the queue and stored its limits."""
    queue = await site.queue()
    found = await site.query(f"SELECT to_regclass('{queue}.baton_settings')")
    return found[0][0] is not None and await site.query(f"SELECT total FROM {queue}.baton_settings") != [(None,)]


async def test_each_release_admits_the_next_by_priority(postgres_url: str) -> None:
    site = Site(postgres_url)
    async with site.working(limits=Concurrency(per_owner=1, total=50)):
        await until(lambda: _has_queue(site))
        first = await site.runner.submit("hi", owner="ada")
        await until(lambda: site.active["ada"] == 1)
        low, high = [await site.runner.submit("hi", owner="ada", priority=priority) for priority in (0, 7)]
        site.go.set()
        await site.until_completed(3)
    assert site.order == [first, high, low]
    await site.runner.close()


async def test_a_paused_queue_hands_out_no_runs(postgres_url: str) -> None:
    site = Site(postgres_url)
    site.go.set()
    operator = PostgresEngine(site.runner._require_store("test"))
    await site.runner.submit("hi")
    await operator.pause()
    assert await operator.is_paused()
    async with site.working() as worker:
        await asyncio.sleep(2)
        assert (worker.counts.completed, worker.engine.problem()) == (0, "")
        await operator.resume()
        await site.until_completed(1)
        await operator.pause()
        await asyncio.sleep(2.5)
        await site.runner.submit("hi")
        await asyncio.sleep(1.5)
        assert worker.counts.completed == 1
        await operator.resume()
        await site.until_completed(2)
    await site.runner.close()


async def test_the_queue_holds_no_state_of_runs(postgres_url: str) -> None:
    site = Site(postgres_url)
    site.go.set()
    async with site.working():
        await site.runner.submit("hi")
        await site.until_completed(1)
    await site.query(f"DROP SCHEMA {await site.queue()} CASCADE")
    await site.runner.submit("hi")
    async with site.working():
        await site.until_completed(2)
        await site.runner.submit("hi")
        await site.until_completed(3)

        async def is_empty() -> bool:
            return await site.query(f"SELECT count(*) FROM {await site.queue()}.procrastinate_jobs") == [(0,)]

        await until(is_empty)
    await site.runner.close()


async def test_an_erased_run_leaves_no_job(postgres_url: str) -> None:
    site = Site(postgres_url)
    site.go.set()
    async with site.working():
        await site.runner.submit("hi")
        await site.until_completed(1)
    later = timedelta(days=1)
    for owner in ("ada", "bob"):
        await site.runner.submit("hi", owner=owner, not_before=later)
        await site.runner.submit("hi", owner=owner)
    store, jobs = site.runner._require_store("test"), f"{await site.queue()}.procrastinate_jobs"
    owners = f"SELECT args ->> 'owner', count(*) FROM {jobs} GROUP BY 1 ORDER BY 1"
    assert await site.query(owners) == [("ada", 2), ("bob", 2)]
    assert await store.erase(owner="ada") == 2
    assert await site.query(owners) == [("bob", 2)]
    await site.runner.close()


async def test_jobs_of_dead_workers_are_dropped_and_their_runs_driven(postgres_url: str) -> None:
    # A job that is `doing` for ever must not keep its run.
    site = Site(postgres_url)
    site.go.set()
    async with site.working():
        await site.runner.submit("hi")
        await site.until_completed(1)
    run_id = await site.runner.submit("hi")
    store = site.runner._require_store("test")
    await store.acquire(run_id, "dead", ttl=1)
    queue = await site.queue()
    await site.query(f"SET search_path = {queue}; UPDATE procrastinate_jobs SET status = 'doing'")
    async with site.working():
        await site.until_completed(2)

        async def is_empty() -> bool:
            return await site.query(f"SELECT count(*) FROM {queue}.procrastinate_jobs") == [(0,)]

        await until(is_empty)
    await site.runner.close()
