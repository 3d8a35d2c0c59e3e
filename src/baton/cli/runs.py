"""`baton runs`: what is in a store, for people and for programs.

`baton runs`: its commands and their options. What a command needs is imported when it is called.

`baton runs resume`: go on with a stored run, and ask in the terminal for what it waits for.
"""

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
from .display import Screen, answers_to, format_interrupt, printable, understood
from .errors import SUSPENDED
from .options import debug, is_debugging, model, run_arguments, target
from .run import Form, RunPrinter, outcome_of, print_questions
from .targets import RunSetup, pairs_from, record_of, store_at

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
            click.echo(printable(f"{number:>{width}}  {format_event(event)}"))
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
    for id, asked in Log(events).open_interrupts().items():
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


_store = click.argument("store", metavar="STORE")
_run = click.argument("run_id", metavar="RUN")
_STATUSES = ("running", "suspended", "completed", "failed", "cancelled")


@click.group()
def runs() -> None:
    """Look at runs that are kept in a store, and go on with them.

    STORE is a file such as runs.db, or an address: sqlite:///runs.db, postgresql://user@host/database.

    \b
    Examples:
      baton runs ls runs.db --status suspended
      baton runs show runs.db RUN
      baton runs resume runs.db RUN desk:router --answer 1/m1.0/ask1=yes
      baton runs fork runs.db RUN --at 5 --edit 1/m1.0="sold out"
    """


@runs.command()
@_store
@click.option("--status", multiple=True, type=click.Choice(_STATUSES), help="Only these; may be given several times.")
@click.option("--thread", metavar="ID", help="Only those of this conversation.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="At most N.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each run.")
@debug
def ls(store: str, status: tuple[str, ...], thread: str | None, limit: int, as_json: bool) -> None:
    """List runs, the newest first."""
    list_runs(store, status=status, thread=thread, limit=limit, as_json=as_json)


@runs.command()
@_store
@_run
@click.option("--events", "as_events", is_flag=True, help="Its events with their numbers and keys.")
@click.option("--json", "as_json", is_flag=True, help="Its log, one JSON line for each event.")
@debug
def show(store: str, run_id: str, as_events: bool, as_json: bool) -> None:
    """Show what happened in a run, and what it waits for."""
    if as_json and as_events:
        raise click.UsageError("--json and --events are two ways to show a run; choose one")
    show_run(store, run_id, form="json" if as_json else "events" if as_events else "text")


@runs.command()
@_store
@_run
@target
@click.option("--answer", "answers", multiple=True, metavar="ID=VALUE", help="The answer to an open question.")
@click.option("--accept-changes", is_flag=True, help="Go on though the team has changed since the run began.")
@click.option("-q", "--quiet", is_flag=True, help="Show nothing but the answer.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object.")
@model
@debug
@click.pass_context
def resume(ctx: click.Context, /, *, store: str, run_id: str, target: str, **options: Any) -> None:
    """Go on with a run that is suspended, failed or cancelled, or whose process has died.

    What it asks and --answer does not say is asked here. An answer to an approval is y, n, a (always), or why not.
    """
    from .errors import warnings_on_stderr
    from .targets import default_model, start_of

    quiet, as_json, model = options.pop("quiet"), options.pop("as_json"), options.pop("model")
    with warnings_on_stderr(debug=is_debugging(ctx), quiet=quiet), default_model(model):
        start = start_of(target, run_arguments(model=model, store=store), existing=True)
        ctx.exit(resume_run(start, run_id, form="json" if as_json else "text", quiet=quiet, **options))


@runs.command()
@_store
@_run
@click.option("--at", type=click.IntRange(min=1), metavar="N", help="Keep the first N events; all by default.")
@click.option("--edit", "edits", multiple=True, metavar="KEY=VALUE", help="Change an event, and drop what came after.")
@click.option("--id", "new_id", metavar="ID", help="The id of the new run.")
@debug
def fork(store: str, run_id: str, at: int | None, edits: tuple[str, ...], new_id: str | None) -> None:
    """Begin a new run with the first events of another; prints its id.

    `baton runs show --events` has the numbers and keys. The other run stays as it is; go on with the new one by resume.
    """
    fork_run(store, run_id, at=at, edits=edits, new_id=new_id)


@runs.command()
@_store
@click.argument("run_ids", metavar="RUN…", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@debug
def rm(store: str, run_ids: tuple[str, ...], yes: bool) -> None:
    """Forget runs for good."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("nobody is here to be asked; say --yes if you mean it")
    remove_runs(store, run_ids, is_sure=yes)


def resume_run(
    start: RunSetup, run_id: str, *, answers: Sequence[str], accept_changes: bool, form: Form, quiet: bool
) -> int:
    """Drive the run to its end, or to a question that nobody answers here; gives the exit code."""
    screen = Screen(Console(stderr=True, highlight=False), answers=False)
    printer = RunPrinter(form, screen, quiet=quiet)
    with asyncio.Runner() as loop:
        try:
            questions = loop.run(_open_questions(start.runner, run_id))
            given = _given(answers, questions)
            asked = _asked([each for each in questions if each.id not in given], screen=screen)
            given |= asked or {}
            while given or not questions:
                live = start.runner.stream_resume(run_id, given, accept_changes=accept_changes)
                code = outcome_of(start, live, loop, printer=printer)
                questions = live.result.interrupts if code == SUSPENDED else ()
                # Who did not answer the last time is not asked once more.
                asked = _asked(questions, screen=screen) if asked is not None else None
                given = asked or {}
                if not given:
                    printer.finish(live)
                if not questions:
                    return code
        finally:
            loop.run(start.runner.close())
    print_questions(questions, start, run_id=run_id)
    return SUSPENDED


async def _open_questions(runner: Runner[Any, Any], run_id: str) -> list[Interrupt]:
    record = await record_of(runner._require_store("baton runs resume"), run_id)
    if record.status == "completed":
        raise RunError(f"run `{run_id}` is completed; `baton runs fork` makes another of its beginning")
    events = await runner.events(run_id)
    return [to_interrupt(asked) for asked in Log(events).open_interrupts().values()]


def _given(answers: Sequence[str], questions: Sequence[Interrupt]) -> dict[str, Any]:
    """What the command line answers: `id=value`, or the value alone if there is only one question."""
    by_id: Mapping[str, Interrupt] = {each.id: each for each in questions}
    given: dict[str, Any] = {}
    for answer in answers:
        id, equals, text = answer.partition("=")
        if not (equals and id in by_id):
            if len(by_id) != 1 or "/ask" in id:
                open_ones = quote_names([*by_id])
                raise AnswerError(f"`{answer}` answers no open question; say --answer ID=VALUE; open are: {open_ones}")
            id, text = next(iter(by_id)), answer
        meant = understood(by_id[id], text.strip())
        if meant is None:
            raise AnswerError(f"`{answer}` says nothing clear about {id}; y allows a call, n or a reason does not")
        given[id] = meant[0]
    return given


def _asked(questions: Sequence[Interrupt], *, screen: Screen) -> dict[str, Any] | None:
    """What somebody at the terminal answers; None if nobody is there, or wants to."""
    try:
        return answers_to(questions, _read, screen=screen)
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
