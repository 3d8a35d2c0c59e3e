"""The commands `baton runs`: list, show, resume, fork and remove stored runs."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from time import time
from typing import Any, Literal, TypeVar

import click
from msgspec.structs import asdict
from rich.console import Console

from ..agents import AgentContext, agent
from ..errors import AnswerError, RunError, quote_names
from ..events import Event, InterruptRaised, RunStarted, encode_log
from ..log import Log
from ..messages import text_of
from ..runner import Interrupt, Runner, usage_from_events
from ..runner.result import to_interrupt
from ..stores import RunRecord, Store
from ..testing.transcripts import format_event
from .display import Screen, ask_interrupts, format_interrupt, parse_reply, printable
from .errors import SUSPENDED, warnings_on_stderr
from .options import debug, is_debugging, json_result, model, quiet, run_arguments, target
from .run import OutputFormat, RunPrinter, drive, print_interrupts
from .targets import RunSetup, default_model, get_record, open_store, parse_pairs, set_up_run

T = TypeVar("T")

_PAGE_SIZE = 500


def list_runs(location: str, *, status: Sequence[Any], thread: str | None, limit: int, as_json: bool) -> None:
    """Print the newest runs."""

    async def read(store: Store) -> tuple[list[RunRecord], bool]:
        records: list[RunRecord] = []
        after = ""
        while len(records) < limit:
            size = min(limit - len(records), _PAGE_SIZE)
            page = await store.list(status=status or None, thread=thread, limit=size, cursor=after)
            records += page.records
            after = page.next_cursor
            if not after:
                break
        return records, bool(after)

    records, has_more = _with_store(location, read)
    if as_json:
        for record in records:
            click.echo(json.dumps(_to_json(record), ensure_ascii=False))
        return
    rows = [("RUN", "STATUS", "THREAD", "EVENTS", "UPDATED"), *map(_format_row, records)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows if records else ():
        cells = [cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)]
        click.echo(f"{'  '.join(cells)}  {row[4]}")
    if not records:
        click.echo("no matching runs" if status or thread else "no runs", err=True)
    elif has_more:
        click.echo(f"… and more; use --limit {limit * 2} to see more", err=True)


def show_run(location: str, run_id: str, *, output_format: Literal["text", "events", "json"]) -> None:
    """Print a run as a conversation, as numbered events, or as its log."""

    async def read(store: Store) -> tuple[RunRecord, list[Event]]:
        record = await get_record(store, run_id)
        return record, await log_only_runner(store).events(run_id)

    record, events = _with_store(location, read)
    if output_format == "json":
        click.echo(encode_log(events), nl=False)
    elif output_format == "events":
        width = len(str(len(events)))
        for number, event in enumerate(events, start=1):
            click.echo(printable(f"{number:>{width}}  {format_event(event)}"))
    else:
        _show_conversation(record, events)


def fork_run(location: str, run_id: str, *, at: int | None, edits: Sequence[str], new_id: str | None) -> None:
    """Fork a run and print the new id."""
    edit = parse_pairs(edits, option="--edit")

    async def fork(store: Store) -> str:
        await get_record(store, run_id)
        return await log_only_runner(store).fork(run_id, at=at, edit=edit, run_id=new_id)

    click.echo(_with_store(location, fork))


def remove_runs(location: str, run_ids: Sequence[str], *, confirmed: bool) -> None:
    """Delete runs, unless one does not exist or is being driven."""

    async def check(store: Store) -> None:
        for run_id in run_ids:
            record = await get_record(store, run_id)
            if record.status == "running" and record.lease_until > time():
                raise RunError(f"run `{run_id}` is running; cancel it, or wait until it has ended")

    async def remove(store: Store) -> None:
        for run_id in run_ids:
            await store.delete(run_id)

    _with_store(location, check)
    label = f"run {run_ids[0]}" if len(run_ids) == 1 else f"{len(run_ids)} runs"
    if confirmed or click.confirm(f"delete {label}?"):
        _with_store(location, remove)
        click.echo(f"deleted {label}", err=True)


def log_only_runner(store: Store) -> Runner[Any, Any]:
    """Return a runner that only reads and copies logs."""

    @agent("log_reader", description="Reads logs only.")
    async def log_reader(ctx: AgentContext[Any]) -> None:
        raise RunError("this runner only reads logs")

    return Runner(log_reader, store=store)


def _with_store(location: str, work: Callable[[Store], Awaitable[T]]) -> T:
    async def run() -> T:
        store = open_store(location)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _show_conversation(record: RunRecord, events: Sequence[Event]) -> None:
    screen = Screen(Console(highlight=False))
    thread = f" · thread {record.thread}" if record.thread else ""
    screen.line(f"run {record.run_id} · {_status(record)}{thread} · {_format_time(record.created_at)}", "dim")
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
    for id, asked in Log(events).open_interrupts().items():
        screen.line(f"open interrupt {id}: {format_interrupt(to_interrupt(asked))}", "bold yellow")
    screen.usage(usage_from_events(events).total)


def _format_row(record: RunRecord) -> tuple[str, str, str, str, str]:
    events = str(max(record.seq - 1, 0))
    return record.run_id, _status(record), record.thread or "-", events, _format_time(record.updated_at)


def _to_json(record: RunRecord) -> dict[str, Any]:
    return {**asdict(record), "is_driven": _is_driven(record)}


def _status(record: RunRecord) -> str:
    return "running, no worker" if record.status == "running" and not _is_driven(record) else record.status


def _is_driven(record: RunRecord) -> bool:
    return record.status == "running" and record.lease_until > time()


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


_store = click.option(
    "--store",
    metavar="STORE",
    envvar="BATON_STORE",
    show_envvar=True,
    required=True,
    help="The store: a file such as runs.db, or a URL such as postgresql://user@host/database.",
)
_run_id = click.argument("run_id", metavar="RUN")
_STATUSES = ("running", "suspended", "completed", "failed", "cancelled")


@click.group("runs")
def runs_command() -> None:
    """List, show, resume, fork and remove stored runs.

    \b
    Examples:
      baton runs ls --store runs.db --status suspended
      baton runs show RUN --store runs.db
      baton runs resume RUN desk:router --store runs.db --answer 1/m1.0/ask1=yes
      baton runs fork RUN --store runs.db --at 5 --edit 1/m1.0="sold out"
    """


@runs_command.command()
@_store
@click.option(
    "--status", multiple=True, type=click.Choice(_STATUSES), help="List only runs with this status; may be repeated."
)
@click.option("--thread", metavar="ID", help="List only runs of this thread.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="List at most N runs."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each run.")
@debug
def ls(store: str, status: tuple[str, ...], thread: str | None, limit: int, as_json: bool) -> None:
    """List runs, the newest first."""
    list_runs(store, status=status, thread=thread, limit=limit, as_json=as_json)


@runs_command.command()
@_store
@_run_id
@click.option("--events", "as_events", is_flag=True, help="Print the events with their numbers and keys.")
@click.option("--json", "as_json", is_flag=True, help="Print the log, one JSON line for each event.")
@debug
def show(store: str, run_id: str, as_events: bool, as_json: bool) -> None:
    """Show a run's events and open interrupts."""
    if as_json and as_events:
        raise click.UsageError("--json and --events cannot be combined; choose one")
    show_run(store, run_id, output_format="json" if as_json else "events" if as_events else "text")


