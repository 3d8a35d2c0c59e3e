"""Options and arguments that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_DEBUG = "baton.debug"


def _note_debug(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_DEBUG] = True


def is_debugging(ctx: click.Context) -> bool:
    """Whether tracebacks are wanted."""
    return bool(ctx.meta.get(_DEBUG))


debug = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_note_debug, help="Show the traceback of an error."
)
target = click.argument("target", metavar="MODULE:AGENT")
model = click.option("--model", metavar="PROVIDER:NAME", help="The model of all agents that name none themselves.")


def run_options(command: F) -> F:
    """The options that run and chat share."""
    options = [
        model,
        click.option(
            "--value", "values", multiple=True, metavar="KEY=VALUE", help="A value of the run; JSON is read as JSON."
        ),
        click.option("--store", metavar="STORE", help="Keep runs in this file or database: runs.db, postgresql://…"),
        click.option("--thread", metavar="ID", help="Go on with this conversation, which --store has."),
        click.option("--max-transfers", type=click.IntRange(min=0), metavar="N", help="End a run after N transfers."),
        click.option("--max-model-calls", type=click.IntRange(min=1), metavar="N", help="… after N model calls."),
        click.option(
            "--max-seconds", type=click.FloatRange(min=0, min_open=True), metavar="S", help="… after S seconds."
        ),
        click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="… after N tokens."),
        debug,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def auth_options(command: F) -> F:
    """The options that say who may call."""
    options = [
        click.option(
            "--token-env",
            metavar="NAME",
            help="The environment variable with the token of callers, or with a JSON object of tokens and names.",
        ),
        click.option(
            "--auth",
            metavar="MODULE:NAME",
            help="Any other way to know callers, as code has it: APIKeyAuth(…), JWT(…), or a list of such.",
        ),
        click.option("--allow-anyone", is_flag=True, help="Without either: let other machines call as well."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def run_arguments(
    *,
    model: str | None,
    values: tuple[str, ...] = (),
    store: str | None = None,
    thread: str | None = None,
    **limits: Any,
) -> Any:
    """What these options say about runs."""
    from .targets import RunArguments, values_from

    named = {name.removeprefix("max_"): most for name, most in limits.items() if most is not None}
    return RunArguments(model=model, values=values_from(values), limits=named, store=store, thread=thread)
