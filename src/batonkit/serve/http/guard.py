"""Request checks shared by all HTTP apps: authentication, loopback-only access, other sites, body size and type."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import SetupError
from .auth import AuthLike, Principal, authenticate, is_local, to_auth_list, unauthorized
from .http_errors import ServingError, error_response

T = TypeVar("T")
_Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

BODY_SECONDS = 30.0
MIN_BODY_RATE = 8 << 10
"""A body must arrive within `BODY_SECONDS`, plus a second for each `MIN_BODY_RATE` bytes that have arrived."""
_PRINCIPAL = "baton.principal"
_HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9.-]+)|\[(?P<address>[0-9A-Fa-f:.]+:[0-9A-Fa-f:.]*)\])(?::[0-9]{1,5})?")
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class RequestGuard:
    """Authentication and body checks for the requests of one app.

    Raises:
        SetupError: `max_body` is less than 1, or `auth` is invalid.
    """

    def __init__(
        self,
        auth: AuthLike | None = None,
        *,
        allow_anonymous: bool = False,
        max_body: int = 1 << 20,
        cors_origins: Sequence[str] = (),
    ) -> None:
        if max_body < 1:
            raise SetupError(f"max_body={max_body} would reject every body; pass a number of bytes")
        self.auth = to_auth_list(auth)
        self._allow_anonymous = allow_anonymous
        self._max_body = max_body
        self._origins = frozenset(cors_origins)
        # Where callers send their credentials themselves, a page of another site has none to send.
        self._checks_origin = not self.auth or any(scheme.is_ambient for scheme in self.auth)

    async def admit(self, request: Request) -> Principal:
        """Return the principal of a request.

        Raises:
            ServingError: 401 or 403 if the request is not admitted.
        """
        self.check_source(request)
        if not self.auth:
            return Principal(sees_all=True)
        principal = await authenticate(request, self.auth)
        if principal is None:
            message, headers = unauthorized(self.auth)
            raise ServingError(401, "unauthorized", message, headers=headers)
        return principal

    def check_source(self, request: Request) -> None:
        """Reject requests from other machines or other sites; `admit` does this too.

        Raises:
            ServingError: 403 if the app has no auth and the request is not local, or if a page of another site sent
                it and the browser may have added credentials.
        """
        if not self.auth and not self._allow_anonymous:
            _require_loopback(request)
        if request.method in _SAFE_METHODS or not self._checks_origin or not _is_cross_site(request):
            return
        origin = request.headers.get("origin", "")
        if origin not in self._origins and "*" not in self._origins:
            message = "requests of pages of other sites are refused; the server can allow an origin with cors_origins"
            raise ServingError(403, "cross_site", message)

    def protect(self, handle: _Endpoint) -> _Endpoint:
        """Return an endpoint that needs no authentication, with the checks of `check_source`."""

        async def checked(request: Request) -> Response:
            try:
                self.check_source(request)
                return await handle(request)
            except Exception as error:  # noqa: BLE001 - every failure becomes a response
                return error_response(request, error)

        return checked

    async def parse_body(self, request: Request, parse: Callable[[bytes], T], *, default: T | None = None) -> T:
        """Read and parse a JSON body.

        Raises:
            ServingError: The body is too large, is not JSON or does not match the schema.
        """
        content = await self.read_body(request)
        if not content and default is not None:
            return default
        if media_type(request) != "application/json":
            raise ServingError(415, "unsupported_media_type", "send JSON, with Content-Type: application/json")
        try:
            return parse(content)
        except msgspec.ValidationError as error:
            raise ServingError(422, "invalid", f"invalid body: {error}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ServingError(400, "malformed_json", "the body is not JSON")

    async def read_body(self, request: Request) -> bytes:
        """Read a body, but no more than `max_body` bytes of it, and only while it keeps arriving.

        Raises:
            ServingError: The body is too large, incomplete or too slow.
        """
        too_large = ServingError(413, "too_large", f"the body is larger than {self._max_body} bytes")
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > self._max_body:
            raise too_large
        content = bytearray()
        deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(deadline) as limit:
                async for chunk in request.stream():
                    content += chunk
                    if len(content) > self._max_body:
                        raise too_large
                    limit.reschedule(deadline + len(content) / MIN_BODY_RATE)
        except ClientDisconnect:
            raise ServingError(400, "incomplete", "the body is incomplete")
        except TimeoutError:
            message = "the body did not arrive in time; send all of it, and without pauses"
            raise ServingError(408, "timeout", message, headers={"Connection": "close"})
        return bytes(content)


def media_type(request: Request) -> str:
    """Return the media type of a request's body, in lower case and without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _require_loopback(request: Request) -> None:
    """Reject other machines, and Host headers that are no loopback name (DNS rebinding)."""
    peer: Any = request.client
    if (peer is not None and peer.host and not is_local(peer.host)) or not is_local(_host_name(request)):
        raise ServingError(403, "forbidden", "without auth, this server accepts requests from its own machine only")


def _host_name(request: Request) -> str:
    """Return the name in the Host header; "" if it is malformed, or not exactly one.

    Not `request.url`: Starlette puts the server's own address there if it cannot parse the header.
    """
    hosts = [value for name, value in request.scope["headers"] if name.lower() == b"host"]
    match = _HOST.fullmatch(hosts[0].strip(b" \t").decode("latin-1")) if len(hosts) == 1 else None
    return match["address"] or match["name"] if match else ""


def _is_cross_site(request: Request) -> bool:
    """Return whether a page of another origin sent a request; only browsers send the headers."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != request.headers.get("host", "")


class AuthMiddleware:
    """ASGI middleware that applies a `RequestGuard` to an app that has no checks of its own."""

    def __init__(self, app: ASGIApp, guard: RequestGuard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = {**scope, "headers": _strip_values(scope["headers"])}
        request = Request(scope, receive)
        try:
            scope = {**scope, _PRINCIPAL: await self._guard.admit(request)}
            if request.method == "POST":
                receive = _replay(await self._guard.read_body(request), receive)
        except Exception as error:  # noqa: BLE001 - every failure becomes a response
            await error_response(request, error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _strip_values(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Strip whitespace around header values, as RFC 9110 asks; httptools keeps some of it."""
    return [(name, value.strip(b" \t")) for name, value in headers]


def _replay(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


def get_principal(request: Request | None) -> Principal:
    """Return the principal that `AuthMiddleware` stored, else one that sees everything."""
    principal = None if request is None else request.scope.get(_PRINCIPAL)
    return principal if isinstance(principal, Principal) else Principal(sees_all=True)
