"""The command `baton serve`: a team on one port, over one or several protocols."""

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from secrets import token_urlsafe
from socket import socket
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from ..errors import MissingExtraError, SetupError
from ..runs import BackgroundRunner, Runner
from ..stores import MemoryStore, Store, resolve_store
from ..stores.parts import innermost_store
from .cli_errors import TargetError
from .cli_options import POSITIVE, reload_option, repeated_option, server_options, target
from .output import write
from .targets import check_runner_options, load_object, load_target

if TYPE_CHECKING:
    from ..serve.http.auth import Auth
    from ..serve.studio import StudioApp


def load_auth(token_env: str | None, reference: str | None) -> "tuple[Auth, ...]":
    """Return the authentication that --token-env or --auth names; empty if neither is given."""
    from ..serve.http.auth import to_auth_list

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


PROTOCOLS = {"a2a": "/a2a", "agui": "/agui", "openai": "/v1", "ai_sdk": "/api/chat", "api": ""}
"""The paths of the protocols, by option. Each has a function `<name>_app`; the one without a path comes last."""
STUDIO_PATH = "/studio"


def serve_app(
    make_app: Callable[..., Any],
    notice: Callable[[str], str],
    *,
    host: str,
    port: int,
    token_env: str | None,
    auth: str | None,
    allow_anonymous: bool,
    drain: float,
    max_body: int | None,
    access_log: bool,
    store: Store | None = None,
    studios: "list[StudioApp] | None" = None,
) -> None:
    """Create an app with the authentication of the command line and serve it until Ctrl-C."""
    from ..serve.http.application import ACCESS_LOGGER, AccessLog
    from ..serve.server import check_server, listen, run_server, url_of

    methods = load_auth(token_env, auth) or None
    limits = {} if max_body is None else {"max_body": max_body}
    app = make_app(auth=methods, allow_anonymous=allow_anonymous, **limits)
    check_server(host, allow_anonymous=methods is not None or allow_anonymous)
    reloader: ReloaderState | None = click.get_current_context().obj
    if reloader is not None:
        for studio in studios or ():
            studio.session.secret = reloader.studio_secret
    if access_log:
        ACCESS_LOGGER.setLevel(logging.INFO)
        app = AccessLog(app)

    async def check_store() -> None:
        if store is not None:
            await store.list(limit=1)

    with listen(host, port) if reloader is None else nullcontext(reloader.sockets) as opened:
        run_server(
            app,
            opened,
            drain=drain,
            on_start=check_store,
            on_ready=lambda: write(notice(url_of(host, opened)), err=True),
            log_config=None,
        )


def make_app(
    runner: Runner[Any, Any], protocols: Sequence[str], *, studios: "list[StudioApp] | None" = None, **options: Any
) -> Any:
    """Create one app for several protocols; it also recovers runs whose worker has died."""
    from ..serve.http.application import make_app as make_http_app

    try:
        from starlette.responses import HTMLResponse
        from starlette.routing import BaseRoute, Mount, Route

        from ..serve.http.guard import RequestGuard
    except ImportError as missing:
        raise MissingExtraError("baton serve", "serving", missing) from missing

    background = BackgroundRunner(runner)
    apps = {path: _protocol_app(name, background, options) for name, path in PROTOCOLS.items() if name in protocols}
    # A mount alone would redirect requests for its exact path.
    routes: list[BaseRoute] = [Route(path, app) for path, app in apps.items() if path]
    routes += [Mount(path, app) for path, app in apps.items()]
    if studios is not None:
        from ..serve.studio import studio_app

        studios.append(studio_app(background, auth=options.get("auth")))
        routes.insert(0, Mount(STUDIO_PATH, studios[0]))
    guard = RequestGuard(options.get("auth"), allow_anonymous=options.get("allow_anonymous", False))
    page = HTMLResponse(_landing_page(protocols), headers={"Content-Security-Policy": "default-src 'none'"})

    async def landing(request: Any) -> Any:
        return page

    routes.insert(0, Route("/", guard.protect(landing), methods=["GET"]))

    async def close() -> None:
        for app in apps.values():
            if isinstance(close_app := getattr(app, "close", None), Callable):
                await close_app()
        await runner.close()

    return make_http_app(routes, background, close=close)


_LINKS = {
    "api": 'HTTP API: <a href="openapi.json">OpenAPI document</a>, <a href="health">health check</a>',
    "agui": "AG-UI: send requests to <code>/agui</code>",
    "openai": 'OpenAI: <a href="v1/models">models</a>; the base URL of clients ends with <code>/v1</code>',
    "ai_sdk": "AI SDK: <code>useChat</code> sends requests to <code>/api/chat</code>",
    "a2a": 'A2A: <a href="a2a/.well-known/agent-card.json">agent card</a>',
}


def _landing_page(protocols: Sequence[str]) -> str:
    """Return the page at `/`, with links to the protocols and nothing about the team."""
    items = "".join([f"<li>{_LINKS[name]}</li>" for name in _LINKS if name in protocols])
    return f'<!doctype html><html lang="en"><title>Baton</title><h1>Baton</h1><ul>{items}</ul></html>'


