"""`python -m benchmarks.worker`: measure workers of one engine on this machine (scale G16)."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
from tests.postgres import PostgresServer
from tests.temporal_server import TemporalServer
from tests.worker.processes import WorkerProcess

from baton import Runner
from baton.events import AgentStarted, InterruptRaised, StepCompleted
from baton.stores import FINISHED_STATUSES, RunRecord, Store
from benchmarks.worker.target import CALL_SECONDS, CALLS, LEASE, STORE, make_runner

CONCURRENCY = 20
TARGET = "benchmarks.worker.target:runner"


class Site:
    """The store, the engine's servers and the options of its workers."""

    def __init__(self, engine: str, stack: ExitStack) -> None:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._options = ["--engine", engine, "--concurrency", str(CONCURRENCY)]
        if engine == "local":
            self._store = str(self.folder / "runs.db")
        else:
            server = PostgresServer()
            stack.callback(server.remove)
            server.start()
            self._store = server.url
        if engine == "temporal":
            temporal = TemporalServer(self.folder)
            stack.callback(temporal.stop)
            temporal.start()
            self._options += ["--address", temporal.address]

    def new_runner(self) -> Runner[Any, Any]:
        """Return a runner for submitting runs."""
        return make_runner(self._store)

    @contextmanager
    def workers(self, count: int, *options: str) -> Generator[list[WorkerProcess]]:
        """Run workers during a block."""
        with ExitStack() as stack:
            environment, arguments = {STORE: self._store}, (TARGET, *self._options, *options)
            started = [
                stack.enter_context(WorkerProcess(*arguments, cwd=self.folder, environment=environment))
                for _ in range(count)
            ]
            for worker in started:
                worker.wait_until_ready()
            time.sleep(2)
            yield started


def describe(seconds: Sequence[float]) -> str:
    """Return the percentiles of some durations in milliseconds."""
    ordered = sorted(seconds)
    chosen = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    values = {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in chosen.items()}
    return ", ".join(f"{name} {value * 1000:.0f} ms" for name, value in values.items()) + f" of {len(ordered)}"


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll until a condition holds."""
    while not await condition():  # noqa: ASYNC110 - it depends on other processes
        await asyncio.sleep(0.005)


async def finished(store: Store, run_ids: Sequence[str], statuses: Sequence[str] = FINISHED_STATUSES) -> None:
    """Wait until runs have one of these statuses, and no worker has them any more."""
    for run_id in run_ids:

        async def holds(run_id: str = run_id) -> bool:
            record = await store.record(run_id)
            return record is not None and record.status in statuses and not record.is_leased

        await until(holds)


async def first_event(runner: Runner[Any, Any], run_id: str, kind: type[Any], *, last: bool = False) -> float:
    """Return the time of a run's first or last event of a kind."""
    times = [event.timestamp for event in await runner.events(run_id) if isinstance(event, kind)]
    return times[-1 if last else 0]


async def submit_to_first_event(site: Site, count: int) -> str:
    """Measure an idle worker: from the call of `submit` to the start of the first agent."""
    async with site.new_runner() as runner:
        store, waits = runner._require_store("benchmark"), list[float]()
        with site.workers(1):
            for number in range(count + 10):
                called = time.time()
                run_id = await runner.submit("hi")
                await finished(store, [run_id])
                if number >= 10:
                    waits.append(await first_event(runner, run_id, AgentStarted) - called)
    return f"submit → first event: {describe(waits)}"


async def answer_to_resumed(site: Site, count: int) -> str:
    """Measure an idle worker: from the call of `answer` to the first new step."""
    async with site.new_runner() as runner:
        store, waits = runner._require_store("benchmark"), list[float]()
        with site.workers(1):
            for _ in range(count):
                run_id = await runner.submit("ask")
                await finished(store, [run_id], ["suspended"])
                called = time.time()
                await runner.answer(run_id, True)
                await finished(store, [run_id])
                waits.append(await first_event(runner, run_id, StepCompleted) - called)
                assert await first_event(runner, run_id, InterruptRaised) < called
    return f"answer → resumed: {describe(waits)}"


async def throughput(site: Site, count: int) -> str:
    """Measure three workers with simulated model calls."""
    async with site.new_runner() as runner:
        run_ids = [await runner.submit("work") for _ in range(count)]
        with site.workers(3):
            await finished(runner._require_store("benchmark"), run_ids)
        begun = [await first_event(runner, run_id, AgentStarted) for run_id in run_ids]
        ended = [(await runner.events(run_id))[-1].timestamp for run_id in run_ids]
    # From the tenth start to the last end, with all workers up: ideal are 60 runs at once without a gap.
    seconds = max(ended) - sorted(begun)[CONCURRENCY * 3 - 1]
    ideal = (count - CONCURRENCY * 3) * CALLS * CALL_SECONDS / (CONCURRENCY * 3) + CALLS * CALL_SECONDS
    rate = count / (max(ended) - min(begun))
    return f"throughput: {rate:.1f} runs/s with three workers, {100 * ideal / seconds:.0f} % of ideal ({count} runs)"


async def other_owner(site: Site, count: int) -> str:
    """Measure how long the run of one owner waits behind many of another, with limits."""
    async with site.new_runner() as runner:
        store, waits = runner._require_store("benchmark"), list[float]()
        with site.workers(1, "--per-owner", "2", "--total", "10"):
            busy = [await runner.submit("work", owner="busy") for _ in range(count * 4)]
            for _ in range(count):
                called = time.time()
                run_id = await runner.submit("hi", owner="quick")
                await finished(store, [run_id])
                waits.append(await first_event(runner, run_id, AgentStarted) - called)
            for run_id in busy:
                await runner.cancel(run_id)
    return f"another owner's run under load: {describe(waits)}"


async def take_over(site: Site, count: int) -> str:
    """Measure how long a run of a killed worker waits for another worker."""
    async with site.new_runner() as runner:
        store, waits = runner._require_store("benchmark"), list[float]()
        for _ in range(count):
            with site.workers(1) as (victim,):
                run_id = await runner.submit("long")

                async def has_begun(run_id: str = run_id) -> bool:
                    return any(isinstance(event, StepCompleted) for event in await runner.events(run_id))

                await until(has_begun)
                before = await store.record(run_id)
                with site.workers(1):
                    killed = time.time()
                    victim.kill()

                    async def is_taken(run_id: str = run_id, before: RunRecord | None = before) -> bool:
                        record = await store.record(run_id)
                        return record is not None and before is not None and record.fence > before.fence

                    await until(is_taken)
                    waits.append(time.time() - killed)
                    await runner.cancel(run_id)
                    await finished(store, [run_id])
    return f"take-over after kill -9, lease {LEASE:g} s: {describe(waits)}"


@click.command()
@click.option("--engine", type=click.Choice(["local", "postgres", "temporal"]), default="postgres", show_default=True)
@click.option("--quick", is_flag=True, help="Fewer runs.")
@click.option("--only", multiple=True, help="Only the measurement with this name; may be repeated.")
def main(engine: str, quick: bool, only: tuple[str, ...]) -> None:
    """Measure workers with one engine: latency, throughput, limits and take-over."""
    measurements = {
        "submit": (submit_to_first_event, 300, 50),
        "answer": (answer_to_resumed, 200, 40),
        "throughput": (throughput, 600, 240),
        "owner": (other_owner, 30, 10),
        "takeover": (take_over, 5, 1),
    }
    for name, (measure, many, few) in measurements.items():
        if not only or name in only:
            with ExitStack() as stack:
                click.echo(f"{engine}: {asyncio.run(measure(Site(engine, stack), few if quick else many))}")


main()
