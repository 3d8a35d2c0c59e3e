"""Options and arguments shared by several commands, and the parsing of their values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias

import click
import msgspec
from click.shell_completion import CompletionItem

from ..errors import SetupError

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

DEBUG = "baton.debug"
QUIET = "baton.quiet"
SCREEN = "baton.screen"
"""Keys of `Context.meta`, which a command shares with its group."""
COUNT = click.IntRange(min=1)
_NOT_NEGATIVE = click.FloatRange(min=0)


def choice_option(option: str, name: str, choices: Sequence[str], text: str) -> Decorator:
    """Return an option with fixed choices, of which the first is the default."""
    return click.option(option, name, type=click.Choice(choices), default=choices[0], show_default=True, help=text)


def number_option(option: str, default: float, metavar: str, text: str, *, kind: Any = _NOT_NEGATIVE) -> Decorator:
    """Return an option for a number, with its default in the help."""
    return click.option(option, type=kind, default=default, show_default=True, metavar=metavar, help=text)


def repeated_option(option: str, name: str, metavar: str, text: str, **more: Any) -> Decorator:
    """Return an option that may be repeated, and is passed as a tuple."""
    return click.option(option, name, multiple=True, metavar=metavar, help=text, **more)


def pairs_option(option: str, name: str, text: str) -> Decorator:
    """Return a repeated option for `key=value` pairs, which is passed as a dictionary."""
    return repeated_option(option, name, "KEY=VALUE", text, callback=parse_pairs)


def json_option(text: str) -> Decorator:
    """Return the option --json of a command."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def _remember(ctx: click.Context, parameter: click.Parameter, value: bool) -> bool:
    if value:
        ctx.meta[f"baton.{parameter.name}"] = True
    return value


def add_options(*options: Decorator) -> Decorator:
    """Combine options into one decorator; they are listed in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def collect(name: str, kind: type[Any]) -> Decorator:
    """Pass the options that are fields of a dataclass as one parameter of this name."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def call(*args: Any, **options: Any) -> Any:
            collected = kind(**{each.name: options.pop(each.name) for each in fields(kind)})
            return command(*args, **options, **{name: collected})

        return call

    return decorate


def parse_pairs(ctx: click.Context, option: click.Parameter, pairs: Sequence[str]) -> dict[str, Any]:
    """Parse the `key=value` pairs of an option; values are JSON, or else text."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"`{pair}` is not a pair; write {option.opts[0]} KEY=VALUE")
        values[key.strip()] = parse_json_or_text(text)
    return values


def parse_json_or_text(text: str) -> Any:
    """Parse JSON; return the text itself if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def check_thread(ctx: click.Context, option: click.Parameter, thread: str | None) -> str | None:
    """Refuse a name that no new thread may have."""
    from ..runs.ids import check_name

    check_name(option.opts[0], thread or "")
    return thread


def check_new_run_id(ctx: click.Context, option: click.Parameter, run_id: str | None) -> str | None:
    """Refuse an id that no new run may have."""
    from ..runs.ids import check_run_id

    check_run_id(run_id or "", option.opts[0])
    return run_id


def choose_format(*, as_json: bool, as_events: bool) -> Any:
    """Return the format that --json or --events selects: json, events or text."""
    if as_json and as_events:
        raise click.UsageError("--json and --events cannot be combined; choose one")
    return "json" if as_json else "events" if as_events else "text"


@dataclass(frozen=True, kw_only=True)
class RunArguments:
    """The values of the options that run commands share.

    Attributes:
        model: --model.
        values: --value.
        store: --store.
        thread: --thread.
        transfers: --max-transfers.
        model_calls: --max-model-calls.
        seconds: --max-seconds.
        tokens: --max-tokens.
    """

    model: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    store: str | None = None
    thread: str | None = None
    transfers: int | None = None
    model_calls: int | None = None
    seconds: float | None = None
    tokens: int | None = None

    @property
    def limits(self) -> dict[str, Any]:
        """The limits that were given, by field of `Limits`."""
        given = {name: getattr(self, name) for name in _LIMITS}
        return {name: limit for name, limit in given.items() if limit is not None}


debug = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_remember, help="Show the traceback of an error."
)


def _complete_file(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem[Any]]":
    return [CompletionItem(incomplete, type="file")]


target = click.argument("target", metavar="MODULE:AGENT", shell_complete=_complete_file)
model = click.option("--model", metavar="PROVIDER:NAME", help="The model of all agents that have none of their own.")
store = click.option(
    "--store",
    metavar="STORE",
    help="Store runs in this file or database: runs.db, postgresql://… (default: in memory).",
)
quiet = click.option("-q", "--quiet", is_flag=True, callback=_remember, help="Print only the answer.")
json_result = json_option("Print the result as one JSON object.")
FILE = click.Path(dir_okay=False, path_type=Path)
POSITIVE = click.FloatRange(min=0, min_open=True)
_LIMITS = {"transfers": click.IntRange(0), "model_calls": COUNT, "seconds": POSITIVE, "tokens": COUNT}
"""The fields of `Limits` that have an option, and their types."""


def _limit_option(name: str, kind: Any) -> Decorator:
    words = name.replace("_", " ")
    number = "S" if name == "seconds" else "N"
    option = f"--max-{name.replace('_', '-')}"
    text = f"Stop a run after {number} {words}."
    return click.option(option, name, type=kind, metavar=number, help=text)


run_options = add_options(
    model,
    pairs_option("--value", "values", "Set a value of the run; JSON is parsed."),
    store,
    click.option("--thread", metavar="ID", callback=check_thread, help="Continue this conversation; needs --store."),
    *[_limit_option(name, kind) for name, kind in _LIMITS.items()],
    debug,
    collect("arguments", RunArguments),
)
"""The options of commands that run a team, passed as `arguments`."""


def _require_authentication(command: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse an address that other machines can reach, unless authentication is configured."""

    @wraps(command)
    def call(*args: Any, host: str, **options: Any) -> Any:
        from ..serve.http.auth import is_local

        # `baton mcp` listens on an address only with --http.
        is_open = options.get("http", True) and not is_local(host)
        if is_open and not (options["token_env"] or options["auth"] or options["allow_anonymous"]):
            raise SetupError(
                f"--host {host} can be reached from other machines; say who may call with --token-env NAME or "
                "--auth MODULE:NAME, or pass --allow-anonymous"
            )
        return command(*args, host=host, **options)

    return call


reload_option = click.option(
    "--reload", is_flag=True, help="Restart the server when a Python file changes; for development."
)
server_options = add_options(
    store,
    model,
    click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on."),
    click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="The port."),
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
    number_option("--drain", 10.0, "SECONDS", "Let turns in flight finish for this long when the server is stopped."),
    click.option("--max-body", type=COUNT, metavar="BYTES", help="The largest accepted body."),
    click.option("--access-log", is_flag=True, help="Print a line for each request."),
    debug,
    _require_authentication,
)
"""The options of commands that serve a team."""
