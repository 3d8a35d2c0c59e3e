"""`python -m benchmarks`: measure, print, write the JSON, and on request fail when a budget is broken."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import click

from benchmarks import report
from benchmarks.budgets import checks
from benchmarks.cold_import import ImportFailed, import_cost
from benchmarks.contender import BARE, BATON, PEER_PACKAGES, PEERS, PLAIN, Contender
from benchmarks.contract.environments import python_with
from benchmarks.database import open_database, postgres_option
from benchmarks.durable import measured
from benchmarks.peer_sessions import peer_session
from benchmarks.results import Results
from benchmarks.timing import QUICK, Effort, Gap, measure
from benchmarks.workloads import WORKLOADS

IMPORT, HTTP, DURABLE, A2A, REALTIME, GROWTH = "import", "http", "durable", "a2a", "realtime", "growth"
NAMES = [*(workload.name for workload in WORKLOADS), IMPORT, HTTP, DURABLE, A2A, REALTIME, GROWTH]
LATEST = Path(__file__).parent / "results" / "latest.json"

# A peer is two orders of magnitude away from the bare loop; few rounds settle that.
PEER_EFFORT = Effort(rounds=5, seconds_per_workload=8.0)
QUICK_PEER_EFFORT = Effort(rounds=2, seconds_per_sample=0.01, seconds_per_workload=2.0)


@click.command()
@click.option("--quick", is_flag=True, help="Fewer rounds: good enough to see a slip, not to publish.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Only this workload; may be repeated.")
@click.option("--peers", is_flag=True, help="Also measure other agent libraries, which are installed in .peers.")
@click.option("--peers-python", default=None, help="Use this interpreter, which has them installed.")
@postgres_option
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=LATEST, help="Where to write the result.")
@click.option("--check", is_flag=True, help="Exit with 1 when a budget is broken or a result is wrong.")
def main(
    quick: bool,
    only: tuple[str, ...],
    peers: bool,
    peers_python: str | None,
    postgres: str,
    json_path: Path,
    check: bool,
) -> None:
    """Measure what Baton costs beside a hand-written loop."""
    names = only or tuple(NAMES)
    peers_python = peers_python or (python_with("benchmarks", PEER_PACKAGES) if peers else sys.executable)
    results = Results(versions={BARE.name: f"Python {platform.python_version()}", BATON.name: _version(BATON)})
    _measure_here(results, names, QUICK if quick else Effort())
    if peers:
        _measure_peers(results, names, peers_python, QUICK_PEER_EFFORT if quick else PEER_EFFORT)
    if IMPORT in names:
        _measure_imports(results, peers_python, samples=3 if quick else 7)
    if HTTP in names:
        _measure_http(results, rounds=2 if quick else 7)
    if DURABLE in names:
        _progress("runs that are kept")
        rounds = 5 if quick else 15
        with open_database(postgres) as database:
            url = database() if database is not None else None
            results.durability = measured(rounds, postgres=url, peers_python=peers_python if peers else None)
    if A2A in names:
        _measure_a2a(results, rounds=1 if quick else 5)
    if GROWTH in names:
        with open_database(postgres) as database:
            url = database() if database is not None else None
            _measure_growth(results, rounds=2 if quick else 5, postgres=url)
    if REALTIME in names:
        _measure_realtime(results, is_quick=quick)
    found = checks(results)
    report.show(results, found)
    results.write(json_path, [asdict(budget) | {"holds": budget.holds} for budget in found])
    ours_failed = any(gap.is_error and gap.contender in (BARE.name, BATON.name) for gap in results.gaps)
    if check and (ours_failed or not all(budget.holds for budget in found)):
        sys.exit(1)


def _measure_here(results: Results, names: tuple[str, ...], effort: Effort) -> None:
    for workload in WORKLOADS:
        if workload.name in names:
            _progress(workload.title)
            measurements, gaps = measure(workload, [BARE, *([PLAIN] if workload.has_middleware else []), BATON], effort)
            results.measurements += measurements
            results.gaps += gaps


def _measure_peers(results: Results, names: tuple[str, ...], python: str, effort: Effort) -> None:
    workload_names = [workload.name for workload in WORKLOADS if workload.name in names]
    for peer in PEERS:
        _progress(peer.name)
        session = peer_session(python, peer, workload_names, effort)
        if session.version:
            results.versions[peer.name] = session.version
            results.measurements += session.measurements
            results.gaps += session.gaps
        else:
            click.echo(f"{peer.name} is not installed in {python}: left out", err=True)


def _measure_imports(results: Results, peers_python: str, *, samples: int) -> None:
    for contender in (BARE, BATON, *PEERS):
        if contender.name not in results.versions:
            continue
        python = peers_python if contender in PEERS else sys.executable
        for statement in (contender.import_statement, contender.first_use_statement):
            _progress(statement)
            try:
                results.imports.append(import_cost(python, contender, statement, samples))
            except ImportFailed as failure:
                results.gaps.append(Gap(IMPORT, contender.name, str(failure), is_error=True))
                click.echo(str(failure), err=True)


def _measure_http(results: Results, *, rounds: int) -> None:
    _progress("tool loops over HTTP")
    # Imported here because it brings aiohttp and OpenAI's client along.
    from benchmarks.http.measured import http_costs

    results.http = http_costs(rounds)


def _measure_a2a(results: Results, *, rounds: int) -> None:
    _progress("streams of A2A")
    # Imported here because it brings httpx along.
    from benchmarks.a2a.measured import stream_costs

    results.a2a = stream_costs(rounds)


def _measure_growth(results: Results, *, rounds: int, postgres: str | None) -> None:
    _progress("what grows with the work")
    # Imported here because it brings Starlette along.
    from benchmarks.growth import growth_costs

    results.growth = growth_costs(rounds, postgres=postgres)


def _measure_realtime(results: Results, *, is_quick: bool) -> None:
    _progress("live conversations over a websocket")
    # Imported here because it brings aiohttp, websockets and OpenAI's client along.
    from benchmarks.realtime.measured import realtime_costs

    results.realtime = realtime_costs(is_quick=is_quick)


def _version(contender: Contender) -> str:
    try:
        return metadata.version(contender.distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def _progress(what: str) -> None:
    click.echo(f"… {what}", err=True)


if __name__ == "__main__":
    main()
