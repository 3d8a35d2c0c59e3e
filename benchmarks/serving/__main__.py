"""`python -m benchmarks.serving`: the CPU time that a server spends on a short run, and how long clients wait for it.

A run calls a tool and answers in three pieces. Each app has a server in a process of its own, which says how much CPU
time it has used. `starlette` streams the frames of an AG-UI run and runs nothing: it is the scale.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from uuid import uuid4

import click

from benchmarks.database import open_database, postgres_option
from benchmarks.serving.client import Connection, connected, cpu_seconds, run_agui, send_runs

CONNECTIONS = 8
RUNS = 200
"""In each round, for each app."""
CLIENTS_AT_ONCE = 200
MODEL_SECONDS = 1.0


@contextmanager
def server(app: str, store: str, seconds: float = 0.0) -> Generator[int]:
    """Start a server in a process; yields its port."""
    command = [sys.executable, "-m", "benchmarks.serving.server", app, store, str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


async def record_frames() -> bytes:
    """Return the frames of an AG-UI run."""
    with server("agui", "memory:") as port:
        async with connected(port, 1) as [connection]:
            received = await run_agui(connection, 0)
    # Lines with the length of a chunk alternate with chunks.
    return b"".join(received.split(b"\r\n")[1::2])


async def cpu_times(ports: dict[str, int], rounds: int) -> dict[str, list[float]]:
    """Return the CPU milliseconds of a run for each server, by round; the first one warms up."""
    numbers = count(1)
    costs: dict[str, list[float]] = {name: [] for name in ports}
    for number in range(rounds + 1):
        for name in list(ports) if number % 2 == 0 else reversed(ports):
            async with connected(ports[name], CONNECTIONS) as connections:
                before = await cpu_seconds(connections[0])
                await send_runs(name.split()[0], connections, RUNS, numbers)
                used = await cpu_seconds(connections[0]) - before
            if number:
                costs[name].append(used * 1e3 / RUNS)
    return costs


async def added_latency(app: str, port: int) -> tuple[float, float]:
    """Return the median and 95th percentile of the milliseconds added to the model call."""
    numbers = count(1)

    async def send_later(connection: Connection, delay: float) -> list[float]:
        # Clients do not begin in the same moment.
        await asyncio.sleep(delay)
        return await send_runs(app, [connection], 3, numbers)

    async with connected(port, CLIENTS_AT_ONCE) as connections:
        delays = [MODEL_SECONDS * place / CLIENTS_AT_ONCE for place in range(CLIENTS_AT_ONCE)]
        waits = await asyncio.gather(*map(send_later, connections, delays))
    added = [(seconds - MODEL_SECONDS) * 1e3 for wait in waits for seconds in wait]
    return statistics.median(added), statistics.quantiles(added, n=20)[-1]


def show_cpu_times(costs: dict[str, list[float]]) -> None:
    click.echo("CPU time of the server for a run (times the bare Starlette app)")
    bare = costs["starlette"]
    for name, each in costs.items():
        ratio = statistics.median(cost / scale for cost, scale in zip(each, bare, strict=True))
        click.echo(f"  {name:20} {statistics.median(each):6.2f} ms ({ratio:.1f}x)")


@click.command()
@click.option("--rounds", default=7, help="How often each app is measured.")
@postgres_option
@click.option("--latency/--no-latency", default=True, help=f"Also measure {CLIENTS_AT_ONCE} clients at once.")
def main(rounds: int, postgres: str, latency: bool) -> None:
    """Measure what a run costs over HTTP."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="baton-bench-")))
        frames = folder / "frames"
        frames.write_bytes(asyncio.run(record_frames()))
        stores: dict[str, Callable[[], str]] = {
            "memory": lambda: "memory:",
            "SQLite": lambda: str(folder / f"{uuid4().hex}.db"),
        }
        database = stack.enter_context(open_database(postgres))
        if database is not None:
            stores["PostgreSQL"] = database
        with ExitStack() as servers:
            ports = {"starlette": servers.enter_context(server("starlette", str(frames)))}
            for store, address in stores.items():
                for app in ("agui", "api"):
                    ports[f"{app} {store}"] = servers.enter_context(server(app, address()))
            show_cpu_times(asyncio.run(cpu_times(ports, rounds)))
        if latency:
            click.echo(f"{CLIENTS_AT_ONCE} clients at once: time added to a model call of {MODEL_SECONDS:g} s")
            for app, store in (("starlette", str(frames)), ("agui", "memory:"), ("api", "memory:")):
                with server(app, store, MODEL_SECONDS) as port:
                    median, late = asyncio.run(added_latency(app, port))
                click.echo(f"  {app:20} {median:6.1f} ms, 95 of 100 below {late:.1f} ms")


if __name__ == "__main__":
    main()
