"""The app: a hub, a door, and the paths of the API, as one ASGI application that can be mounted anywhere."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ...errors import SetupError
from ...runner import BackgroundRunner, Runner
from ..http import AuthLike

if TYPE_CHECKING:
    from starlette.applications import Starlette


def api_app(
    target: Runner[Any, Any] | BackgroundRunner,
    *,
    auth: AuthLike | None = None,
    context_factory: Callable[[str], Any] | None = None,
    cors_origins: Sequence[str] = (),
    max_body: int = 1 << 20,
    heartbeat: float = 15.0,
    allow_anonymous: bool = False,
    show_errors: bool = False,
) -> "Starlette":
    """The HTTP API of a runner that has a store; or of a hub, to share its runs with another app.

    While it is served, runs whose driver has died are driven on; when it ends, it leaves those it drives to others.
    `auth` says who may call: a token, tokens and whose they are, a function that knows, or any ways of auth; without
    it only this machine may, unless `allow_anyone`. `context` makes the run's context object of the caller's name.
    `cors` are origins whose pages may call. `show_errors` tells callers why a run failed, in the exception's words.
    """
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.cors import CORSMiddleware
    except ImportError:
        raise SetupError("api_app(…) needs Starlette: pip install 'baton-adk[serving]'") from None
    from ..http.guard import RequestGuard
    from .handlers import RunService, no_such_path, routes_of

    hub = target if isinstance(target, BackgroundRunner) else BackgroundRunner(target)
    door = RequestGuard(auth, allow_anyone=allow_anonymous, max_body=max_body)
    desk = RunService(hub, door, context=context_factory, heartbeat=heartbeat, show_errors=show_errors)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[None]:
        hub.start_recovery(context_factory)
        yield
        await hub.release_all()

    methods, headers = ["GET", "POST"], ["Authorization", "Content-Type", "Last-Event-ID"]
    allowed = Middleware(
        CORSMiddleware,
        allow_origins=[*cors_origins],
        allow_methods=methods,
        allow_headers=headers,
        expose_headers=["Location"],
    )
    return Starlette(
        routes=routes_of(desk),
        middleware=[allowed] if cors_origins else [],
        lifespan=lifespan,
        exception_handlers={404: no_such_path, 405: no_such_path},
    )
