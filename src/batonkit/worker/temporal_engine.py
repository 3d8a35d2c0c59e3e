"""The engine `temporal`: one workflow per run on a Temporal server. Needs the extra `temporal`."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Any

from msgspec import Struct

from .._checks import check_arguments
from ..errors import MissingExtraError, StoreError
from ..runs.stored.recovery import FailedAttempts, RecoveryLoop
from ..stores import FINISHED_STATUSES, RunRecord
from .engine import Outcome, RunDriver

try:
    from temporalio import activity, workflow
    from temporalio.client import Client
    from temporalio.common import Priority, RetryPolicy, WorkflowIDConflictPolicy
    from temporalio.service import RPCError, ServiceClient
    from temporalio.worker import UnsandboxedWorkflowRunner
    from temporalio.worker import Worker as TemporalWorker
except ImportError as missing:
    raise MissingExtraError("the engine `temporal`", "temporal", missing) from missing

_logger = logging.getLogger("baton.worker")
WORKFLOW = "baton.run"
ACTIVITY = "baton.drive"
WAKE = "wake"
_HEARTBEAT = timedelta(seconds=1)
_HEARTBEAT_TIMEOUT = timedelta(seconds=5)
_TASK_TIMEOUT = timedelta(seconds=3)
_NO_LIMIT = timedelta(days=3650)
_INTERVAL = 0.1
_DISPATCH_AGAIN = 30.0
_RESTART_DELAY = 0.5
_UNHEALTHY_AFTER = 10.0
_FORGET_AFTER = 10_000
_AT_ONCE = 20


@workflow.defn(name=WORKFLOW)
class RunWorkflow:
    """Has a run driven by an activity, again and again, until the run has finished.

    It knows the id of the run and nothing else; a signal only says that it may be time to drive the run.
    """

    def __init__(self) -> None:
        self._signals = 0

    @workflow.signal(name=WAKE)
    def wake(self) -> None:
        """Drive the run now."""
        self._signals += 1

    @workflow.run
    async def run(self, run_id: str) -> None:
        """Drive a run until it has finished."""
        while not workflow.info().is_continue_as_new_suggested():
            seen = self._signals
            result: dict[str, Any] = await workflow.execute_activity(
                ACTIVITY,
                run_id,
                start_to_close_timeout=_NO_LIMIT,
                heartbeat_timeout=_HEARTBEAT_TIMEOUT,
                retry_policy=RetryPolicy(
                    initial_interval=timedelta(seconds=0.1), maximum_interval=timedelta(seconds=10)
                ),
            )
            if result["is_finished"]:
                return
            seconds = result["wait"]
            try:
                await workflow.wait_condition(
                    lambda seen=seen: self._signals > seen,
                    timeout=None if seconds is None else timedelta(seconds=max(0.0, seconds)),
                )
            except TimeoutError:
                continue
        workflow.continue_as_new(run_id)


class _Dispatch(Struct, frozen=True):
    """The state in which a run was dispatched last."""

    fence: int
    seq: int
    """The number of lines that its log had."""
    again_at: float
    """The monotonic time at which it is dispatched again even if nothing has changed."""


class TemporalEngine:
    """Dispatches runs as workflows of Temporal.

    A workflow holds the id of its run only. If a worker dies, Temporal notices that its activity has no heartbeat and
    starts another one, which takes the lease at once.

    Args:
        address: The address of the Temporal server.
        namespace: The namespace of the workflows.
        prefix: The beginning of the ids of workflows and task queues; one for each store.
        client: A client to use instead, for example with TLS or an API key.
    """

    name = "temporal"
    has_limits = False

    @check_arguments
    def __init__(
        self,
        address: str = "localhost:7233",
        *,
        namespace: str = "default",
        prefix: str = "baton",
        client: Client | None = None,
    ) -> None:
        self._address = address if client is None else client.service_client.config.target_host
        self._namespace = namespace
        self._prefix = prefix
        self._client = client
        self._stopping = asyncio.Event()
        self._dispatched: dict[str, _Dispatch] = {}
        self._last_success = monotonic()
        self._problem = ""

    async def serve(self, driver: RunDriver) -> None:
        """Start workflows and execute their activities until `stop` is called; see `Engine.serve`.

        Args:
            driver: The worker.
        """
        self._last_success = monotonic()
        client = self._client or await self._connect()
        if client is None:
            return
        teams = ("",) if driver.teams is None else driver.teams
        dispatching = asyncio.create_task(self._dispatch(driver, client), name="baton dispatch")
        try:
            await asyncio.gather(*[self._work_on(driver, client, self._task_queue(team)) for team in teams])
        finally:
            dispatching.cancel()
            await asyncio.wait([dispatching])

    async def stop(self) -> None:
        """Accept no more activities; see `Engine.stop`."""
        self._stopping.set()

    def problem(self) -> str:
        """Return why workflows cannot be started; see `Engine.problem`."""
        silent = monotonic() - self._last_success
        late = f"the store or the Temporal server has not answered for {silent:.0f} s"
        return self._problem or (late if silent > _UNHEALTHY_AFTER else "")

    async def _connect(self, known: Client | None = None) -> Client | None:
        """Return a client with a new connection; None if the worker is stopped before there is one."""
        while not self._stopping.is_set():
            try:
                client = await self._new_client(known)
            except (RuntimeError, RPCError) as error:
                await self._report(error)
            else:
                self._problem = ""
                return client
        return None

    async def _new_client(self, known: Client | None) -> Client:
        if known is None:
            return await Client.connect(self._address, namespace=self._namespace)
        config = known.config()
        config["service_client"] = await ServiceClient.connect(known.service_client.config)
        return Client(**config)

    async def _report(self, error: Exception) -> None:
        """Log that Temporal cannot be reached, once, and wait before the next attempt."""
        if not self._problem:
            # The lines after the first one are a traceback of the SDK's core.
            reason = str(error).partition("\n")[0]
            _logger.warning("Temporal at %s cannot be reached; trying again: %s", self._address, reason)
        self._problem = f"Temporal at {self._address} cannot be reached"
        await self._pause(_RESTART_DELAY)

    async def _work_on(self, driver: RunDriver, client: Client, task_queue: str) -> None:
        """Work until `stop` is called; Temporal's worker gives up when its server is away for long."""
        using: Client | None = client
        while using is not None and not self._stopping.is_set():
            try:
                await self._work(driver, using, task_queue)
            except (RuntimeError, RPCError) as error:
                await self._report(error)
                # A worker that failed to start stays registered with its connection, which refuses another one.
                using = await self._connect(using)

    async def _work(self, driver: RunDriver, client: Client, task_queue: str) -> None:
        """Execute the workflows and activities of one task queue until `stop` is called."""

        @activity.defn(name=ACTIVITY)
        async def drive(run_id: str) -> dict[str, Any]:
            info = activity.info()
            # The same for each retry of the activity, which Temporal starts once the one before it is dead.
            attempt = f"temporal {info.workflow_run_id}/{info.activity_id}"
            beating = asyncio.create_task(_beat())
            try:
                return await _to_result(driver, await driver.drive(run_id, attempt=attempt))
            finally:
                beating.cancel()

        worker = TemporalWorker(
            client,
            task_queue=task_queue,
            workflows=[RunWorkflow],
            activities=[drive],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=driver.concurrency,
            # A cached workflow waits for the worker that has it, also if that worker is dead.
            max_cached_workflows=0,
            max_heartbeat_throttle_interval=_HEARTBEAT,
            default_heartbeat_throttle_interval=_HEARTBEAT,
            # The worker drains its runs itself.
            graceful_shutdown_timeout=_NO_LIMIT,
        )
        running = asyncio.create_task(worker.run())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await worker.shutdown()
            await running
        finally:
            stopping.cancel()
            running.cancel()
            await asyncio.wait([running])

    async def _dispatch(self, driver: RunDriver, client: Client) -> None:
        """Start a workflow for each runnable run, or wake the one it has."""
        repository = driver.runner._repository

        async def start(records: Sequence[RunRecord]) -> None:
            new = [record for record in records if self._is_new(record)]
            for first in range(0, len(new), _AT_ONCE):
                batch = new[first : first + _AT_ONCE]
                await asyncio.gather(
                    *[self._start(client, record, by_team=driver.teams is not None) for record in batch]
                )
            while len(self._dispatched) > _FORGET_AFTER:
                del self._dispatched[next(iter(self._dispatched))]
            self._last_success = monotonic()

        async def watch(recovery: RecoveryLoop) -> None:
            while True:
                await asyncio.sleep(1.0)
                self._last_success = max(self._last_success, recovery.last_success or 0.0)

        recovery = RecoveryLoop(
            repository, start, FailedAttempts(repository.store), interval=_INTERVAL, teams=driver.teams
        )
        watching = asyncio.create_task(watch(recovery))
        try:
            await recovery.run()
        finally:
            watching.cancel()

    def _is_new(self, record: RunRecord) -> bool:
        """Return whether a run was not dispatched as it is, or long ago."""
        last = self._dispatched.get(record.run_id)
        return last is None or (last.fence, last.seq) != (record.fence, record.seq) or last.again_at <= monotonic()

    async def _start(self, client: Client, record: RunRecord, *, by_team: bool) -> None:
        # A run that no worker has had yet cannot have a workflow that waits for a signal.
        signal: dict[str, Any] = {} if record.fence <= 1 else {"start_signal": WAKE}
        await client.start_workflow(
            WORKFLOW,
            record.run_id,
            id=f"{self._prefix}-{record.run_id}",
            task_queue=self._task_queue(record.team if by_team else ""),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            task_timeout=_TASK_TIMEOUT,
            priority=Priority(priority_key=min(5, max(1, 3 - record.priority))),
            **signal,
        )
        self._dispatched[record.run_id] = _Dispatch(record.fence, record.seq, monotonic() + _DISPATCH_AGAIN)

    def _task_queue(self, team: str) -> str:
        return f"{self._prefix}-{team or 'any'}"

    async def _pause(self, seconds: float) -> None:
        """Wait for some time, or until `stop` is called."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(_HEARTBEAT.total_seconds())


async def _to_result(driver: RunDriver, outcome: Outcome) -> dict[str, Any]:
    """Return what the workflow needs to know: nothing about the contents of the run."""
    wait = outcome.retry_in
    if wait is None and outcome.wake_at > 0:
        store = driver.runner._require_store("Worker")
        try:
            wait = outcome.wake_at - await store.now()
        except StoreError:
            wait = _DISPATCH_AGAIN
    if wait is None and outcome.status == "running":
        wait = 0.0
    return {"is_finished": outcome.status is None or outcome.status in FINISHED_STATUSES, "wait": wait}
