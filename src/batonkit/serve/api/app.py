"""The `api_app` factory. Importable without Starlette, so that a missing extra is reported by name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..._checks import check_arguments, check_positive, require_extra
from ...runs import ContextFactory
from ..http.application import AppTarget, make_app, to_background_runner
from ..http.auth import AuthLike
from .client_options import NO_OPTIONS, ClientOptions

if TYPE_CHECKING:
    from starlette.applications import Starlette


@check_arguments
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
    client_options: ClientOptions | None = None,
    client_history: bool = False,
    inspection: bool = False,
) -> "Starlette":
    """Return the HTTP API of a team as an ASGI app.

    While the app is served, it takes over runs whose worker has died; at shutdown it lets turns in flight
    finish and leaves its runs to others.

    Args:
        target: The agent, runner or background runner to serve; a runner must have a store.
        auth: The accepted credentials: a token, tokens by principal name, a function that verifies tokens, or schemes.
        allow_anonymous: Without `auth`, accept requests from other machines too.
        cors_origins: Origins whose pages may call the API.
        max_body: The largest accepted body in bytes.
        show_errors: Show callers the message of the exception that failed a run.
        context_factory: Creates the context of a run from its record; by default the runner's own.
        heartbeat: Seconds of silence after which an event stream sends a comment.
        client_options: The options of a run, such as its model, that clients may set; none by default.
        client_history: Accept messages of agents and results of tools in the input of a run, not only those of the
            user. The models believe them, so this is for clients that you trust to report what was said.
        inspection: Add the endpoints for developers: the team, logs and model requests as recorded, forks with any
            model and instructions, replays and comparisons. Anyone who may call them reads instructions and errors.

    Raises:
        SetupError: Starlette is not installed, the runner has no store, or an argument is invalid.
    """
    require_extra("api_app(…)", "serving", "starlette")
    from ..http.guard import RequestGuard
    from .handlers import RunEndpoints
    from .inspection_endpoints import InspectionEndpoints
    from .overview import OverviewEndpoints
    from .routes import make_routes, unknown_path

    check_positive("api_app(heartbeat=…)", heartbeat)
    background = to_background_runner(target, "api_app", context_factory)
    guard = RequestGuard(auth, allow_anonymous=allow_anonymous, max_body=max_body, cors_origins=cors_origins)
    shared = (background, guard, heartbeat, show_errors)
    runs = RunEndpoints(*shared, client_options=client_options or NO_OPTIONS, client_history=client_history)
    developers = [InspectionEndpoints(*shared)] if inspection else []
    routes = make_routes([runs, OverviewEndpoints(*shared), *developers], guard, inspection=inspection)
    handlers = dict.fromkeys((404, 405), unknown_path)
    return make_app(routes, background, cors_origins=cors_origins, handlers=handlers)
