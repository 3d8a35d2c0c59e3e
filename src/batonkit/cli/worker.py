"""The command `baton worker`: drives whatever becomes runnable in a store."""

import asyncio
import signal
import sys
from contextlib import AsyncExitStack, suppress
from typing import Any

import click

from ..errors import SetupError
from ..runs import Runner
from ..stores import MemoryStore, resolve_store
from ..stores.parts import innermost_store
from ..worker import Concurrency, Worker
from ..worker.engines import ENGINES, resolve_engine
from ..worker.health import serve_health
from . import cli_options as options
from .cli_errors import FAILED, TargetError
from .cli_options import COUNT, POSITIVE
from .output import rewrite_line, write
from .targets import load_target

_STATUS_INTERVAL = 1.0


def make_runner(target: str, *, store: str | None, model: str | None, lease: float | None) -> Runner[Any, Any]:
    """Return the target with the store of --store, or a runner for the target agent."""
    loaded = load_target(target)
    if isinstance(loaded, Runner):
        if model is not None or lease is not None:
            given = "--model" if model is not None else "--lease"
            raise TargetError(f"`{target}` is a Runner; set what {given} is for in its arguments, or name the agent")
        runner = loaded if store is None else loaded.clone(store=store)
    else:
        runner = Runner(loaded, model=model, store=None if store is None else resolve_store(store, lease_seconds=lease))
    try:
        runs = runner._require_store("baton worker")
    except SetupError:
        raise TargetError("baton worker needs a store: --store runs.db, or --store postgresql://…") from None
    if isinstance(innermost_store(runs), MemoryStore):
        raise TargetError(
            "no other process can submit runs to a store in memory; use --store runs.db or postgresql://…"
        )
    return runner


class StatusLine:
    """One line on stderr about the worker, rewritten in place if stderr is a terminal."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._is_terminal = sys.stderr.isatty()

    def text(self) -> str:
        """Return the numbers of the worker."""
        worker = self._worker
        counts = worker.counts
        parts = [f"driving {len(worker.driving)} of {worker.concurrency}", f"{counts.completed} completed"]
        named = ("suspended", "failed", "cancelled", "postponed", "parked", "released")
        parts += [f"{getattr(counts, name)} {name}" for name in named if getattr(counts, name)]
        problem = worker.engine.problem()
        return ", ".join(parts) + (f" ({problem})" if problem else "")

    async def refresh(self) -> None:
        """Rewrite the line until the task is cancelled; does nothing without a terminal."""
        while self._is_terminal:
            rewrite_line(self.text())
            await asyncio.sleep(_STATUS_INTERVAL)

    def end(self) -> None:
        """Print the last numbers."""
        if self._is_terminal:
            rewrite_line("")
        write(f"worker stopped: {self.text()}", err=True)


async def run_worker(worker: Worker, *, health: int | None, health_host: str) -> None:
    """Run a worker until SIGTERM or Ctrl-C; a second signal ends the wait for turns in flight."""
    loop = asyncio.get_running_loop()
    status = StatusLine(worker)
    # Fails here, with a message, if the store cannot be reached.
    await worker.store.list(limit=1)
    async with AsyncExitStack() as stack:
        # Windows has no signal handlers for loops; there, Ctrl-C ends the program at once, as a crash would.
        with suppress(NotImplementedError):
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, worker.stop)
        notice = f"worker: {worker.store!r}, engine {worker.engine.name}, {worker.concurrency} runs at once"
        if health is not None:
            port = await stack.enter_async_context(serve_health(worker, host=health_host, port=health))
            notice += f", health at http://{health_host}:{port}/healthz"
        write(notice, err=True)
        refreshing = asyncio.create_task(status.refresh())
        try:
            await worker.run()
        finally:
            refreshing.cancel()
            status.end()
            await worker.runner.close()


@click.command("worker")
@options.target
@options.store
@options.model
@options.number_option("--concurrency", 20, "N", "Drive at most N runs at once.", kind=COUNT)
@options.number_option("--drain", 10.0, "SECONDS", "Let turns in flight finish for this long when it is stopped.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    help="What finds the runs: `postgres` (default on PostgreSQL), `temporal`, or `local` for any store.",
)
@click.option("--address", metavar="HOST:PORT", help="The Temporal server; needs --engine temporal.")
@click.option("--lease", type=POSITIVE, metavar="SECONDS", help="Others take runs over after this long (default: 30).")
@click.option(
    "--per-owner",
    type=COUNT,
    metavar="N",
    help="Drive at most N runs of one owner at once: in all workers with the engine `postgres`, here with `local`.",
)
@click.option("--total", type=COUNT, metavar="N", help="Drive at most N runs at once, like --per-owner for all owners.")
@options.number_option("--max-deaths", 5, "N", "Fail a run after N workers died while they drove it.", kind=COUNT)
@click.option("--accept-changes", is_flag=True, help="Also drive runs that another version of the team started.")
@click.option("--health", type=click.IntRange(0, 65535), metavar="PORT", help="Serve /healthz and /metrics here.")
@click.option("--health-host", default="127.0.0.1", show_default=True, help="The address for --health.")
@options.debug
def worker_command(
    *,
    target: str,
    store: str | None,
    model: str | None,
    lease: float | None,
    concurrency: int,
    drain: float,
    engine: str | None,
    address: str | None,
    per_owner: int | None,
    total: int | None,
    max_deaths: int,
    accept_changes: bool,
    health: int | None,
    health_host: str,
) -> int | None:
    """Drive the stored runs of a team.

    Any number of workers may share a store: PostgreSQL for several machines, a file for one. SIGTERM lets turns in
    flight finish and leaves the runs to other workers.

    \b
    Examples:
      baton worker desk:runner --store runs.db
      baton worker desk:runner --store postgresql://user@host/database --concurrency 50
      baton worker desk:runner --store postgresql://user@host/database --engine temporal --address localhost:7233
      baton worker desk:router --store runs.db --health 9100
    """
    runner = make_runner(target, store=store, model=model, lease=lease)
    runs = runner._require_store("baton worker")

    async def work() -> None:
        worker = Worker(
            runner,
            engine=resolve_engine(engine, runs, address=address),
            concurrency=concurrency,
            drain=drain,
            limits=Concurrency(per_owner=per_owner, total=total),
            max_deaths=max_deaths,
            accept_changes=accept_changes,
        )
        await run_worker(worker, health=health, health_host=health_host)

    try:
        asyncio.run(work())
    except KeyboardInterrupt:
        return FAILED
    return None
