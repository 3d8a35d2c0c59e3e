"""The ASGI app of Studio: the page, its files, sign-in, and the HTTP API with the endpoints for developers."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ..._checks import check_arguments, require_extra
from ...runs import BackgroundRunner, ContextFactory
from ...version import __version__
from ..http.application import SHUTDOWN, AppTarget, Shutdown, to_background_runner
from ..http.auth import Auth, AuthLike, Principal, authenticate, to_auth_list
from .page_files import ASSETS, read_asset
from .session import DeveloperAuth, StudioSession

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_SIGN_IN = "Open the URL that `baton studio` printed. Its token works once: start Studio again for another browser.\n"


class StudioConfig(msgspec.Struct, frozen=True):
    """The properties of a Studio that its page needs."""

    version: str
    can_write: bool
    """True if runs can be started, answered, forked and replayed."""
    root: str
    """The agent that runs start with; "" without a team."""


class StudioApp:
    """An app that serves Studio, and the token that opens it.

    Args:
        app: The app.
        session: The sign-in.
    """

    def __init__(self, app: "ASGIApp", session: StudioSession) -> None:
        self._app = app
        self.session = session
        """The sign-in; its `token` opens the page once."""

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: "Message") -> None:
            if message["type"] == "http.response.start":
                given = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *given]}
            await send(message)

        await self._app(scope, receive, with_headers)

    def url(self, base: str, place: str = "") -> str:
        """Return the URL that opens the page once.

        Args:
            base: The URL at which the app is served.
            place: The run, and after `@` the event, to show.
        """
        return f"{base.rstrip('/')}/?token={self.session.token}" + (f"#{place}" if place else "")


@check_arguments
def studio_app(
    target: AppTarget,
    /,
    *,
    auth: AuthLike | None = None,
    context_factory: ContextFactory | None = None,
    can_write: bool = True,
    max_body: int = 16 << 20,
) -> StudioApp:
    """Return Studio for a team as an ASGI app.

    Requests need the cookie that the printed URL sets, or the credentials of `auth`. Runs of other workers are shown,
    but never taken over: Studio drives only the runs that are started, answered or forked on its page.

    Args:
        target: The agent, runner or background runner; a runner must have a store.
        auth: Further accepted credentials, if their principal sees all runs; those of one owner open nothing. A token
            may also be used in the URL instead of the printed one.
        context_factory: Creates the context of a run from its record; by default the runner's own.
        can_write: Whether runs can be started, answered, forked, replayed and deleted.
        max_body: The largest accepted body in bytes.

    Raises:
        SetupError: Starlette is not installed, the runner has no store, or an argument is invalid.
    """
    require_extra("studio_app(…)", "serving", "starlette")
    background = to_background_runner(target, "studio_app", context_factory)
    studio = _Studio(
        background=background,
        session=StudioSession(),
        auth=[DeveloperAuth(scheme) for scheme in to_auth_list(auth)],
        can_write=can_write,
        max_body=max_body,
    )
    return StudioApp(studio.starlette(), studio.session)


@dataclass(eq=False, kw_only=True)
class _Studio:
    """The routes of Studio."""

    background: BackgroundRunner
    session: StudioSession
    auth: Sequence[Auth]
    """The accepted credentials besides the session."""
    can_write: bool
    max_body: int

    @property
    def _schemes(self) -> Sequence[Auth]:
        return (self.session, *self.auth)

    def starlette(self) -> "Starlette":
        from starlette.applications import Starlette

        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncGenerator[dict[str, Any]]:
            self.background._reopen()
            try:
                yield {SHUTDOWN: Shutdown(self.background)}
            finally:
                await self.background.drain()

        return Starlette(routes=self._routes(), lifespan=lifespan)

    def _routes(self) -> "list[BaseRoute]":
        from starlette.routing import Mount, Route

        from ..api import api_app

        api = api_app(
            self.background,
            auth=self._schemes,
            max_body=self.max_body,
            show_errors=True,
            inspection=True,
        )
        return [
            Route("/", self._page, methods=["GET"]),
            Route("/config.json", self._config, methods=["GET"]),
            Route("/export/{id}.html", self._export, methods=["GET"]),
            *[Route(f"/{name}", self._asset, methods=["GET"]) for name in ASSETS],
            Mount("/api", api if self.can_write else _ReadOnly(api)),
        ]

    async def _page(self, request: "Request") -> "Response":
        from starlette.responses import PlainTextResponse, RedirectResponse, Response

        token = request.query_params.get("token", "")
        if token:
            if not self.session.exchange(token) and not await self._accepts(token):
                return PlainTextResponse(_SIGN_IN, 403)
            root = str(request.scope.get("root_path", ""))
            headers = {"Set-Cookie": self.session.cookie(request), "Cache-Control": "no-store"}
            return RedirectResponse(f"{root}/", 303, headers=headers)
        if not await self._is_admitted(request):
            return PlainTextResponse(_SIGN_IN, 401)
        return Response(read_asset("index.html"), media_type="text/html", headers={"Cache-Control": "no-store"})

    async def _asset(self, request: "Request") -> "Response":
        from starlette.responses import Response

        name = str(request.scope["path"]).rpartition("/")[2]
        return Response(read_asset(name), media_type=ASSETS[name], headers={"Cache-Control": "no-cache"})

    async def _config(self, request: "Request") -> "Response":
        from starlette.responses import PlainTextResponse, Response

        if not await self._is_admitted(request):
            return PlainTextResponse(_SIGN_IN, 401)
        root = self.background.runner.team.root if self.can_write else ""
        config = StudioConfig(__version__, self.can_write, root)
        return Response(msgspec.json.encode(config), media_type="application/json")

    async def _export(self, request: "Request") -> "Response":
        from starlette.responses import PlainTextResponse, Response

        from ..api.inspection_endpoints import InspectionEndpoints
        from ..http.downloads import attachment_headers
        from ..http.guard import RequestGuard
        from ..http.http_errors import error_response
        from .export import export_page

        if not await self._is_admitted(request):
            return PlainTextResponse(_SIGN_IN, 401)
        guard = RequestGuard(self._schemes)
        endpoints = InspectionEndpoints(self.background, guard, 15.0, True)
        principal = Principal(sees_all=True)
        try:
            record = await endpoints.require_run(principal, request.path_params["id"])
            events = await self.background.runner.runs.events(record.run_id)
            exported = await endpoints.export(principal, record, events)
        except Exception as error:  # noqa: BLE001 - every failure becomes a response
            return error_response(request, error)
        page = await asyncio.to_thread(export_page, exported, redact="redact" in request.query_params)
        return Response(page, media_type="text/html", headers=attachment_headers(f"{exported.run.id}.html"))

    async def _is_admitted(self, request: "Request") -> bool:
        return await authenticate(request, self._schemes) is not None

    async def _accepts(self, token: str) -> bool:
        """Return whether a token in the URL is one of the configured ones that see all runs."""
        from starlette.requests import Request

        if not token.isascii():
            return False
        headers = [(b"authorization", f"Bearer {token}".encode())]
        request = Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers})
        return await authenticate(request, self.auth) is not None


class _ReadOnly:
    """ASGI middleware that refuses requests that change something."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            from ..http.http_errors import ServingError

            message = "Studio has no team; start it with one: baton studio MODULE:AGENT --store …"
            await ServingError(403, "read_only", message).response()(scope, receive, send)
            return
        await self._app(scope, receive, send)
