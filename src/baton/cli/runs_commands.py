"""`baton runs`: its commands and their options. What a command needs is imported when it is called."""

import sys
from typing import Any

import click

from .options import debug, is_debugging, model, run_arguments, target

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
    from .runs import list_runs

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
    from .runs import show_run

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
    from .failures import warnings_on_stderr
    from .resume import resume_run
    from .start import default_model, start_of

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
    from .runs import fork_run

    fork_run(store, run_id, at=at, edits=edits, new_id=new_id)


@runs.command()
@_store
@click.argument("run_ids", metavar="RUN…", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@debug
def rm(store: str, run_ids: tuple[str, ...], yes: bool) -> None:
    """Forget runs for good."""
    from .runs import remove_runs

    if not yes and not sys.stdin.isatty():
        raise click.UsageError("nobody is here to be asked; say --yes if you mean it")
    remove_runs(store, run_ids, is_sure=yes)
