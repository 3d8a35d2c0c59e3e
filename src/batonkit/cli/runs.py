"""The commands `baton runs`: list, show, resume, retry, fork and remove stored runs."""

import json
import sys
from asyncio import sleep
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import asdict

from .._wording import one_line, printable
from ..agents import Agent
from ..errors import AnswerError, RunConflictError, RunError, quote_names
from ..log import Event, InterruptRaised, RunFailed, RunStarted, decode_lines, encode_log, keys
from ..log.log import Log
from ..messages import Usage, text_of
from ..runs import Interrupt, Runner, usage_from_events
from ..runs.result import to_interrupt
from ..runs.stored.recovery import UNDRIVABLE_NOTE
from ..runs.stored.summaries import read_summaries
from ..stores import FullStore, RunRecord, Store
from ..testing.transcripts import format_event
from ..worker.deaths import PARKED_NOTE
from . import cli_options as options
from .cli_errors import SUSPENDED
from .display import Screen, ask_interrupts, format_cost, format_interrupt, parse_reply
from .output import rewrite_line, write, write_data, write_json
from .retention import erase, expire
from .run import RunPrinter, print_interrupts
from .targets import RunSetup, get_record, is_driven, open_interrupts, set_up_run, store_option, with_store

_run_id = click.argument("run_id", metavar="RUN")
_WAIT_INTERVAL = 0.5
"""Seconds between two looks at a run that a worker drives."""
_STATUSES = ("running", "suspended", "completed", "failed", "cancelled")


@click.group("runs")
def runs_command() -> None:
    """List, show, resume, retry, fork and remove stored runs.

    \b
    Examples:
      baton runs ls --store runs.db --status suspended
      baton runs show RUN --store runs.db
      baton runs resume RUN desk:router --store runs.db --answer 1/m1.0/ask1=yes
      baton runs retry RUN --store runs.db
      baton runs fork RUN --store runs.db --at 5 --edit 1/m1.0="sold out"
      baton runs expire --store runs.db --older-than 30d --archive old.jsonl.gz
    """


runs_command.add_command(expire)
runs_command.add_command(erase)


@runs_command.command()
@store_option
@click.option(
    "--status", multiple=True, type=click.Choice(_STATUSES), help="List only runs with this status; may be repeated."
)
@click.option("--thread", metavar="ID", help="List only runs of this thread.")
@options.number_option("--limit", 20, "N", "List at most N runs.", kind=options.COUNT)
@click.option(
    "--cost", is_flag=True, help="Show the tokens and cost of each run when it last stopped, and the sum of all."
)
@options.json_option("Print one JSON object for each run.")
@options.debug
def ls(store: str, status: Sequence[Any], thread: str | None, limit: int, cost: bool, as_json: bool) -> None:
    """List runs, the newest first."""

    runs = with_store(store, lambda opened: _read_runs(opened, status, thread, limit, with_usage=cost))
    shown = runs[:limit]
    if as_json:
        for run in shown:
            write_json(json.dumps(run.to_dict(), ensure_ascii=False))
        return
    if not shown:
        write("no matching runs" if status or thread else "no runs", err=True)
        return
    _write_table(shown, with_usage=cost)
    if len(runs) > limit:
        write(f"… and more; use --limit {limit * 2} to see more", err=True)


class _ListedRun(Struct, frozen=True):
    """A run in a list."""

    record: RunRecord
    problem: str
    """The reason why it could not be driven."""
    usage: Usage | None
    """Its usage when it last stopped; None if it is not shown."""

    def to_dict(self) -> dict[str, Any]:
        """Return the run as JSON."""
        usage = {} if self.usage is None else {"usage": asdict(self.usage)}
        return {**asdict(self.record), "is_driven": is_driven(self.record), "undrivable": self.problem, **usage}

    def cells(self) -> tuple[str, ...]:
        """Return the run as a row of a table."""
        record = self.record
        usage = () if self.usage is None else (f"{self.usage.total_tokens:,}", format_cost(self.usage) or "-")
        return (
            one_line(record.run_id),
            _status(record),
            one_line(record.thread) or "-",
            str(max(record.seq - 1, 0)),
            _format_time(record.updated_at),
            *usage,
        )


async def _read_runs(
    store: FullStore, status: Sequence[Any], thread: str | None, limit: int, *, with_usage: bool
) -> list[_ListedRun]:
    """Read the runs to show and, if there are more, one that is not shown."""
    records = (await store.list(status=status or None, thread=thread, limit=limit + 1)).records
    unattended = [each.run_id for each in records if each.status == "running" and not is_driven(each)]
    failed = [each.run_id for each in records if each.status == "failed"]
    notes = {
        **(await store.read_notes(unattended, UNDRIVABLE_NOTE) if unattended else {}),
        **(await store.read_notes(failed, PARKED_NOTE) if failed else {}),
    }
    usages = await _read_usage(store, [each.run_id for each in records[:limit]]) if with_usage else {}
    return [
        _ListedRun(record, notes.get(record.run_id, b"").decode(errors="replace"), usages.get(record.run_id))
        for record in records
    ]


