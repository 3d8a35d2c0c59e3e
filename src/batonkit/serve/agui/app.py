"""The `agui_app` factory. Importable without Starlette and ag_ui, so that a missing extra is reported by name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from ..._checks import check_arguments, check_choice, check_positive, require_extra
from ...runs import ContextFactory
from ...runs.run_args import WhenBusy
from ..http.application import AppTarget, make_app, to_background_runner
from ..http.auth import AuthLike

if TYPE_CHECKING:
    from starlette.applications import Starlette


@check_arguments
def agui_app(
    target: AppTarget,
    /,
    *,
    auth: AuthLike | None = None,
    allow_anonymous: bool = False,
    cors_origins: Sequence[str] = (),
    max_body: int = 10 << 20,
    show_errors: bool = False,
    context_factory: ContextFactory | None = None,
    on_disconnect: Literal["cancel", "continue"] = "cancel",
    heartbeat: float = 15.0,
    when_busy: WhenBusy = "error",
    client_history: bool = False,
) -> "Starlette":
    """Return an ASGI app that serves a team over AG-UI.

    Args:
        target: The agent, runner or background runner to serve; a runner must have a store.
        auth: The accepted credentials: a token, tokens by principal name, a function that verifies tokens, or schemes.
        allow_anonymous: Without `auth`, accept requests from other machines too.
        cors_origins: Origins whose pages may call the app.
        max_body: The largest accepted body in bytes; a request carries the whole conversation.
        show_errors: Show callers the message of the exception that failed a run.
        context_factory: Creates the context of a run from its record; by default the runner's own.
        on_disconnect: `"cancel"` cancels a run whose client disconnects; `"continue"` lets it run.
        heartbeat: Seconds of silence after which an event stream sends a comment.
        when_busy: The way to handle a message for a thread with an unfinished run, as in `Runner.run`. A request may
            choose another in `forwardedProps`: `{"whenBusy": "queue"}`.
        client_history: Read the whole conversation of a request if the store does not know its thread, instead of only
            what the user added at the end. The models believe it, so this is for clients that you trust to report
            what was said.

    Raises:
        SetupError: A library is not installed, the runner has no store, or an argument is invalid.
    """
    check_choice("agui_app(on_disconnect=…)", on_disconnect, ("cancel", "continue"))
    check_choice("agui_app(when_busy=…)", when_busy, get_args(WhenBusy))
    require_extra("agui_app(…)", "agui", "ag_ui", "starlette")
    from starlette.routing import Route

    from ..http.guard import RequestGuard
    from .endpoint import AGUIEndpoint

    check_positive("agui_app(heartbeat=…)", heartbeat)
    background = to_background_runner(target, "agui_app", context_factory)
    guard = RequestGuard(auth, allow_anonymous=allow_anonymous, max_body=max_body, cors_origins=cors_origins)
    cancels = on_disconnect == "cancel"
    endpoint = AGUIEndpoint(background, guard, heartbeat, show_errors, cancels, when_busy, client_history)
    routes = [Route("/{path:path}", endpoint.handle, methods=["POST"])]
    return make_app(routes, background, cors_origins=cors_origins)
