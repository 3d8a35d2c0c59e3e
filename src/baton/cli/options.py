"""Options and arguments shared by several commands."""

from collections.abc import Callable
from typing import Any, TypeAlias

import click

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_DEBUG = "baton.debug"


def _set_debug(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_DEBUG] = True


def is_debugging(ctx: click.Context) -> bool:
    """Return whether --debug was given."""
    return bool(ctx.meta.get(_DEBUG))


def add_options(*options: Decorator) -> Decorator:
    """Combine options into one decorator; they are listed in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


debug = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_set_debug, help="Show the traceback of an error."
)
target = click.argument("target", metavar="MODULE:AGENT")
model = click.option("--model", metavar="PROVIDER:NAME", help="The model of all agents that have none of their own.")
store = click.option(
    "--store",
    metavar="STORE",
    help="Store runs in this file or database: runs.db, postgresql://… (default: in memory).",
)
quiet = click.option("-q", "--quiet", is_flag=True, help="Print only the answer.")
json_result = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")

run_options = add_options(
    model,
    click.option(
        "--value", "values", multiple=True, metavar="KEY=VALUE", help="Set a value of the run; JSON is parsed."
    ),
    store,
    click.option("--thread", metavar="ID", help="Continue this conversation; needs --store."),
    click.option("--max-transfers", type=click.IntRange(min=0), metavar="N", help="Stop a run after N transfers."),
    click.option("--max-model-calls", type=click.IntRange(min=1), metavar="N", help="Stop a run after N model calls."),
    click.option(
        "--max-seconds", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Stop a run after S seconds."
    ),
    click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="Stop a run after N tokens."),
    debug,
)
"""The options of commands that run a team."""

auth_options = add_options(
    click.option(
        "--token-env",
        metavar="NAME",
        help="Environment variable that holds the accepted bearer token, or a JSON object of tokens and their owners.",
    ),
    click.option(
        "--auth",
        metavar="MODULE:NAME",
        help="Any other authentication, defined in code: APIKeyAuth(…), JWTAuth(…), or a list of them.",
    ),
    click.option("--allow-anonymous", is_flag=True, help="Accept requests from other machines without authentication."),
)
"""The options that control authentication."""


def run_arguments(
    *,
    model: str | None,
    values: tuple[str, ...] = (),
    store: str | None = None,
    thread: str | None = None,
    **limits: Any,
) -> Any:
    """Convert the values of `run_options` to RunArguments."""
    from .targets import RunArguments, parse_pairs

    given = {name.removeprefix("max_"): limit for name, limit in limits.items() if limit is not None}
    return RunArguments(
        model=model, values=parse_pairs(values, option="--value"), limits=given, store=store, thread=thread
    )
