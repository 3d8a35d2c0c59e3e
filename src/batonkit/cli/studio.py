"""The command `baton studio`: a local web page that shows the runs of a store."""

from typing import Any

import click

from ..agents import Agent
from ..runs import Runner
from ..stores import MemoryStore
from ..stores.parts import innermost_store
from .cli_errors import TargetError
from .cli_options import reload_option, server_options
from .serve import make_runner, serve_app, serve_with_reload


@click.command("studio")
@click.argument("target", metavar="[MODULE:AGENT]", required=False)
@click.option("--run", "place", metavar="RUN", help="Show this run first; with an event after @, as in r1@12.")
@reload_option
@server_options
def studio_command(
    *,
    target: str | None,
    place: str | None,
    store: str | None,
    model: str | None,
    port: int,
    reload: bool,
    **options: Any,
) -> None:
    """Open a local web page that shows runs, and reruns them.

    It shows which agent held control, why it moved, what each agent read and what it cost. With a team, runs can also
    be started, answered, forked and replayed on the page; without one, the runs of the store are only shown. The
    printed URL works once, in one browser. Studio never takes over runs of other workers.

    \b
    Examples:
      baton studio desk:router --store runs.db
      baton studio --store runs.db --run r1@12
      baton studio desk:router --store runs.db --host 0.0.0.0 --token-env DESK_TOKEN
      baton studio desk:router --store runs.db --reload
    """
    from ..serve.studio import StudioApp, studio_app

    if target is None and store is None:
        raise TargetError("name a team, a store or both: baton studio [MODULE:AGENT] [--store runs.db]")
    if options.pop("allow_anonymous"):
        raise TargetError("baton studio does not accept --allow-anonymous; use --token-env")
    if reload:
        serve_with_reload(options["host"], port)
        return
    runner: Runner[Any, Any] = (
        Runner(Agent("viewer"), store=store) if target is None else make_runner(target, store=store, model=model)
    )
    runs = runner._require_store("baton studio")
    apps = list[StudioApp]()

    def make(*, auth: Any, allow_anonymous: bool, **limits: Any) -> StudioApp:
        apps.append(studio_app(runner, auth=auth, can_write=target is not None, **limits))
        return apps[0]

    def notice(url: str) -> str:
        lines = [f"Studio: {apps[0].url(url, place or '')}"]
        if isinstance(innermost_store(runs), MemoryStore):
            lines.append("runs are stored in memory only; use --store to keep them")
        return "\n".join(lines)

    serve_app(make, notice, port=port, allow_anonymous=False, store=runs, studios=apps, **options)
