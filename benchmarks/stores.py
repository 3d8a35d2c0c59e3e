"""`python -m benchmarks.stores`: what a store adds to an append, what a load takes, and bytes kept per event.

An append is compared with the least that its database can do, in turns within one process: a commit of one row for
SQLite, the same row inserted by itself for PostgreSQL. Wall time, because most of it is the database's.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import click

from batonkit.stores import KeyValueStore, MemoryStore, PostgresStore, SQLiteStore, Store
from benchmarks.database import open_database, postgres_option

LINE = b'{"type":"said","key":"a1/m3","at":1767225600.0,"agent":"Weather","text":"' + b"x" * 180 + b'"}'
SIZES = (100, 1_000, 10_000)
ROUNDS, APPENDS = 15, 200

Step = Callable[[], Awaitable[None]]


class Dictionary:
    """The least that a KeyValueStore can be given."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.blobs.get(key)

    def set(self, key: str, value: bytes) -> None:
        self.blobs[key] = value


async def appending(store: Store) -> Step:
    """One append after the other to a run of its own."""
    run_id, seq = uuid4().hex, 0
    await store.create(run_id, [])

    async def append() -> None:
        nonlocal seq
        await store.append(run_id, seq, [LINE], fence=1)
        seq += 1

    return append


def committing(path: Path, *, synchronous: str) -> Step:
    """One row for each commit, with nothing around it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("CREATE TABLE rows(number INTEGER PRIMARY KEY, line BLOB)")

    async def commit() -> None:
        connection.execute("INSERT INTO rows(line) VALUES (?)", (LINE,))

    return commit


async def inserting(url: str) -> Step:
    """One row for each statement over a connection that stays open."""
    from psycopg import AsyncConnection

    connection = await AsyncConnection.connect(url, autocommit=True)
    await connection.execute("CREATE TEMPORARY TABLE rows(number bigint PRIMARY KEY, line bytea)")
    number = 0

    async def insert() -> None:
        nonlocal number
        number += 1
        await connection.execute("INSERT INTO rows VALUES (%s, %s)", (number, LINE))

    return insert


async def beside(name: str, ours: Step, bare: Step, *, appends: int) -> None:
    """Print the medians over rounds in which both take turns."""
    samples: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(ROUNDS):
        for kind in ("ours", "bare") if number % 2 else ("bare", "ours"):
            step = ours if kind == "ours" else bare
            started = time.perf_counter()
            for _ in range(appends):
                await step()
            samples[kind].append((time.perf_counter() - started) / appends * 1e6)
    ours_taken, bare_taken = statistics.median(samples["ours"]), statistics.median(samples["bare"])
    over = statistics.median(a - b for a, b in zip(samples["ours"], samples["bare"], strict=True))
    click.echo(f"{name:<24}{ours_taken:>10.0f} µs{bare_taken:>10.0f} µs{over:>+10.0f} µs")


async def kept(name: str, open: Callable[[], Store], size_of: Callable[[], Awaitable[int]]) -> None:
    """Print bytes per event of runs of different lengths, and how long loading takes."""
    row = f"{name:<24}"
    for events in SIZES:
        store = open()
        before = await size_of()
        run_id = uuid4().hex
        await store.create(run_id, [])
        for seq in range(0, events, 2):
            await store.append(run_id, seq, [LINE, LINE])
        took: list[float] = []
        for _ in range(7):
            started = time.perf_counter()
            assert len(await store.load(run_id)) == events
            took.append((time.perf_counter() - started) * 1e3)
        await store.close()
        row += f"{(await size_of() - before) / events:>8.0f} B{min(took):>8.2f} ms"
    click.echo(row)


async def measure(folder: Path, url: str) -> None:
    """All of it."""
    async with AsyncExitStack() as stack:
        memory, normal = MemoryStore(), SQLiteStore(folder / "normal.db")
        power = SQLiteStore(folder / "power.db", durability="power")
        for store in (normal, power):
            stack.push_async_callback(store.close)
        click.echo(f"{'one append':<24}{'store':>13}{'bare commit':>13}{'over it':>13}")
        bare = committing(folder / "bare.db", synchronous="NORMAL")
        await beside("memory", await appending(memory), bare, appends=APPENDS)
        await beside("sqlite, process", await appending(normal), bare, appends=APPENDS)
        bare = committing(folder / "full.db", synchronous="FULL")
        await beside("sqlite, power", await appending(power), bare, appends=APPENDS // 10)
        await beside("key-value", await appending(KeyValueStore(Dictionary())), bare, appends=APPENDS // 10)
        if url:
            postgres = PostgresStore(url)
            stack.push_async_callback(postgres.close)
            await beside("postgres", await appending(postgres), await inserting(url), appends=APPENDS)
        await measure_space(folder, url)


async def measure_space(folder: Path, url: str) -> None:
    """Bytes and loading, two events to an append."""
    click.echo(f"\n{f'per event of {len(LINE)} B, load':<24}" + "".join(f"{size:>18,} " for size in SIZES))
    path, blobs = folder / "space.db", Dictionary()

    async def of_file() -> int:
        return path.stat().st_size if path.exists() else 0

    async def of_blobs() -> int:
        return sum(map(len, blobs.blobs.values()))

    async def of_tables() -> int:
        from psycopg import AsyncConnection

        async with await AsyncConnection.connect(url, autocommit=True) as connection:
            found = await connection.execute(
                "SELECT coalesce(pg_total_relation_size(to_regclass('baton_pieces')), 0)::bigint"
            )
            return (await found.fetchall())[0][0]

    await kept("sqlite", lambda: SQLiteStore(path), of_file)
    await kept("key-value", lambda: KeyValueStore(blobs), of_blobs)
    if url:
        await kept("postgres", lambda: PostgresStore(url), of_tables)


@click.command()
@postgres_option
def main(postgres: str) -> None:
    """Measure stores."""
    with tempfile.TemporaryDirectory() as folder, open_database(postgres) as database:
        asyncio.run(measure(Path(folder), database() if database is not None else ""))


if __name__ == "__main__":
    main()
