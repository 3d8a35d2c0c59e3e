"""`python -m benchmarks.contract`: run the probes on Baton and on other frameworks, record and print the outcomes."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import click

from benchmarks.contract.environments import ENVIRONMENTS, python_of, run_probes
from benchmarks.contract.table import full_table, load, save, write_page


@click.command()
@click.option("--only", multiple=True, type=click.Choice([*ENVIRONMENTS]), help="Only this framework; may be repeated.")
@click.option("--recorded", is_flag=True, help="Run nothing; use the recorded outcomes.")
@click.option("--upgrade", is_flag=True, help="Install the newest versions first.")
@click.option("--page", is_flag=True, help="Write the tables of docs/compare.md.")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Frameworks at once.")
def main(only: tuple[str, ...], recorded: bool, upgrade: bool, page: bool, jobs: int) -> None:
    """Run the handoff probes, each framework in its own environment, with a scripted model."""
    results = load()
    names = [] if recorded else [*(only or ENVIRONMENTS)]

    def observed(name: str) -> dict[str, Any] | None:
        try:
            found = run_probes(name, python_of(name, upgrade=upgrade))
        except subprocess.CalledProcessError as error:
            click.echo(f"{name} could not be installed ({error}): left out", err=True)
            return None
        click.echo(f"… {name} {found['version']}", err=True)
        return found

    with ThreadPoolExecutor(jobs) as pool:
        for name, found in zip(names, pool.map(observed, names), strict=True):
            if found is not None:
                results["peers"][name], results["date"] = found, datetime.now(UTC).date().isoformat()
                save(results)
    shown = {**results, "peers": {name: peer for name, peer in results["peers"].items() if not only or name in only}}
    click.echo(full_table(shown))
    if page:
        write_page(results)


if __name__ == "__main__":
    main()
