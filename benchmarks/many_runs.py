"""`python -m benchmarks.many_runs`: the plans of PostgreSQL's queries over a million runs, and the HOT updates.

It starts a server of its own, fills the tables by COPY, explains every query of lists, expiry and workers, and renews
leases. It fails if a query scans the table of runs, or reads many more of its rows than it returns, or if fewer than
95 % of the renewals are HOT, from the first one on.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click
import psycopg

from batonkit.stores import Lease, PostgresStore, records
from batonkit.stores.postgres.store import SQL

sys.path.insert(0, str(Path(__file__).parent.parent))

MIN_HOT = 0.95
_ROUNDS = 20
MAX_ROWS_READ = 5000
"""The rows that a query may read; the largest batches that are returned or deleted are of 1,000 rows."""
_UPDATES = """
SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
WHERE relname = 'baton_runs' AND schemaname = current_schema()"""
_COLUMNS = (
    "run_id, status, seq, thread, previous, owner, created_at, updated_at, changed_at, worker, lease_until, "
    "lease_seconds, fence, cancel_requested, team, priority, wake_at, inbox, reader, last_write"
)
Plan = Mapping[str, Any]


def rows(count: int, *, live: int, queued: int, sleeping: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of runs over a year: most have ended, some are live, wait for a worker, or sleep."""
    now, chance = time.time(), random.Random(7)
    for number in range(count):
        created = now - 365 * 86400 * (1 - number / count)
        status, worker, lease_until, wake_at = "completed", f"w{number % 50}", 0.0, 0.0
        position = count - number
        if position <= live:
            status, lease_until = "running", now + 3600
        elif position <= live + queued:
            status, worker = "running", ""
        elif position <= live + queued + sleeping:
            status, wake_at = "suspended", now + chance.uniform(60, 86400)
        elif number % 20 == 0:
            status = chance.choice(("failed", "cancelled", "suspended"))
        owner = f"owner{chance.randrange(count // 20 + 1)}"
        thread = f"thread{number // 4}" if number % 4 == 3 else ""
        ended = (created, created + 5, created + 5)
        yield (
            *(f"run{number:08d}", status, 12, thread, "", owner, *ended, worker, lease_until),
            *(30.0, 1, "", f"team{number % 3}", number % 5, wake_at, "", 1, 0),
        )


def fill(url: str, count: int, **shares: int) -> None:
    """Fill the tables by COPY, and update the planner's statistics."""
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.cursor() as cursor, cursor.copy(f"COPY baton_runs({_COLUMNS}) FROM STDIN") as copy:
            for row in rows(count, **shares):
                copy.write_row(row)
        connection.execute(
            """INSERT INTO baton_runnable SELECT number, owner, team, priority, wake_at FROM baton_runs
            WHERE (status = 'running' AND worker = '') OR (status = 'suspended' AND wake_at > 0)"""
        )
        connection.execute("VACUUM ANALYZE baton_runs")
        connection.execute("VACUUM ANALYZE baton_runnable")


def lists() -> dict[str, tuple[str, Any]]:
    """Return the statements of `Store.list` by their filters, with their values."""

    def page(*, count: bool = False, **filters: Any) -> tuple[str, Any]:
        query = records.parse_filters(cast("Any", {"limit": 50, **filters}))
        columns = f"{records.COLUMNS}, {SQL['now']}"
        return records.page_queries(query, table="baton_runs", columns=columns, mark="%s")[count]

    now = time.time()
    day, long_ago = now - 86400, now - 300 * 86400
    unfinished = ["running", "suspended"]
    return {
        "list": page(),
        "list, page in the middle": page(cursor="500"),
        "list, oldest first": page(oldest_first=True),
        "list by status": page(status=["suspended"]),
        "list by status until": page(status=["failed"], until=long_ago),
        "list running until": page(status=["running"], until=long_ago),
        "list by two statuses": page(status=["failed", "running"]),
        "list unfinished": page(status=unfinished),
        "list unfinished until": page(status=unfinished, until=long_ago),
        "list by owner": page(owner="owner7"),
        "list by owner until": page(owner="owner7", until=long_ago),
        "list by owner and status": page(owner="owner7", status=["failed"]),
        "count of an owner": page(owner="owner7", count=True),
        "list without an owner": page(owner=""),
        "list by thread": page(thread="thread77"),
        "list since": page(since=day),
        "list since, page in the middle": page(since=long_ago, cursor=f"{day} 500"),
        "list since, oldest first": page(since=day, oldest_first=True),
        "list until": page(until=long_ago),
        "list until, oldest first": page(until=long_ago, oldest_first=True),
        "list in a period": page(since=long_ago, until=long_ago + 86400),
        "list by change": page(order_by="changed"),
        "list by change, of an owner": page(order_by="changed", owner="owner7"),
        "list by change since": page(order_by="changed", since=day),
        "list by change until": page(order_by="changed", until=long_ago),
        "list by change, of a status": page(order_by="changed", status=["failed"]),
        "list by change, running": page(order_by="changed", status=["running"]),
        "list for an archive": page(
            order_by="changed", status=records.FINISHED_STATUSES, until=long_ago, oldest_first=True
        ),
    }


