"""The engine `postgres`: jobs of procrastinate in the store's own database. Needs the extra `worker`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar, cast

from ..errors import MissingExtraError, SetupError, StoreError
from ..runs.stored.recovery import FailedAttempts, RecoveryLoop
from ..stores import RunRecord, Store
from ..stores.parts import innermost_store
from .engine import RunDriver
from .limits import NO_LIMITS

try:
    import procrastinate
    from procrastinate.exceptions import ProcrastinateException
    from psycopg import AsyncConnection, Error
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    from ..stores.postgres import PostgresStore
    from .queue_schema import ANY_TEAM, TASK, QueueSchema
except ImportError as missing:
    raise MissingExtraError("the engine `postgres`", "worker", missing) from missing

T = TypeVar("T")

_logger = logging.getLogger("baton.worker")
_SWEEP_INTERVAL = 1.0
_POLL_INTERVAL = 1.0
_HEARTBEAT = 3.0
_DEAD_AFTER = 10.0
_RESTART_DELAY = 0.5
_UNHEALTHY_AFTER = 10.0
_CONNECTIONS = 4

_SCHEMA_OF_STORE = "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('baton_runs')"
_OFFER = """
SELECT {queue}.baton_offer(run_id, owner, team, priority, '') FROM unnest(
    %(run_ids)s::text[], %(owners)s::text[], %(teams)s::text[], %(priorities)s::integer[])
    AS runs(run_id, owner, team, priority)
