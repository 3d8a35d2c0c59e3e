"""`python -m benchmarks.worker`: measure the workers of each engine on this machine.

It prints a table, and fails if an engine misses one of its limits. Run it on a quiet machine; it takes about seven
minutes.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
from tests.integration.worker.processes import WorkerProcess
from tests.postgres import PostgresServer
from tests.temporal_server import TemporalServer

from batonkit import Runner
from batonkit.log import AgentStarted, InterruptRaised, StepCompleted
from batonkit.stores import FINISHED_STATUSES, RunRecord, Store
from benchmarks.worker.target import CALL_SECONDS, CALLS, LEASE, STORE, make_runner

CONCURRENCY = 20
TARGET = "benchmarks.worker.target:runner"
ENGINES = ("postgres", "local", "temporal")


class Figure(NamedTuple):
    """A measured value, and the figures around it."""

    value: float
    """The value that a limit applies to: milliseconds, or percent of the ideal throughput."""
    details: str


class Limit(NamedTuple):
    """A limit that the measurement is compared with."""

    value: float
    text: str
    is_minimum: bool = False

    def is_met(self, value: float) -> bool:
        """Return whether a measured value keeps the limit."""
        return value >= self.value if self.is_minimum else value <= self.value


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


def percentiles(seconds: Sequence[float], *, share: float = 0.99) -> Figure:
    """Return a percentile of some durations in milliseconds, and others beside it."""
    ordered = sorted(seconds)
    chosen = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    values = {name: _percentile(ordered, each) for name, each in chosen.items()}
    figures = ", ".join(f"{name} {value:,.0f}" for name, value in values.items())
    return Figure(_percentile(ordered, share), f"{figures} ms of {len(ordered)}")


def _percentile(ordered: Sequence[float], share: float) -> float:
    return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


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
    times = [event.timestamp for event in await runner.runs.events(run_id) if isinstance(event, kind)]
    return times[-1 if last else 0]


async def submit_to_first_event(site: Site, count: int) -> Figure:
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
    return percentiles(waits)


async def answer_to_resumed(site: Site, count: int) -> Figure:
    """Measure an idle worker: from the call of `answer` to the first new step."""
    async with site.new_runner() as runner:
        store, waits = runner._require_store("benchmark"), list[float]()
        with site.workers(1):
            for _ in range(count):
                run_id = await runner.submit("ask")
                await finished(store, [run_id], ["suspended"])
                called = time.time()
                await runner.runs.answer(run_id, True)
                await finished(store, [run_id])
                waits.append(await first_event(runner, run_id, StepCompleted) - called)
                assert await first_event(runner, run_id, InterruptRaised) < called
    return percentiles(waits)


async def throughput(site: Site, count: int) -> Figure:
    """Measure three workers with simulated model calls."""
    async with site.new_runner() as runner:
        run_ids = [await runner.submit("work") for _ in range(count)]
        with site.workers(3):
            await finished(runner._require_store("benchmark"), run_ids)
        begun = [await first_event(runner, run_id, AgentStarted) for run_id in run_ids]
        ended = [(await runner.runs.events(run_id))[-1].timestamp for run_id in run_ids]
    # From the sixtieth start to the last end, with all workers up: ideal are 60 runs at once without a gap.
    seconds = max(ended) - sorted(begun)[CONCURRENCY * 3 - 1]
    ideal = (count - CONCURRENCY * 3) * CALLS * CALL_SECONDS / (CONCURRENCY * 3) + CALLS * CALL_SECONDS
    rate = count / (max(ended) - min(begun))
    return Figure(100 * ideal / seconds, f"{rate:.1f} runs/s, {100 * ideal / seconds:.0f} % of ideal, {count} runs")


async def other_owner(site: Site, count: int) -> Figure:
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
                await runner.runs.cancel(run_id)
    return percentiles(waits, share=1.0)


_SMALL_BACKLOG = 300
_MEASURED_RUNS = 200
_PER_OWNER = ("--per-owner", "10")


async def fill(runner: Runner[Any, Any], count: int) -> None:
    """Submit many runs of one owner."""
    for _ in range(0, count, 50):
        await asyncio.gather(*[runner.submit("hi", owner="busy") for _ in range(50)])


async def rate_with_backlog(site: Site, count: int) -> float:
    """Return the runs per second that one worker completes while so many of one owner wait."""
    async with site.new_runner() as runner:
        store = runner._require_store("benchmark")
        await fill(runner, count)
        begun = await store.now()
        with site.workers(1, *_PER_OWNER):

            async def has_completed() -> bool:
                page = await store.list(status=["completed"], since=begun, order_by="changed", limit=_MEASURED_RUNS)
                return len(page.records) == _MEASURED_RUNS

            await until(has_completed)
        page = await store.list(
            status=["completed"], since=begun, order_by="changed", oldest_first=True, limit=_MEASURED_RUNS
        )
        ended = [record.changed_at for record in page.records]
        await store.erase(owner="busy")
    return (_MEASURED_RUNS - 1) / (ended[-1] - ended[0])


async def backlog(site: Site, count: int) -> Figure:
    """Measure whether a worker with a limit for each owner slows down as the runs of one owner pile up."""
    # The best of three each: other processes of the machine only ever slow a worker down.
    small = max([await rate_with_backlog(site, _SMALL_BACKLOG) for _ in range(3)])
    large = max([await rate_with_backlog(site, count) for _ in range(3)])
    details = (
        f"{small:.0f} runs/s with {_SMALL_BACKLOG} waiting, {large:.0f} with {count:,}: {100 * large / small:.0f} %"
    )
    return Figure(100 * large / small, details)


async def behind_flood(site: Site, count: int) -> Figure:
    """Measure how long the run of an owner waits while very many of another one wait."""
    async with site.new_runner() as runner:
        waits = list[float]()
        await fill(runner, count)
        with site.workers(1, *_PER_OWNER):
            for _ in range(10):
                called = time.time()
                run_id = await runner.submit("hi", owner="quick")
                await finished(runner._require_store("benchmark"), [run_id])
                waits.append(await first_event(runner, run_id, AgentStarted) - called)
    return percentiles(waits, share=1.0)


async def take_over(site: Site, count: int) -> Figure:
    """Measure how long a run of a killed worker waits for another worker."""
    async with site.new_runner() as runner:
        store, waits = runner._require_store("benchmark"), list[float]()
        for _ in range(count):
            with site.workers(1) as (victim,):
                run_id = await runner.submit("long")

                async def has_begun(run_id: str = run_id) -> bool:
                    return any(isinstance(event, StepCompleted) for event in await runner.runs.events(run_id))

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
                    await runner.runs.cancel(run_id)
                    await finished(store, [run_id])
    return percentiles(waits, share=1.0)


class Measurement(NamedTuple):
    """Something to measure, with the number of runs for the engine with limits, the others, and a quick look."""

    title: str
    measure: Callable[[Site, int], Coroutine[Any, Any, Figure]]
    limit: Limit
    runs: int
    runs_of_others: int
    quick_runs: int
    limited_engines: Sequence[str] = ("postgres",)


MEASUREMENTS = {
    "submit": Measurement("submit → first event", submit_to_first_event, Limit(30, "p99 ≤ 30 ms"), 300, 100, 50),
    "answer": Measurement("answer → resumed", answer_to_resumed, Limit(40, "p99 ≤ 40 ms"), 200, 100, 40),
    "throughput": Measurement(
        f"three workers, {CALLS} calls of {CALL_SECONDS:g} s", throughput, Limit(85, "≥ 85 %", True), 600, 120, 120
    ),
    "owner": Measurement("start of another owner's run", other_owner, Limit(500, "max ≤ 500 ms"), 30, 0, 10),
    "flood": Measurement(
        "start behind a flood of another owner",
        behind_flood,
        Limit(1000, "max ≤ 1,000 ms"),
        10_000,
        0,
        2000,
        ("postgres", "local"),
    ),
    "backlog": Measurement(
        "throughput with a backlog", backlog, Limit(80, "≥ 80 %", True), 10_000, 0, 2000, ("postgres", "local")
    ),
    "takeover": Measurement(
        f"take-over after kill -9, lease {LEASE:g} s",
        take_over,
        Limit(1000 * LEASE + 5000, "max ≤ lease + 5 s"),
        3,
        1,
        1,
    ),
}


def measure_all(engine: str, names: Sequence[str], *, quick: bool) -> Iterator[tuple[str, str, str, str]]:
    """Measure one engine; yield a row of the table for each measurement."""
    for name in names:
        chosen = MEASUREMENTS[name]
        has_limits = engine in chosen.limited_engines
        runs = chosen.runs if has_limits else chosen.runs_of_others
        if quick:
            runs = min(runs, chosen.quick_runs)
        if runs == 0:
            continue
        with ExitStack() as stack:
            figure = asyncio.run(chosen.measure(Site(engine, stack), runs))
        verdict = ("PASS" if chosen.limit.is_met(figure.value) else "FAIL") if has_limits else ""
        yield chosen.title, figure.details, chosen.limit.text if has_limits else "", verdict


@click.command()
@click.option("--engine", "engines", multiple=True, type=click.Choice(ENGINES), help="Only this one; may be repeated.")
@click.option("--quick", is_flag=True, help="Fewer runs.")
@click.option("--only", multiple=True, type=click.Choice([*MEASUREMENTS]), help="Only this one; may be repeated.")
def main(engines: tuple[str, ...], quick: bool, only: tuple[str, ...]) -> None:
    """Measure the workers of each engine: latency, throughput, limits and take-over."""
    begun, has_failed = time.monotonic(), False
    for engine in engines or ENGINES:
        for title, details, limit, verdict in measure_all(engine, only or [*MEASUREMENTS], quick=quick):
            click.echo(f"{engine:<9} {title:<36} {details:<52} {limit:<18} {verdict}".rstrip())
            has_failed = has_failed or verdict == "FAIL"
    click.echo(f"took {time.monotonic() - begun:.0f} s; the limits are for a quiet machine")
    sys.exit(has_failed)


main()