def queries() -> dict[str, tuple[str, Any]]:
    """Return the statements of the store by what they are for, with their values."""
    worker = {"limit": 100, "reader": 1}
    return {
        **lists(),
        "expire": (SQL["expire"], {"status": [*records.FINISHED_STATUSES], "older_than": 300 * 86400.0}),
        "expire suspended": (SQL["expire"], {"status": ["suspended"], "older_than": 300 * 86400.0}),
        "runnable": (SQL["runnable"], {**worker, "teams": None}),
        "runnable of a team": (SQL["runnable_by_team"], {**worker, "teams": ["team1"]}),
        "record": (SQL["record"], {"run_id": "run00000500"}),
        "idle threads": (SQL["idle_threads"], {"limit": 100}),
        "erase an owner": (SQL["erase_owner"], {"owner": "owner7", "origin": "owner:owner7"}),
    }


def scans(plan: Plan) -> Iterator[str]:
    """Yield the tables that a plan reads from one end to the other."""
    if plan["Node Type"] == "Seq Scan" and plan["Relation Name"] in ("baton_runs", "baton_pieces", "baton_runnable"):
        yield plan["Relation Name"]
    for part in plan.get("Plans", ()):
        yield from scans(part)


def rows_read(plan: Plan) -> int:
    """Return the number of rows that a plan has read from tables and indexes."""
    own = 0
    if "Relation Name" in plan and "Scan" in plan["Node Type"]:
        removed = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
        own = round((plan["Actual Rows"] + removed) * plan["Actual Loops"])
    return own + sum(map(rows_read, plan.get("Plans", ())))


def explain(url: str, *, show: bool) -> tuple[dict[str, tuple[float, int]], list[str]]:
    """Execute every query; return milliseconds and rows read by query, and the queries that scan a table."""
    took: dict[str, tuple[float, int]] = {}
    scanning: list[str] = []
    with psycopg.connect(url) as connection:
        for name, (statement, values) in queries().items():
            analyze = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}".encode()
            # Twice: the first time it reads the pages from disk.
            connection.execute(analyze, values)
            connection.rollback()
            found = connection.execute(analyze, values).fetchone()
            connection.rollback()
            assert found is not None
            (outcome,) = cast("Sequence[Plan]", found[0])
            took[name] = outcome["Execution Time"], rows_read(outcome["Plan"])
            if took[name][1] > MAX_ROWS_READ:
                scanning.append(f"{name} reads {took[name][1]:,} rows")
            if tables := {*scans(outcome["Plan"])}:
                scanning.append(f"{name} scans {', '.join(sorted(tables))}")
            if show:
                text = connection.execute(f"EXPLAIN {statement}".encode(), values).fetchall()
                click.echo(f"{name}: {took[name][0]:.2f} ms, {took[name][1]:,} rows read")
                click.echo("\n".join(f"    {line}" for (line,) in text))
                connection.rollback()
    return took, scanning


async def renew(url: str, live: int) -> tuple[float, float]:
    """Renew the leases of runs that were never updated; return the share of HOT updates, and milliseconds per round."""
    with psycopg.connect(url, autocommit=True) as connection:
        held = connection.execute(
            "SELECT run_id, worker FROM baton_runs WHERE status = 'running' AND worker <> ''"
        ).fetchall()
        leases = [Lease(run_id, worker, 1, 0.0) for run_id, worker in held]
        assert len(leases) == live
        store = PostgresStore(url)
        begun = time.perf_counter()
        for _ in range(_ROUNDS):
            assert len(await store.renew(leases, ttl=3600)) == live
        seconds = time.perf_counter() - begun
        await store.close()
        # The server adds up what a session did when the session is idle.
        while True:
            total = connection.execute(_UPDATES).fetchone()
            if total is not None and total[0] >= live * _ROUNDS:
                return total[1] / total[0], seconds / _ROUNDS * 1000
            await asyncio.sleep(0.1)


async def measure(url: str, count: int, *, show: bool) -> tuple[dict[str, tuple[float, int]], list[str], float]:
    """Fill a database; return times and rows read of queries, what is wrong, and the share of HOT updates."""
    live, queued, sleeping = min(2000, count // 10), min(20_000, count // 10), min(20_000, count // 10)
    store = PostgresStore(url)
    await store.runnable()
    await store.close()
    begun = time.perf_counter()
    fill(url, count, live=live, queued=queued, sleeping=sleeping)
    if show:
        click.echo(f"filled with {count:,} runs in {time.perf_counter() - begun:.0f} s")
    took, problems = explain(url, show=show)
    hot, milliseconds = await renew(url, live)
    if show:
        click.echo(f"renewing {live} leases: {milliseconds:.1f} ms a round, {hot:.1%} HOT updates")
    if hot < MIN_HOT:
        problems.append(f"{hot:.1%} of the renewals are HOT updates; at least {MIN_HOT:.0%} must be")
    return took, problems, hot


@click.command()
@click.option("--runs", default=1_000_000, show_default=True, help="The number of runs.")
def main(runs: int) -> None:
    """Check the plans of PostgreSQL's queries over many runs, and the share of HOT updates."""
    from tests.postgres import PostgresServer

    server = PostgresServer()
    server.start()
    try:
        took, problems, _ = asyncio.run(measure(server.url, runs, show=True))
    finally:
        server.stop()
    click.echo()
    for name, (milliseconds, read) in took.items():
        click.echo(f"{name:<32} {milliseconds:>9.2f} ms {read:>9,} rows read")
    for problem in problems:
        click.echo(f"PROBLEM: {problem}", err=True)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
