"""`baton serve`: one team on one port, with as many faces as are asked for; all show the same runs."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from ..errors import SetupError
from ..runner import BackgroundRunner, Runner
from ..stores import MemoryStore
from .callers import auth_from
from .failures import TargetError
from .load import load

if TYPE_CHECKING:
    from ..adapters.http import AuthLike


@dataclass(frozen=True, kw_only=True)
class AppOptions:
    """What is the same for all faces."""

    auth: "AuthLike | None" = None
    cors: tuple[str, ...] = ()
    allow_anyone: bool = False
    show_errors: bool = False


Face: TypeAlias = Callable[[BackgroundRunner, AppOptions], Any]
"""Makes the ASGI app of one face."""


def _api(hub: BackgroundRunner, manner: AppOptions) -> Any:
    from ..server import api_app

    return api_app(hub, **vars(manner))


def _agui(hub: BackgroundRunner, manner: AppOptions) -> Any:
    from ..adapters.agui import agui_app

    return agui_app(hub, **vars(manner))


def _a2a(hub: BackgroundRunner, manner: AppOptions) -> Any:
    try:
        from ..adapters.a2a import a2a_app
    except ImportError:
        raise SetupError("baton serve --a2a needs the SDK of A2A: pip install 'baton-adk[a2a]'") from None
    return a2a_app(hub, auth=manner.auth)


FACES: dict[str, tuple[str, Face]] = {
    "a2a": ("/a2a", _a2a),
    "agui": ("/agui", _agui),
    "api": ("", _api),
}
"""The faces there are, by their option: the path, and what makes the app. The one without a path comes last."""


def serve(
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
        from ..server import serve as listen
    except ImportError:
        raise SetupError("baton serve needs a server: pip install 'baton-adk[server]'") from None
    runner = runner_of(target, store=store, model=model)
    ways = auth_from(token_env, auth)
    manner = AppOptions(auth=ways or None, cors=cors, allow_anyone=allow_anyone, show_errors=show_errors)
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
