"""The tables a person reads: costs, imports, budgets, and a footnote for every cell that has no number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.budgets import Check
from benchmarks.contender import BARE
from benchmarks.results import Results
from benchmarks.timing import Gap, Measurement
from benchmarks.workloads import WORKLOADS, Workload

if TYPE_CHECKING:
    from benchmarks.realtime.measured import RealtimeCosts

WIDTH_WHEN_PIPED = 150
DISTURBED = "~"
MOST_DRIFT = 1.2


def show(results: Results, checks: list[Check]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH_WHEN_PIPED)
    if results.measurements or results.gaps:
        footnotes: list[str] = []
        console.print(_costs(results, footnotes))
        for footnote in footnotes:
            console.print(footnote, markup=False, highlight=False)
        if any(_was_disturbed(results, cell) for cell in results.measurements):
            console.print(f"{DISTURBED} measured while the machine was busy: measure again before quoting it")
    if results.imports:
        console.print(_imports(results))
    if results.http:
        console.print(_http(results))
    if results.durability.costs:
        console.print(_durability(results))
    if results.a2a:
        console.print(_streams(results))
    if results.realtime is not None:
        console.print(_realtime(results.realtime))
    if checks:
        console.print(_budgets(checks))


def _costs(results: Results, footnotes: list[str]) -> Table:
    table = Table(title="CPU microseconds per unit (times the bare loop)", title_justify="left")
    table.add_column("workload")
    table.add_column("per")
    for name, version in results.versions.items():
        table.add_column(f"{name}\n{version}", justify="right")
    for workload in WORKLOADS:
        if any(found.workload == workload.name for found in (*results.measurements, *results.gaps)):
            cells = (_cell(results, workload, name, footnotes) for name in results.versions)
            table.add_row(workload.title, workload.unit, *cells)
    return table


def _cell(results: Results, workload: Workload, contender: str, footnotes: list[str]) -> str:
    found = results.cell(workload.name, contender)
    if found is not None:
        return _number(found) + (f" {DISTURBED}" if _was_disturbed(results, found) else "")
    gap = next((gap for gap in results.gaps if (gap.workload, gap.contender) == (workload.name, contender)), None)
    return "" if gap is None else _footnoted(gap, footnotes)


def _number(cell: Measurement) -> str:
    cost = f"{cell.microseconds:,.2f}" if cell.microseconds < 100 else f"{cell.microseconds:,.0f}"
    if cell.contender == BARE.name:
        return cost
    ratio = f"{cell.ratio:.2f}" if cell.ratio < 10 else f"{cell.ratio:,.0f}"
    return f"{cost} ({ratio}x)"


def _was_disturbed(results: Results, cell: Measurement) -> bool:
    """Return whether the bare loop of this cell was slower or faster than in its column: the machine was busy."""
    bare = results.cell(cell.workload, BARE.name)
    if bare is None:
        return False
    bare_then = cell.microseconds / cell.ratio
    return not 1 / MOST_DRIFT <= bare_then / bare.microseconds <= MOST_DRIFT


def _footnoted(gap: Gap, footnotes: list[str]) -> str:
    footnote = f"{gap.contender}: {gap.reason}"
    numbered = next((line for line in footnotes if line.endswith(f"] {footnote}")), None)
    if numbered is None:
        footnotes.append(f"[{len(footnotes) + 1}] {footnote}")
        numbered = footnotes[-1]
    mark = numbered.split("]")[0] + "]"
    return f"[red]ERROR[/red] \\{mark}" if gap.is_error else f"\\{mark}"


def _streams(results: Results) -> Table:
    table = Table(title="A2A: CPU time of the server for a stream, runs in SQLite", title_justify="left")
    for title in ("tokens", "seconds", "microseconds per token", "chunks"):
        table.add_column(title, justify="right")
    for each in results.a2a:
        chunks = f"{min(each.chunks)}-{max(each.chunks)}"
        table.add_row(f"{each.tokens:,}", f"{each.cost:.3f}", f"{each.per_token * 1e6:.0f}", chunks)
    return table


def _imports(results: Results) -> Table:
    table = Table(title="Cold import", title_justify="left")
    table.add_column("statement")
    table.add_column("CPU s", justify="right")
    table.add_column("MB", justify="right")
    table.add_column("heavy packages loaded")
    for cost in results.imports:
        heavy = ", ".join(cost.heavy_packages) or "none"
        table.add_row(cost.statement, f"{cost.cpu_seconds:.3f}", f"{cost.megabytes:.1f}", heavy)
    return table


def _durability(results: Results) -> Table:
    table = Table(
        title="Runs that are kept: CPU time, wall time where a disk or a server is waited for", title_justify="left"
    )
    table.add_column("what")
    table.add_column("costs", justify="right")
    for cost in results.durability.costs:
        table.add_row(cost.name, f"{cost.value:,.4g} {cost.unit}")
    return table


def _realtime(costs: RealtimeCosts) -> Table:
    table = Table(title="Live conversations over a websocket", title_justify="left")
    table.add_column("what")
    table.add_column("costs", justify="right")
    changes, last = costs.changes, costs.rounds[-1]
    for what, cost in (
        ("a piece of audio that comes: CPU time", f"{costs.heard:.1f} µs"),
        ("a piece of audio that is sent: CPU time", f"{costs.said:.1f} µs"),
        (
            f"{changes.count} transfers: from the call to the new settings, median",
            _ms(changes.since_arguments[0]),
        ),
        ("the same, 99 of 100", _ms(changes.since_arguments[1])),
        ("from the end of the response to the new settings, median", _ms(changes.since_done[0])),
        ("the same, 99 of 100", _ms(changes.since_done[1])),
        ("audio of the user that was lost meanwhile", f"{changes.audio_sent - changes.audio_arrived:,} bytes"),
        (
            f"{last.conversations} conversations at once: spoken and heard",
            f"{last.audio_up:,.0f} s, {last.audio_down:,.0f} s",
        ),
        ("transfers, wall time", f"{last.changes}, {last.seconds:.1f} s"),
        ("CPU time of the process, of the provider's", f"{last.cpu_seconds:.1f} s, {last.provider_cpu_seconds:.1f} s"),
        ("latest piece of audio", f"{last.late * 1000:,.0f} ms late"),
        ("memory at a fifth, at the end", f"{last.megabytes_early:.1f} MB, {last.megabytes_late:.1f} MB"),
        ("memory at the end of each round", ", ".join(f"{each.megabytes_late:.1f} MB" for each in costs.rounds)),
    ):
        table.add_row(what, cost)
    return table


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.2f} ms"


def _http(results: Results) -> Table:
    table = Table(title="200 tool loops at once over HTTP", title_justify="left")
    table.add_column("client")
    table.add_column("CPU µs per request", justify="right")
    table.add_column("requests per second", justify="right")
    for cost in results.http:
        table.add_row(cost.client, f"{cost.cost:,.0f}", f"{cost.throughput:,.0f}")
    return table


def _budgets(checks: list[Check]) -> Table:
    table = Table(title="Budgets of baton", title_justify="left")
    table.add_column("promise")
    table.add_column("measured", justify="right")
    table.add_column("at most", justify="right")
    table.add_column("")
    for check in checks:
        verdict = "[green]PASS[/green]" if check.holds else f"[red]FAIL[/red] {check.note}"
        if check.goal is not None and check.measured > check.goal:
            verdict += f", goal {check.goal:g} {check.unit} missed"
        table.add_row(check.promise, f"{check.measured:.3g} {check.unit}", f"{check.limit:.3g} {check.unit}", verdict)
    return table
