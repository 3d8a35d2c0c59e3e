"""`baton serve`: its options. Each face of a team (--api, --agui) is one of them; `serve` has what they stand for."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .options import auth_options, debug, is_debugging, model, target

F = TypeVar("F", bound=Callable[..., Any])


def _about_serving(command: F) -> F:
    options = [
        click.option("--api", is_flag=True, help="Serve the HTTP API (the default if nothing else is named)."),
        click.option("--a2a", is_flag=True, help="Serve A2A, for agents of others, at /a2a."),
        click.option("--agui", is_flag=True, help="Serve AG-UI, for user interfaces, at /agui."),
        click.option("--store", metavar="FILE_OR_URL", help="Where runs are kept; without it, in memory."),
        model,
        click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on."),
        click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="The port."),
        click.option("--cors", multiple=True, metavar="ORIGIN", help="An origin whose pages may call."),
        click.option("--show-errors", is_flag=True, help="Tell callers why a run failed."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@target
@_about_serving
@auth_options
@debug
@click.pass_context
def serve(ctx: click.Context, /, *, target: str, **options: Any) -> None:
    """Serve a team over HTTP, for programs and user interfaces.

    Unless callers must show who they are it can be reached from this machine only.

    \b
    Examples:
      baton serve desk:router --store runs.db
      baton serve desk:router --store runs.db --host 0.0.0.0 --token-env DESK_TOKEN
      baton serve desk:router --store runs.db --auth desk:callers
      baton serve desk:router --agui --cors http://localhost:3000
    """
    from .failures import warnings_on_stderr
    from .serve import serve as listen

    with warnings_on_stderr(debug=is_debugging(ctx), quiet=False):
        listen(target, **options)