WHERE NOT EXISTS (SELECT 1 FROM {queue}.procrastinate_jobs WHERE queueing_lock = run_id AND status = 'todo')"""
_ADMIT = "SELECT {queue}.baton_admit(%(owner)s, %(run_id)s)"
_SET_LIMITS = """
UPDATE {queue}.baton_settings SET per_owner = %(per_owner)s, total = %(total)s
WHERE (per_owner, total) IS DISTINCT FROM (%(per_owner)s::integer, %(total)s::integer)"""
_SET_PAUSED = "UPDATE {queue}.baton_settings SET is_paused = %(is_paused)s"
_IS_PAUSED = "SELECT is_paused FROM {queue}.baton_settings"
_COUNT_JOBS = "SELECT status::text, count(*) FROM {queue}.procrastinate_jobs GROUP BY 1 ORDER BY 1"
_ADD_LATER = """
SELECT {queue}.baton_add(%(run_id)s, %(owner)s, %(team)s, %(priority)s,
    clock_timestamp() + make_interval(secs => %(seconds)s))"""
_DROP_STALLED = "SELECT {queue}.baton_drop_stalled(%(seconds)s)"


class PostgresEngine:
    """Dispatches runs as jobs of procrastinate in the database of the store.

    Its tables are in the schema `baton_queue`. A job only says that a run may be driven; duplicates and lost jobs do no
    harm, because a sweep adds jobs for runs that the store has as runnable.

    Args:
        store: The store of the runs, a `PostgresStore`.
    """

    name = "postgres"
    has_limits = True

    def __init__(self, store: Store) -> None:
        keeper = innermost_store(store)
        if not isinstance(keeper, PostgresStore):
            raise SetupError(f"the engine `postgres` needs a PostgresStore; {keeper!r} works with `local`")
        self._store = keeper
        self._schema: QueueSchema | None = None
        self._stopping = asyncio.Event()
        self._paused = asyncio.Event()
        """Set while the queue is paused."""
        self._deliveries: set[asyncio.Task[None]] = set()
        self._last_success = monotonic()
        self._problem = ""

    async def serve(self, driver: RunDriver) -> None:
        """Fetch jobs and sweep until `stop` is called; see `Engine.serve`.

        Args:
            driver: The worker.
        """
        self._last_success = monotonic()
        sweeping = asyncio.create_task(self._sweep(driver), name="baton sweep")
        try:
            while not self._stopping.is_set():
                try:
                    await self._fetch_jobs(driver)
                except (StoreError, ProcrastinateException, Error, OSError) as error:
                    # The database may be down for a while; runs driven here continue while their leases last.
                    if not self._problem:
                        _logger.warning("could not fetch jobs; trying again until it works", exc_info=True)
                    self._problem = f"the queue cannot be reached: {error}"
                    await self._pause(_RESTART_DELAY)
        finally:
            sweeping.cancel()
            await asyncio.wait([sweeping])
        while self._deliveries:
            await asyncio.wait(self._deliveries)

    async def stop(self) -> None:
        """Fetch no more jobs; see `Engine.stop`."""
        self._stopping.set()

    def problem(self) -> str:
        """Return why jobs cannot be fetched; see `Engine.problem`."""
        silent = monotonic() - self._last_success
        return self._problem or (f"the store has not answered for {silent:.0f} s" if silent > _UNHEALTHY_AFTER else "")

    async def pause(self) -> None:
        """Let no worker of the store take runs until `resume` is called; runs in progress continue."""
        await self._execute(_SET_PAUSED, {"is_paused": True})

    async def resume(self) -> None:
        """Let workers take runs again."""
        await self._execute(_SET_PAUSED, {"is_paused": False})

    async def is_paused(self) -> bool:
        """Return whether the queue is paused."""
        return bool((await self._execute(_IS_PAUSED, {}))[0][0])

    async def count_jobs(self) -> dict[str, int]:
        """Return the number of jobs by status: `todo` waits for a worker, `doing` is being driven."""
        return {str(status): int(count) for status, count in await self._execute(_COUNT_JOBS, {})}

    async def _fetch_jobs(self, driver: RunDriver) -> None:
        """Run a worker of procrastinate until it fails, the queue is paused or `stop` is called."""
        schema = await self._open()
        limits = driver.limits
        await self._execute(_SET_LIMITS, {"per_owner": limits.per_owner, "total": limits.total})
        if await self.is_paused():
            self._problem = ""
            await self._pause(_SWEEP_INTERVAL)
            return
        self._paused.clear()
        app = procrastinate.App(connector=self._connector(schema))

        async def drive(run_id: str, owner: str = "") -> None:
            delivery = asyncio.create_task(self._deliver(driver, run_id, owner), name=f"baton {run_id}")
            self._deliveries.add(delivery)
            delivery.add_done_callback(self._deliveries.discard)
            # If procrastinate's worker fails, the run is driven on while its lease lasts.
            await asyncio.shield(delivery)

        app.task(name=TASK)(drive)
        queues: dict[str, Any] = {} if driver.teams is None else {"queues": [team or ANY_TEAM for team in driver.teams]}
        async with app.open_async():
            self._problem = ""
            working = asyncio.create_task(
                app.run_worker_async(
                    **queues,
                    concurrency=driver.concurrency,
                    fetch_job_polling_interval=_POLL_INTERVAL,
                    shutdown_graceful_timeout=0,
                    delete_jobs="always",
                    install_signal_handlers=False,
                    update_heartbeat_interval=_HEARTBEAT,
                    stalled_worker_timeout=_DEAD_AFTER,
                )
            )
            ends = [asyncio.create_task(event.wait()) for event in (self._stopping, self._paused)]
            try:
                await asyncio.wait([working, *ends], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                working.cancel()
                await asyncio.wait([working])
            if not working.cancelled():
                working.result()

    async def _deliver(self, driver: RunDriver, run_id: str, owner: str) -> None:
        outcome = await driver.drive(run_id, owner=owner)
        if outcome.retry_in is not None and not outcome.is_elsewhere:
            await self._add_again(run_id, outcome.retry_in)
        if driver.limits != NO_LIMITS:
            try:
                await self._execute(_ADMIT, {"owner": owner, "run_id": run_id})
            except StoreError:
                _logger.warning("could not admit the next run; the sweep will", exc_info=True)

    async def _add_again(self, run_id: str, seconds: float) -> None:
        try:
            record = await self._store.record(run_id)
            if record is not None:
                values = {"run_id": run_id, "owner": record.owner, "team": record.team, "priority": record.priority}
                await self._execute(_ADD_LATER, {**values, "seconds": seconds})
        except StoreError:
            _logger.warning("could not add a job for run `%s`; the sweep will", run_id, exc_info=True)

    async def _sweep(self, driver: RunDriver) -> None:
        """Add jobs for runnable runs that have none, such as those of dead workers."""
        repository = driver.runner._repository

        async def offer(records: Sequence[RunRecord]) -> None:
            # One transaction for each owner, so that no two workers wait for each other's locks.
            for owner in sorted({record.owner for record in records}):
                of_owner = [record for record in records if record.owner == owner]
                values = {
                    "run_ids": [record.run_id for record in of_owner],
                    "owners": [owner] * len(of_owner),
                    "teams": [record.team for record in of_owner],
                    "priorities": [record.priority for record in of_owner],
                }
                await self._execute(_OFFER, values)

        # Only runs of its own teams, so that those that no worker drives do not hide others.
        recovery = RecoveryLoop(
            repository,
            offer,
            FailedAttempts(self._store),
            interval=_SWEEP_INTERVAL,
            teams=driver.teams,
            per_owner=driver.limits.per_owner,
        )
        watching = asyncio.create_task(self._watch(recovery))
        try:
            await recovery.run()
        finally:
            watching.cancel()

    async def _watch(self, recovery: RecoveryLoop) -> None:
        """Drop the jobs of dead workers, and notice a pause of the queue."""
        while True:
            await asyncio.sleep(_SWEEP_INTERVAL)
            self._last_success = recovery.last_success or self._last_success
            try:
                await self._execute(_DROP_STALLED, {"seconds": _DEAD_AFTER})
                if await self.is_paused():
                    self._paused.set()
            except StoreError:
                _logger.debug("could not look after the queue", exc_info=True)

    async def _pause(self, seconds: float) -> None:
        """Wait for some time, or until `stop` is called."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _open(self) -> QueueSchema:
        """Create the queue's schema if necessary."""
        if self._schema is None:

            async def create(connection: AsyncConnection[Any]) -> QueueSchema:
                row = await (await connection.execute(_SCHEMA_OF_STORE)).fetchone()
                schema = QueueSchema(row[0] if row is not None else "public")
                await schema.create(connection)
                return schema

            self._schema = await self._transact(create)
        return self._schema

    async def _execute(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        schema = await self._open()

        async def execute(connection: AsyncConnection[Any]) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(schema.format(statement), values)
            return await cursor.fetchall() if cursor.description is not None else []

        return await self._transact(execute)

    async def _transact(self, work: Callable[[AsyncConnection[Any]], Awaitable[T]]) -> T:
        result = await self._store._pool.transact(work)
        return cast("T", result)

    def _connector(self, schema: QueueSchema) -> procrastinate.PsycopgConnector:
        url = self._store._pool._url
        given = str(conninfo_to_dict(url).get("options") or "")
        # The last setting wins.
        path = f'{given} -csearch_path="{schema.name}"'.strip()
        return procrastinate.PsycopgConnector(
            conninfo=make_conninfo(url, options=path), min_size=1, max_size=_CONNECTIONS
        )