@runs_command.command()
@_store
@_run_id
@target
@click.option(
    "--answer", "answers", multiple=True, metavar="ID=VALUE", help="Answer an open interrupt; may be repeated."
)
@click.option("--accept-changes", is_flag=True, help="Resume even if the team has changed since the run started.")
@quiet
@json_result
@model
@debug
@click.pass_context
def resume(ctx: click.Context, /, *, store: str, run_id: str, target: str, **options: Any) -> None:
    """Resume a run that is suspended, failed or cancelled, or whose process has died.

    Open interrupts without an --answer are asked in the terminal. Answer an approval with y, n, a (always) or a reason
    to decline.
    """
    quiet, as_json, model = options.pop("quiet"), options.pop("as_json"), options.pop("model")
    with warnings_on_stderr(debug=is_debugging(ctx), quiet=quiet), default_model(model):
        setup = set_up_run(target, run_arguments(model=model, store=store), existing=True)
        ctx.exit(resume_run(setup, run_id, output_format="json" if as_json else "text", quiet=quiet, **options))


@runs_command.command()
@_store
@_run_id
@click.option("--at", type=click.IntRange(min=1), metavar="N", help="Copy the first N events; by default all.")
@click.option(
    "--edit",
    "edits",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replace the result of an event, and drop the events after it.",
)
@click.option("--run-id", "new_id", metavar="ID", help="The id of the new run.")
@debug
def fork(store: str, run_id: str, at: int | None, edits: tuple[str, ...], new_id: str | None) -> None:
    """Create a new run from the first events of another; prints its id.

    `baton runs show --events` shows the numbers and keys. The other run is unchanged; resume the new one to run it.
    """
    fork_run(store, run_id, at=at, edits=edits, new_id=new_id)


