"""The `ai_sdk_app` factory. Importable without Starlette, so that a missing extra is reported by name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ..._checks import check_arguments, check_choice, check_positive, require_extra
from ...runs import ContextFactory
from ..http.application import AppTarget, make_app, to_background_runner
from ..http.auth import AuthLike

if TYPE_CHECKING:
    from starlette.applications import Starlette


@check_arguments
def ai_sdk_app(
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
) -> "Starlette":
    """Return an ASGI app that serves a team to `useChat` of the AI SDK.

    Args:
        target: The agent, runner or background runner to serve; a runner must have a store.
        auth: The accepted credentials: a token, tokens by principal name, a function that verifies tokens, or schemes.
        allow_anonymous: Without `auth`, accept requests from other machines too.
        cors_origins: Origins whose pages may call the app.
        max_body: The largest accepted body in bytes; by default `useChat` sends the whole conversation.
        show_errors: Show callers the message of the exception that failed a run.
        context_factory: Creates the context of a run from its record; by default the runner's own.
        on_disconnect: `"cancel"` cancels a run whose client disconnects, so that `stop()` stops it; `"continue"` lets
            it run, so that a page that was loaded again can resume its stream.
        heartbeat: Seconds of silence after which a stream sends a comment.

    Raises:
        SetupError: Starlette is not installed, the runner has no store, or an argument is invalid.
    """
    check_choice("ai_sdk_app(on_disconnect=…)", on_disconnect, ("cancel", "continue"))
    check_positive("ai_sdk_app(heartbeat=…)", heartbeat)
    require_extra("ai_sdk_app(…)", "serving", "starlette")
    from starlette.routing import Route

    from ..http.guard import RequestGuard
    from .endpoint import ChatEndpoint

    background = to_background_runner(target, "ai_sdk_app", context_factory)
    guard = RequestGuard(auth, allow_anonymous=allow_anonymous, max_body=max_body, cors_origins=cors_origins)
    endpoint = ChatEndpoint(background, guard, heartbeat, show_errors, on_disconnect == "cancel")
    routes = [
        Route("/{id:path}/stream", endpoint.handle_resume, methods=["GET"]),
        Route("/{id:path}/stream", endpoint.handle_stop, methods=["DELETE"]),
        Route("/{path:path}", endpoint.handle_send, methods=["POST"]),
    ]
    return make_app(routes, background, cors_origins=cors_origins)