def _write_table(runs: Sequence[_ListedRun], *, with_usage: bool) -> None:
    """Write the runs with aligned columns, and the sum of their usage."""
    titles = ("RUN", "STATUS", "THREAD", "EVENTS", "UPDATED", *(("TOKENS", "COST") if with_usage else ()))
    rows = [run.cells() for run in runs]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    write(_align(titles, widths))
    for run, row in zip(runs, rows, strict=True):
        write(_align(row, widths))
        if run.problem:
            write(f"  could not be driven: {one_line(run.problem)}")
    if with_usage:
        total = sum([run.usage for run in runs if run.usage is not None], Usage())
        write(f"total: {total.total_tokens:,} tokens, {format_cost(total) or 'no cost'}")


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


async def _read_usage(store: FullStore, run_ids: Sequence[str]) -> dict[str, Usage]:
    """Return the usage of runs from their summaries, or from their logs if they have none."""
    summaries = await read_summaries(store, run_ids)
    return {
        run_id: summaries[run_id].usage
        if run_id in summaries
        else usage_from_events(decode_lines(await store.load(run_id))).total
        for run_id in run_ids
    }


def _log_only_runner(store: Store) -> Runner[Any, Any]:
    """Return a runner that only reads and copies logs."""
    return Runner(Agent("log_reader", description="Reads logs only."), store=store)


def _status(record: RunRecord) -> str:
    return "running, no worker" if record.status == "running" and not is_driven(record) else record.status


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


@runs_command.command()
@store_option
@_run_id
@click.option("--events", "as_events", is_flag=True, help="Print the events with their numbers and keys.")
@options.json_option("Print the log, one JSON line for each event.")
@options.debug
def show(store: str, run_id: str, as_events: bool, as_json: bool) -> None:
    """Show a run's events and open interrupts."""

    async def read(opened: Store) -> tuple[RunRecord, list[Event]]:
        return await get_record(opened, run_id), await _log_only_runner(opened).runs.events(run_id)

    output_format = options.choose_format(as_json=as_json, as_events=as_events)
    record, events = with_store(store, read)
    if output_format == "json":
        write_json(encode_log(events), nl=False)
    elif output_format == "events":
        width = len(str(len(events)))
        for number, event in enumerate(events, start=1):
            write(f"{number:>{width}}  {format_event(event)}")
    else:
        _show_conversation(record, events)


def _show_conversation(record: RunRecord, events: Sequence[Event]) -> None:
    screen = Screen()
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
        if isinstance(event, RunFailed):
            screen.line(f"✗ {event.error_type}: {event.message}".removesuffix(": "), "red")
    screen.end_line()
    for id, asked in Log(events).open_interrupts().items():
        screen.line(f"open interrupt {id}: {format_interrupt(to_interrupt(asked))}", "bold yellow")
    screen.usage(usage_from_events(events).total)


@runs_command.command()
@store_option
@_run_id
@options.target
@options.repeated_option("--answer", "answers", "ID=VALUE", "Answer an open interrupt; may be repeated.")
@click.option("--accept-changes", is_flag=True, help="Resume even if the team has changed since the run started.")
@click.option("--wait", is_flag=True, help="Wait until no worker drives it, for instance after its process was killed.")
@options.quiet
@options.json_result
@options.model
@options.debug
def resume(*, store: str, run_id: str, target: str, model: str | None, as_json: bool, quiet: bool, **how: Any) -> int:
    """Resume a run that is suspended, failed or cancelled, or whose process has died.

    Open interrupts without an --answer are asked in the terminal. Answer an approval with y, n, a (always), or n and
    a reason.
    """
    with set_up_run(target, options.RunArguments(model=model, store=store), existing=True) as setup:
        return _resume(setup, run_id, RunPrinter("json" if as_json else "text", quiet=quiet), **how)


def _resume(
    setup: RunSetup, run_id: str, printer: RunPrinter, *, answers: Sequence[str], accept_changes: bool, wait: bool
) -> int:
    """Resume a run until it ends or an interrupt stays unanswered; return the exit code."""
    store = setup.runner._require_store("baton runs resume")
    record = setup.loop.run(_wait_until_free(store, run_id) if wait else _require_free(store, run_id))
    if record.status == "completed":
        raise RunError(f"run `{run_id}` is completed; `baton runs fork` creates a new run from it")
    interrupts: Sequence[Interrupt] = setup.loop.run(open_interrupts(setup.runner, run_id))
    collected = _parse_answers(answers, interrupts)
    asked = _ask([each for each in interrupts if each.id not in collected], printer.screen)
    collected |= asked or {}
    while collected or not interrupts:
        stream = setup.runner.stream_resume(run_id, collected, accept_changes=accept_changes)
        code = printer.drive(setup, stream)
        interrupts = stream.result.interrupts if code == SUSPENDED else ()
        # A user who did not answer is not asked again.
        asked = _ask(interrupts, printer.screen) if asked is not None else None
        collected = asked or {}
        if not collected:
            printer.finish(stream)
        if not interrupts:
            return code
    print_interrupts(interrupts, setup, run_id=run_id)
    return SUSPENDED


