"""`baton serve`: one team on one port, with as many faces as are asked for; all show the same runs.

Who may call what is served, as the command line says it.

`baton serve`: its options. Each face of a team (--api, --agui) is one of them; `serve` has what they stand for.
"""

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
import msgspec

from ..errors import SetupError
from ..runner import BackgroundRunner, Runner
from ..stores import MemoryStore
from .errors import TargetError
from .options import auth_options, debug, is_debugging, model, target
from .targets import load, load_any

if TYPE_CHECKING:
    from ..serving.http import Auth, AuthLike


def auth_from(token_env: str | None, reference: str | None) -> "tuple[Auth, ...]":
    """The ways that the options name; none if they name none."""
    from ..serving.http.auth import to_auth_list

    if token_env is not None and reference is not None:
        raise TargetError("--token-env and --auth both say who may call; give one of them")
    if token_env is not None:
        return to_auth_list(token_from(token_env))
    if reference is None:
        return ()
    try:
        return to_auth_list(load_any(reference))
    except (SetupError, TypeError, AttributeError) as error:
        raise TargetError(f"`{reference}` is no way to know callers, nor a list of them: {error}") from None


def token_from(variable: str) -> str | Mapping[str, str]:
    """The token, or the tokens and whose they are, in an environment variable."""
    given = os.environ.get(variable, "").strip()
    if not given:
        raise TargetError(f"there is nothing in the environment variable `{variable}` that --token-env names")
    if not given.startswith("{"):
        return given
    try:
        return msgspec.json.decode(given, type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise TargetError(f"`{variable}` is not a JSON object of tokens and names: {error}") from None


@dataclass(frozen=True, kw_only=True)
class AppOptions:
    """What is the same for all faces."""

    auth: "AuthLike | None" = None
    cors_origins: tuple[str, ...] = ()
    allow_anonymous: bool = False
    show_errors: bool = False


Face: TypeAlias = Callable[[BackgroundRunner, AppOptions], Any]
"""Makes the ASGI app of one face."""


def _api(hub: BackgroundRunner, manner: AppOptions) -> Any:
    from ..serving import api_app

    return api_app(hub, **vars(manner))


def _agui(hub: BackgroundRunner, manner: AppOptions) -> Any:
    from ..serving.agui import agui_app

    return agui_app(hub, **vars(manner))


def _a2a(hub: BackgroundRunner, manner: AppOptions) -> Any:
    try:
        from ..serving.a2a import a2a_app
    except ImportError:
        raise SetupError("baton serve --a2a needs the SDK of A2A: pip install 'baton-adk[a2a]'") from None
    return a2a_app(hub, **vars(manner))


FACES: dict[str, tuple[str, Face]] = {
    "a2a": ("/a2a", _a2a),
    "agui": ("/agui", _agui),
    "api": ("", _api),
}
"""The faces there are, by their option: the path, and what makes the app. The one without a path comes last."""


def run_server(
    target: str,
    *,
    store: str | None,
    model: str | None,
    host: str,
    port: int,
    token_env: str | None,
    auth: str | None,
    cors: tuple[str, ...],
    allow_anyone: bool,
    show_errors: bool,
    **faces: bool,
) -> None:
    """Serve what the command line names until Ctrl-C."""
    try:
        from ..serving import serve as listen
    except ImportError:
        raise SetupError("baton serve needs a server: pip install 'baton-adk[serving]'") from None
    runner = runner_of(target, store=store, model=model)
    ways = auth_from(token_env, auth)
    manner = AppOptions(auth=ways or None, cors_origins=cors, allow_anonymous=allow_anyone, show_errors=show_errors)
    wanted = [name for name in FACES if faces.get(name)] or ["api"]
    app = app_of(runner, wanted, manner)
    for name in wanted:
        click.echo(f"{name}: http://{host}:{port}{FACES[name][0]}", err=True)
    if isinstance(runner._require_store("baton serve"), MemoryStore):
        click.echo("runs are kept in memory and end with this program; --store keeps them", err=True)
    listen(app, host=host, port=port, allow_anonymous=bool(ways) or allow_anyone)


def app_of(runner: Runner[Any, Any], faces: list[str], manner: AppOptions) -> Any:
    """One app with these faces of one hub. While it is served, runs whose driver has died are driven on."""
    from starlette.applications import Starlette
    from starlette.routing import BaseRoute, Mount, Route

    hub = BackgroundRunner(runner)
    routes: list[BaseRoute] = []
    apps: list[Any] = []
    for name, (path, made) in FACES.items():
        if name in faces:
            face = made(hub, manner)
            apps.append(face)
            # A mount alone would send those elsewhere who ask for its very path.
            routes += [*([Route(path, face)] if path else []), Mount(path, face)]

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[None]:
        hub.caretaker.start()
        yield
        for face in apps:
            if isinstance(close := getattr(face, "close", None), Callable):
                await close()
        await hub.release_all()
        await runner.close()

    return Starlette(routes=routes, lifespan=lifespan)


def runner_of(target: str, *, store: str | None, model: str | None) -> Runner[Any, Any]:
    """The runner that is served: the one that is named, or one around the agent that is named."""
    named = load(target)
    if not isinstance(named, Runner):
        return Runner(named, model=model, store=store or "memory:")
    if model is not None or store is not None:
        raise TargetError(
            f"`{target}` is a Runner, which says itself which model and store it uses; "
            "leave --model and --store out, or name the agent instead of the runner"
        )
    named._require_store("baton serve")
    return named


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
    from .errors import warnings_on_stderr

    with warnings_on_stderr(debug=is_debugging(ctx), quiet=False):
        run_server(target, **options)