def _protocol_app(name: str, background: BackgroundRunner, options: Mapping[str, Any]) -> Any:
    from .. import serve as serving

    try:
        make = getattr(serving, f"{name}_app")
    except ImportError as missing:
        # Only A2A imports its SDK when it is loaded.
        raise MissingExtraError("baton serve --a2a", "a2a", missing) from missing
    return make(background, **options)


def make_runner(target: str, *, store: str | None, model: str | None, lease: float | None = None) -> Runner[Any, Any]:
    """Return the runner to serve: the target itself, or one for the target agent."""
    loaded = load_target(target)
    if not isinstance(loaded, Runner):
        return Runner(loaded, model=model, store=resolve_store(store or "memory:", lease_seconds=lease))
    check_runner_options(target, "model and store", {"--model": model, "--store": store})
    if lease is not None:
        raise TargetError(f"`{target}` is a Runner; give its store lease_seconds={lease:g} instead of --lease")
    loaded._require_store("baton serve")
    return loaded


@click.command("serve")
@target
@click.option("--api", is_flag=True, help="Serve the HTTP API (the default).")
@click.option("--a2a", is_flag=True, help="Serve the A2A protocol at /a2a, for agents of other systems.")
@click.option("--agui", is_flag=True, help="Serve the AG-UI protocol at /agui, for user interfaces.")
@click.option(
    "--openai", is_flag=True, help="Serve the team as a model of OpenAI's API at /v1, for chat programs and SDKs."
)
@click.option("--ai-sdk", is_flag=True, help="Serve useChat of the AI SDK at /api/chat, for web pages.")
@click.option("--studio", is_flag=True, help="Serve Studio at /studio; its URL works once.")
@repeated_option("--cors-origin", "cors_origins", "ORIGIN", "Allow browser requests from this origin; may be repeated.")
@click.option("--show-errors", is_flag=True, help="Tell clients why a run failed.")
@click.option(
    "--lease",
    type=POSITIVE,
    metavar="SECONDS",
    help="Reserve runs for this long; if the process dies, others take them over afterwards (default: 30).",
)
@reload_option
@server_options
def serve_command(
    *,
    target: str,
    store: str | None,
    model: str | None,
    cors_origins: tuple[str, ...],
    show_errors: bool,
    lease: float | None,
    reload: bool,
    studio: bool,
    **options: Any,
) -> None:
    """Serve a team over HTTP.

    Without authentication, only requests from this machine are accepted.

    \b
    Examples:
      baton serve desk:router --store runs.db
      baton serve desk:router --store runs.db --host 0.0.0.0 --token-env DESK_TOKEN
      baton serve desk:router --store runs.db --auth desk:auth
      baton serve desk:router --store runs.db --openai --token-env DESK_KEYS
      baton serve desk:router --agui --cors-origin http://localhost:3000
      baton serve desk:router --ai-sdk --cors-origin http://localhost:5173
      baton serve desk:router --reload --access-log
      baton serve desk:router --store runs.db --studio
    """
    if reload:
        serve_with_reload(options["host"], options["port"])
        return
    runner = make_runner(target, store=store, model=model, lease=lease)
    names = [name for name in PROTOCOLS if options.pop(name)] or ["api"]
    runs = runner._require_store("baton serve")
    studios: list[StudioApp] | None = [] if studio else None

    def notice(url: str) -> str:
        lines = [f"{name}: {url}{PROTOCOLS[name]}" for name in names]
        lines += [f"studio: {app.url(url + STUDIO_PATH)}" for app in studios or ()]
        if isinstance(innermost_store(runs), MemoryStore):
            lines.append("runs are stored in memory only; use --store to keep them")
        return "\n".join(lines)

    app = partial(make_app, runner, names, studios=studios, cors_origins=cors_origins, show_errors=show_errors)
    serve_app(app, notice, store=runs, studios=studios, **options)


def serve_with_reload(host: str, port: int) -> None:
    """Run this command without --reload in a process that is restarted when a file changes."""
    from ..serve.server import check_server, listen

    # The other process checks whether the host may be served.
    check_server(host, allow_anonymous=True)
    from uvicorn import Config
    from uvicorn.supervisors.statreload import StatReload

    class Reloader(StatReload):
        """Notices every change since before the process that serves was started.

        uvicorn looks at the files a moment after the start: what changes until then would never be loaded.
        """

        def startup(self) -> None:
            self.mtimes = self._modification_times()
            super().startup()

        def restart(self) -> None:
            times = self._modification_times()
            super().restart()
            self.mtimes = times

        def _modification_times(self) -> dict[Path, float]:
            times: dict[Path, float] = {}
            for file in self.iter_py_files():
                with suppress(FileNotFoundError):
                    times[file] = file.stat().st_mtime
            return times

    arguments = [argument for argument in sys.argv[1:] if argument != "--reload"]
    config = Config(__name__, reload=True, log_level="warning", log_config=None)
    with listen(host, port) as sockets:
        Reloader(config, target=partial(_serve_reloaded, arguments, token_urlsafe(32)), sockets=sockets).run()


class ReloaderState(NamedTuple):
    """State that a process which reloads the server passes to each process that serves."""

    sockets: list[socket]
    studio_secret: str
    """The value of Studio's cookie, so that browsers stay signed in."""


def _serve_reloaded(arguments: list[str], studio_secret: str, sockets: list[socket] | None) -> None:
    from .main import main

    main(arguments, obj=ReloaderState(sockets or [], studio_secret))
