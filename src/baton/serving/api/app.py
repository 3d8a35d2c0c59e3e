"""The `api_app` factory. Importable without Starlette, so that a missing extra is reported by name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import SetupError
from ..http import AuthLike
from ..http.app import AppTarget, ContextFactory, make_app, to_background_runner

if TYPE_CHECKING:
    from starlette.applications import Starlette


def api_app(
    target: AppTarget,
    /,
    *,
    auth: AuthLike | None = None,
    allow_anonymous: bool = False,
    cors_origins: Sequence[str] = (),
    max_body: int = 1 << 20,
    show_errors: bool = False,
    context_factory: ContextFactory | None = None,
    heartbeat: float = 15.0,
) -> "Starlette":
    """Return the HTTP API of a team as an ASGI app.

    While the app is served, it takes over runs whose worker has died; at shutdown it releases its runs to others.

    Args:
        target: The agent, runner or background runner to serve; a runner must have a store.
        auth: Who may call: a token, tokens by principal name, a function that verifies tokens, or auth schemes.
        allow_anonymous: Without `auth`, accept requests from other machines too.
        cors_origins: Origins whose pages may call the API.
        max_body: The largest accepted body in bytes.
        show_errors: Show callers the message of the exception that failed a run.
        context_factory: Creates the run's context object from the owner's name.
        heartbeat: Seconds of silence after which an event stream sends a comment.

    Raises:
        SetupError: Starlette is not installed, the runner has no store, or an argument is invalid.
    """
    try:
        import starlette.applications as _  # noqa: F401
    except ImportError:
        raise SetupError("api_app(…) needs Starlette: pip install 'baton-adk[serving]'") from None
    from ..http.guard import RequestGuard
    from .handlers import RunService, make_routes, unknown_path

    background = to_background_runner(target, "api_app")
    guard = RequestGuard(auth, allow_anonymous=allow_anonymous, max_body=max_body)
    service = RunService(
        background, guard, context_factory=context_factory, heartbeat=heartbeat, show_errors=show_errors
    )
    return make_app(
        background,
        make_routes(service),
        cors_origins=cors_origins,
        context_factory=context_factory,
        exception_handlers={404: unknown_path, 405: unknown_path},
    )
