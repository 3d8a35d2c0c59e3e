"""The app: one path that takes a request for a run and answers with the stream of what happens in it."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from ...errors import SetupError, check_choice
from ...runner import BackgroundRunner, Runner
from ..http import AuthLike

if TYPE_CHECKING:
    from starlette.applications import Starlette


def agui_app(
    target: Runner[Any, Any] | BackgroundRunner,
    *,
    auth: AuthLike | None = None,
    context_factory: Callable[[str], Any] | None = None,
    cors_origins: Sequence[str] = (),
    max_body: int = 10 << 20,
    heartbeat: float = 15.0,
    on_disconnect: Literal["cancel", "continue"] = "cancel",
    allow_anonymous: bool = False,
    show_errors: bool = False,
) -> "Starlette":
    """An app that speaks AG-UI for a runner that has a store; or for a hub, to share its runs with another app.

    A request that is broken off cancels its run, as the protocol has no other way to do so, unless `on_disconnect` says
    "continue". All else is as for `baton.server.api_app`.
    """
    check_choice("serve_agui(on_disconnect=…)", on_disconnect, ("cancel", "continue"))
    try:
        import ag_ui.core as _  # noqa: F401
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.cors import CORSMiddleware
    except ImportError:
        raise SetupError("serve_agui(…) needs ag-ui-protocol and Starlette: pip install 'baton-adk[agui]'") from None
    from ..http.guard import RequestGuard
    from .endpoint import AGUIEndpoint, AGUIOptions, routes_of

    hub = target if isinstance(target, BackgroundRunner) else BackgroundRunner(target)
    hub.runner._require_store("AG-UI")
    door = RequestGuard(auth, allow_anyone=allow_anonymous, max_body=max_body)
    wishes = AGUIOptions(
        context_factory, heartbeat=heartbeat, stays=on_disconnect == "continue", show_errors=show_errors
    )
    headers = ["Authorization", "Content-Type", "Accept"]
    allowed = Middleware(CORSMiddleware, allow_origins=[*cors_origins], allow_methods=["POST"], allow_headers=headers)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[None]:
        hub.start_recovery(context_factory)
        yield
        await hub.release_all()

    return Starlette(
        routes=routes_of(AGUIEndpoint(hub, door, wishes)),
        middleware=[allowed] if cors_origins else [],
        lifespan=lifespan,
    )