async def _require_free(store: FullStore, run_id: str) -> RunRecord:
    """Return the record of a run that no worker drives. Raises RunConflictError if one does."""
    record = await get_record(store, run_id)
    if is_driven(record):
        reason = f"{await _describe_lease(store, record)}; if its process has died, --wait waits until the run is free"
        raise RunConflictError(run_id, reason)
    return record


async def _wait_until_free(store: FullStore, run_id: str) -> RunRecord:
    """Wait until no worker drives a run, and say so; return its record."""
    is_terminal = sys.stderr.isatty()
    has_written = False
    while is_driven(record := await get_record(store, run_id)):
        text = f"waiting for run {run_id}: {await _describe_lease(store, record)}"
        if is_terminal:
            rewrite_line(text)
        elif not has_written:
            write(text, err=True)
        has_written = True
        await sleep(_WAIT_INTERVAL)
    if has_written and is_terminal:
        rewrite_line("")
    return record


async def _describe_lease(store: FullStore, record: RunRecord) -> str:
    left = max(record.lease_until - await store.now(), 0.0)
    return f"worker `{record.worker}` holds its lease for another {left:.0f} s"


def _ask(interrupts: Sequence[Interrupt], screen: Screen) -> dict[str, Any] | None:
    """Ask the user; return the answers by interrupt id, or None if one is missing."""
    answers: dict[str, Any] = {}
    if ask_interrupts(interrupts, answers, screen=screen, commands=("/exit", "/quit")) is None:
        return answers
    screen.line("not answered; the run stays suspended", "red")
    return None


def _parse_answers(answers: Sequence[str], interrupts: Sequence[Interrupt]) -> dict[str, Any]:
    """Parse --answer: `id=value`, or only the value if one interrupt is open."""
    by_id: Mapping[str, Interrupt] = {each.id: each for each in interrupts}
    collected: dict[str, Any] = {}
    for answer in answers:
        id, equals, text = answer.partition("=")
        if not (equals and id in by_id):
            if len(by_id) != 1 or keys.looks_like_interrupt(id):
                works = f"use --answer ID=VALUE with one of: {quote_names([*by_id])}"
                raise AnswerError(f"`{answer}` does not match an open interrupt; {works}")
            id = next(iter(by_id))
            text = answer
        reply = parse_reply(by_id[id], text.strip())
        if reply is None:
            raise AnswerError(f"`{answer}` is not a clear answer to {id}; y approves a call, n or a reason declines it")
        collected[id] = reply[0]
    return collected


@runs_command.command()
@store_option
@click.argument("run_ids", metavar="RUN…", nargs=-1, required=True)
@options.debug
def retry(store: str, run_ids: tuple[str, ...]) -> None:
    """Let workers drive runs again that failed or were cancelled."""

    async def restart(opened: FullStore) -> None:
        runner = _log_only_runner(opened)
        for run_id in run_ids:
            record = await get_record(opened, run_id)
            if record.status not in ("failed", "cancelled"):
                raise RunError(f"run `{run_id}` is {record.status}; only failed and cancelled runs can be retried")
        for run_id in run_ids:
            await runner.runs.retry(run_id)
            await opened.put_note(run_id, PARKED_NOTE, None)
            write(f"run {run_id} waits for a worker", err=True)

    with_store(store, restart)


@runs_command.command()
@store_option
@_run_id
@click.option("--at", type=click.IntRange(min=1), metavar="N", help="Copy the first N events; by default all.")
@options.pairs_option("--edit", "edit", "Replace the result of an event, and drop the events after it.")
@click.option("--run-id", "new_id", metavar="ID", callback=options.check_new_run_id, help="The id of the new run.")
@options.debug
def fork(store: str, run_id: str, at: int | None, edit: Mapping[str, Any], new_id: str | None) -> None:
    """Create a new run from the first events of another; prints its id.

    `baton runs show --events` shows the numbers and keys. The other run is unchanged; resume the new one to run it.
    """

    async def copy(opened: Store) -> str:
        await get_record(opened, run_id)
        return await _log_only_runner(opened).runs.fork(run_id, at=at, edit=edit, run_id=new_id)

    write_data(f"{with_store(store, copy)}\n")


@runs_command.command()
@store_option
@click.argument("run_ids", metavar="RUN…", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Delete without confirmation.")
@options.debug
def rm(store: str, run_ids: tuple[str, ...], yes: bool) -> None:
    """Delete runs, unless one does not exist or is being driven."""

    async def check(opened: Store) -> None:
        for run_id in run_ids:
            if is_driven(await get_record(opened, run_id)):
                raise RunError(f"run `{run_id}` is running; cancel it, or wait until it has ended")

    async def remove(opened: Store) -> None:
        for run_id in run_ids:
            await opened.delete(run_id)

    if not yes and not sys.stdin.isatty():
        raise click.UsageError("cannot ask for confirmation without a terminal; pass --yes")
    with_store(store, check)
    label = f"run {run_ids[0]}" if len(run_ids) == 1 else f"{len(run_ids)} runs"
    if yes or click.confirm(printable(f"delete {label}?")):
        with_store(store, remove)
        write(f"deleted {label}", err=True)
