"""`baton runs`: what is in a store, for people and for programs."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from time import time
from typing import Any, Literal, TypeVar

import click
from msgspec.structs import asdict
from rich.console import Console

from ..agents import AgentContext, agent
from ..errors import RunError
from ..events import Event, InterruptRaised, RunStarted, encode_log
from ..log import Log
from ..messages import text_of
from ..runner import Runner, usage_from_events
from ..runner.result import to_interrupt
from ..stores import RunRecord, Store
from ..testing.likeness import line_of
from .ask import format_interrupt
from .show import Screen
from .start import pairs_from
from .store import record_of, store_at
from .wording import printable

T = TypeVar("T")

_MOST_AT_ONCE = 500


def list_runs(where: str, *, status: Sequence[Any], thread: str | None, limit: int, as_json: bool) -> None:
    """Print what is known about the newest runs."""

    async def read(store: Store) -> tuple[list[RunRecord], bool]:
        records: list[RunRecord] = []
        after = ""
        while len(records) < limit:
            some = min(limit - len(records), _MOST_AT_ONCE)
            page = await store.list(status=status or None, thread=thread, limit=some, cursor=after)
            records += page.records
            after = page.next_cursor
            if not after:
                break
        return records, bool(after)

    records, has_more = _with_store(where, read)
    if as_json:
        for record in records:
            click.echo(json.dumps(_as_json(record), ensure_ascii=False))
        return
    rows = [("RUN", "STATUS", "THREAD", "EVENTS", "UPDATED"), *map(_row, records)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows if records else ():
        cells = [cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)]
        click.echo(f"{'  '.join(cells)}  {row[4]}")
    if not records:
        click.echo("no such runs" if status or thread else "no runs", err=True)
    elif has_more:
        click.echo(f"… and more; --limit {limit * 2} shows some of them", err=True)


def show_run(where: str, run_id: str, *, form: Literal["text", "events", "json"]) -> None:
    """Print a run as a conversation, as numbered events, or as its log."""

    async def read(store: Store) -> tuple[RunRecord, list[Event]]:
        record = await record_of(store, run_id)
        return record, await log_only_runner(store).events(run_id)

    record, events = _with_store(where, read)
    if form == "json":
        click.echo(encode_log(events), nl=False)
    elif form == "events":
        width = len(str(len(events)))
        for number, event in enumerate(events, start=1):
            click.echo(printable(f"{number:>{width}}  {line_of(event)}"))
    else:
        _show(record, events)


def fork_run(where: str, run_id: str, *, at: int | None, edits: Sequence[str], new_id: str | None) -> None:
    """Make the new run, and print its id."""
    edit = pairs_from(edits, option="--edit")

    async def fork(store: Store) -> str:
        await record_of(store, run_id)
        return await log_only_runner(store).fork(run_id, at=at, edit=edit, run_id=new_id)

    click.echo(_with_store(where, fork))


def remove_runs(where: str, run_ids: Sequence[str], *, is_sure: bool) -> None:
    """Forget these runs, unless one of them is not there or is being driven."""

    async def check(store: Store) -> None:
        for run_id in run_ids:
            record = await record_of(store, run_id)
            if record.status == "running" and record.lease_until > time():
                raise RunError(f"run `{run_id}` is under way; cancel it, or wait until it has ended")

    async def remove(store: Store) -> None:
        for run_id in run_ids:
            await store.delete(run_id)

    _with_store(where, check)
    what = f"run {run_ids[0]}" if len(run_ids) == 1 else f"{len(run_ids)} runs"
    if is_sure or click.confirm(f"forget {what} for good?"):
        _with_store(where, remove)
        click.echo(f"forgot {what}", err=True)


def log_only_runner(store: Store) -> Runner[Any, Any]:
    """A runner for what needs no team: reading and copying logs."""

    @agent("clerk", description="Drives nothing.")
    async def nobody(ctx: AgentContext[Any]) -> None:
        raise RunError("the clerk of a store drives no runs")

    return Runner(nobody, store=store)


def _with_store(where: str, work: Callable[[Store], Awaitable[T]]) -> T:
    async def work_and_close() -> T:
        store = store_at(where)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(work_and_close())


def _show(record: RunRecord, events: Sequence[Event]) -> None:
    screen = Screen(Console(highlight=False))
    thread = f" · thread {record.thread}" if record.thread else ""
    screen.line(f"run {record.run_id} · {_status(record)}{thread} · {_moment(record.created_at)}", "dim")
    for event in events:
        if isinstance(event, RunStarted):
            if event.forked_from:
                screen.line(f"forked from {event.forked_from}", "dim")
            for message in event.input:
                screen.line(f"› {text_of(message.content)}", "bold")
        elif isinstance(event, InterruptRaised):
            screen.line(f"  ? {format_interrupt(to_interrupt(event))}", "yellow")
        screen.show(event)
    screen.end_line()
    for id, asked in Log(events).open_questions().items():
        screen.line(f"waits for an answer to {id}: {format_interrupt(to_interrupt(asked))}", "bold yellow")
    screen.usage(usage_from_events(events).total)


def _row(record: RunRecord) -> tuple[str, str, str, str, str]:
    events = str(max(record.seq - 1, 0))
    return record.run_id, _status(record), record.thread or "-", events, _moment(record.updated_at)


def _as_json(record: RunRecord) -> dict[str, Any]:
    return {**asdict(record), "is_driven": _is_driven(record)}


def _status(record: RunRecord) -> str:
    return "running, by nobody" if record.status == "running" and not _is_driven(record) else record.status


def _is_driven(record: RunRecord) -> bool:
    return record.status == "running" and record.lease_until > time()


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
