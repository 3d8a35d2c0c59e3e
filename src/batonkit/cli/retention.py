"""The commands `baton runs expire` and `baton runs erase`."""

import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import click

from .._wording import printable
from ..stores import FINISHED_STATUSES, RUN_STATUSES, FullStore
from . import cli_options as options
from .output import write
from .targets import store_option, with_store

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as `30d`, `12h` or `90s`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a duration; write 30d, 12h, 15m or 90s")
    return timedelta(**{_UNITS[found.group(2)]: float(found.group(1))}).total_seconds()


@click.command()
@store_option
@click.option(
    "--older-than", required=True, type=parse_duration, metavar="TIME", help="The age, such as 30d, 12h, 15m or 90s."
)
@click.option(
    "--status",
    multiple=True,
    type=click.Choice(RUN_STATUSES),
    help="Delete runs with this status; may be repeated. By default those that have ended.",
)
@click.option(
    "--archive", type=options.FILE, metavar="FILE", help="Write the runs to this file first, as JSON lines (.gz)."
)
@click.option("-y", "--yes", is_flag=True, help="Delete without confirmation.")
@options.debug
def expire(store: str, older_than: float, status: tuple[Any, ...], archive: Path | None, yes: bool) -> int | None:
    """Delete runs whose status has not changed for some time.

    Runs that cannot be archived because their log is damaged are kept and listed; the exit code is then 1.

    \b
    Example:
      baton runs expire --store runs.db --older-than 30d --archive 2026-05.jsonl.gz --yes
    """
    from ..stores.retention import ExpiredRuns, expire_runs

    async def delete(opened: FullStore) -> ExpiredRuns:
        return await expire_runs(opened, older_than, status=status or FINISHED_STATUSES, archive=archive)

    if not _confirm("delete all runs that are older?", yes=yes):
        return None
    expired = with_store(store, delete)
    for run_id, problem in expired.damaged.items():
        write(f"kept run {run_id}, which cannot be archived: {problem}", err=True)
    write(f"deleted {_count(expired.deleted)}", err=True)
    return 1 if expired.damaged else None


@click.command()
@store_option
@click.option("--owner", metavar="NAME", help="Erase what belongs to this owner.")
@click.option("--thread", metavar="ID", help="Erase this thread.")
@click.option("-y", "--yes", is_flag=True, help="Delete without confirmation.")
@options.debug
def erase(store: str, owner: str | None, thread: str | None, yes: bool) -> None:
    """Delete everything that the store has of an owner or a thread, including runs in progress.

    These are runs with their logs, notes and summaries, forks of these runs, and messages that wait.
    """
    if bool(owner) == bool(thread):
        raise click.UsageError("pass --owner or --thread")

    async def delete(opened: FullStore) -> int:
        return await (opened.erase(owner=owner) if owner else opened.erase(thread=cast("str", thread)))

    what = f"owner {owner}" if owner else f"thread {thread}"
    if _confirm(f"erase all data of {what}?", yes=yes):
        write(f"erased {_count(with_store(store, delete))} of {what}", err=True)


def _count(runs: int) -> str:
    return f"{runs} run{'' if runs == 1 else 's'}"


def _confirm(question: str, *, yes: bool) -> bool:
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("cannot ask for confirmation without a terminal; pass --yes")
    return yes or click.confirm(printable(question))
