"""The command `baton serve`: a team on one port, over one or several protocols."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click
import msgspec

from ..errors import SetupError
from ..runner import BackgroundRunner, Runner
from ..stores import MemoryStore
from .errors import TargetError, warnings_on_stderr
from .options import add_options, auth_options, debug, is_debugging, model, store, target
from .targets import load_object, load_target

if TYPE_CHECKING:
    from ..serving.http import Auth, AuthLike


def load_auth(token_env: str | None, reference: str | None) -> "tuple[Auth, ...]":
    """Return the authentication that --token-env or --auth names; empty if neither is given."""
    from ..serving.http.auth import to_auth_list

    if token_env is not None and reference is not None:
        raise TargetError("--token-env and --auth cannot be combined; choose one")
    if token_env is not None:
        return to_auth_list(read_tokens(token_env))
    if reference is None:
        return ()
    try:
        return to_auth_list(load_object(reference))
    except (SetupError, TypeError, AttributeError) as error:
        raise TargetError(f"`{reference}` is not an authentication object or a list of them: {error}") from None


def read_tokens(variable: str) -> str | Mapping[str, str]:
    """Read the token, or the tokens and their owners, from an environment variable."""
    value = os.environ.get(variable, "").strip()
    if not value:
        raise TargetError(f"the environment variable `{variable}` named by --token-env is empty")
    if not value.startswith("{"):
        return value
    try:
        return msgspec.json.decode(value, type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise TargetError(f"`{variable}` is not a JSON object of tokens and owners: {error}") from None


@dataclass(frozen=True, kw_only=True)
class AppOptions:
    """The options that all protocols share.

    Attributes:
        auth: The authentication; None accepts every request.
        cors_origins: The origins whose pages may send requests.
        allow_anonymous: Accept requests from other machines without authentication.
        show_errors: Tell clients why a run failed.
    """

    auth: "AuthLike | None" = None
    cors_origins: tuple[str, ...] = ()
    allow_anonymous: bool = False
    show_errors: bool = False


AppFactory: TypeAlias = Callable[[BackgroundRunner, AppOptions], Any]
"""Creates the ASGI app of one protocol."""


def _api(background: BackgroundRunner, options: AppOptions) -> Any:
    from ..serving import api_app

    return api_app(background, **vars(options))


def _agui(background: BackgroundRunner, options: AppOptions) -> Any:
    from ..serving.agui import agui_app

    return agui_app(background, **vars(options))


def _a2a(background: BackgroundRunner, options: AppOptions) -> Any:
    try:
        from ..serving.a2a import a2a_app
    except ImportError:
        raise SetupError("baton serve --a2a needs the A2A SDK: pip install 'baton-adk[a2a]'") from None
    return a2a_app(background, **vars(options))


PROTOCOLS: dict[str, tuple[str, AppFactory]] = {
    "a2a": ("/a2a", _a2a),
    "agui": ("/agui", _agui),
    "api": ("", _api),
}
"""The protocols by option: path and app factory. The one without a path comes last."""


def run_server(
    target: str,
    *,
    store: str | None,
    model: str | None,
    host: str,
    port: int,
    token_env: str | None,
    auth: str | None,
    cors_origins: tuple[str, ...],
    allow_anonymous: bool,
    show_errors: bool,
    **protocols: bool,
) -> None:
    """Serve a team until Ctrl-C."""
    try:
        from ..serving import serve as serve
    except ImportError:
        raise SetupError("baton serve needs the serving extra: pip install 'baton-adk[serving]'") from None
    runner = make_runner(target, store=store, model=model)
    methods = load_auth(token_env, auth)
    options = AppOptions(
        auth=methods or None, cors_origins=cors_origins, allow_anonymous=allow_anonymous, show_errors=show_errors
    )
    names = [name for name in PROTOCOLS if protocols.get(name)] or ["api"]
    app = make_app(runner, names, options)
    for name in names:
        click.echo(f"{name}: http://{host}:{port}{PROTOCOLS[name][0]}", err=True)
    if isinstance(runner._require_store("baton serve"), MemoryStore):
        click.echo("runs are stored in memory only; use --store to keep them", err=True)
    serve(app, host=host, port=port, allow_anonymous=bool(methods) or allow_anonymous)


def make_app(runner: Runner[Any, Any], protocols: list[str], options: AppOptions) -> Any:
    """Create one app for several protocols; it also recovers runs whose worker has died."""
    from starlette.applications import Starlette
    from starlette.routing import BaseRoute, Mount, Route

    background = BackgroundRunner(runner)
    routes: list[BaseRoute] = []
    apps: list[Any] = []
    for name, (path, make_protocol_app) in PROTOCOLS.items():
        if name in protocols:
            app = make_protocol_app(background, options)
            apps.append(app)
            # A mount alone would redirect requests for its exact path.
            routes += [*([Route(path, app)] if path else []), Mount(path, app)]

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[None]:
        background.start_recovery()
        yield
        for app in apps:
            if isinstance(close := getattr(app, "close", None), Callable):
                await close()
        await background.release_all()
        await runner.close()

    return Starlette(routes=routes, lifespan=lifespan)


def make_runner(target: str, *, store: str | None, model: str | None) -> Runner[Any, Any]:
    """Return the runner to serve: the target itself, or one for the target agent."""
    loaded = load_target(target)
    if not isinstance(loaded, Runner):
        return Runner(loaded, model=model, store=store or "memory:")
    if model is not None or store is not None:
        raise TargetError(
            f"`{target}` is a Runner, which has its own model and store; "
            "leave --model and --store out, or name the agent instead of the runner"
        )
    loaded._require_store("baton serve")
    return loaded


_serve_options = add_options(
    click.option("--api", is_flag=True, help="Serve the HTTP API (the default)."),
    click.option("--a2a", is_flag=True, help="Serve the A2A protocol at /a2a, for agents of other systems."),
    click.option("--agui", is_flag=True, help="Serve the AG-UI protocol at /agui, for user interfaces."),
    store,
    model,
    click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on."),
    click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="The port."),
    click.option(
        "--cors-origin",
        "cors_origins",
        multiple=True,
        metavar="ORIGIN",
        help="Allow browser requests from this origin; may be repeated.",
    ),
    click.option("--show-errors", is_flag=True, help="Tell clients why a run failed."),
)


@click.command("serve")
@target
@_serve_options
@auth_options
@debug
@click.pass_context
def serve_command(ctx: click.Context, /, *, target: str, **options: Any) -> None:
    """Serve a team over HTTP.

    Without authentication, only requests from this machine are accepted.

    \b
    Examples:
      baton serve desk:router --store runs.db
      baton serve desk:router --store runs.db --host 0.0.0.0 --token-env DESK_TOKEN
      baton serve desk:router --store runs.db --auth desk:auth
      baton serve desk:router --agui --cors-origin http://localhost:3000
    """
    with warnings_on_stderr(debug=is_debugging(ctx), quiet=False):
        run_server(target, **options)