@runs_command.command()
@_store
@click.argument("run_ids", metavar="RUN…", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Delete without confirmation.")
@debug
def rm(store: str, run_ids: tuple[str, ...], yes: bool) -> None:
    """Delete runs."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("cannot ask for confirmation without a terminal; pass --yes")
    remove_runs(store, run_ids, confirmed=yes)


def resume_run(
    setup: RunSetup,
    run_id: str,
    *,
    answers: Sequence[str],
    accept_changes: bool,
    output_format: OutputFormat,
    quiet: bool,
) -> int:
    """Resume a run until it ends or an interrupt stays unanswered; return the exit code."""
    screen = Screen(Console(stderr=True, highlight=False), answers=False)
    printer = RunPrinter(output_format, screen, quiet=quiet)
    with asyncio.Runner() as loop:
        try:
            interrupts = loop.run(_open_interrupts(setup.runner, run_id))
            collected = _parse_answers(answers, interrupts)
            asked = _ask_user([each for each in interrupts if each.id not in collected], screen=screen)
            collected |= asked or {}
            while collected or not interrupts:
                stream = setup.runner.stream_resume(run_id, collected, accept_changes=accept_changes)
                code = drive(setup, stream, loop, printer=printer)
                interrupts = stream.result.interrupts if code == SUSPENDED else ()
                # A user who did not answer is not asked again.
                asked = _ask_user(interrupts, screen=screen) if asked is not None else None
                collected = asked or {}
                if not collected:
                    printer.finish(stream)
                if not interrupts:
                    return code
        finally:
            loop.run(setup.runner.close())
    print_interrupts(interrupts, setup, run_id=run_id)
    return SUSPENDED


async def _open_interrupts(runner: Runner[Any, Any], run_id: str) -> list[Interrupt]:
    record = await get_record(runner._require_store("baton runs resume"), run_id)
    if record.status == "completed":
        raise RunError(f"run `{run_id}` is completed; `baton runs fork` creates a new run from it")
    events = await runner.events(run_id)
    return [to_interrupt(asked) for asked in Log(events).open_interrupts().values()]


def _parse_answers(answers: Sequence[str], interrupts: Sequence[Interrupt]) -> dict[str, Any]:
    """Parse --answer: `id=value`, or only the value if one interrupt is open."""
    by_id: Mapping[str, Interrupt] = {each.id: each for each in interrupts}
    collected: dict[str, Any] = {}
    for answer in answers:
        id, equals, text = answer.partition("=")
        if not (equals and id in by_id):
            if len(by_id) != 1 or "/ask" in id:
                open_ids = quote_names([*by_id])
                raise AnswerError(
                    f"`{answer}` does not match an open interrupt; use --answer ID=VALUE with one of: {open_ids}"
                )
            id, text = next(iter(by_id)), answer
        reply = parse_reply(by_id[id], text.strip())
        if reply is None:
            raise AnswerError(f"`{answer}` is not a clear answer to {id}; y approves a call, n or a reason declines it")
        collected[id] = reply[0]
    return collected


def _ask_user(interrupts: Sequence[Interrupt], *, screen: Screen) -> dict[str, Any] | None:
    """Ask the user; None if there is no terminal input or no answer."""
    try:
        return ask_interrupts(interrupts, _read, screen=screen)
    except (EOFError, KeyboardInterrupt):
        screen.line("not answered", "red")
        return None


def _read(prompt: str) -> str:
    if sys.stdin.isatty():
        return input(prompt)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
