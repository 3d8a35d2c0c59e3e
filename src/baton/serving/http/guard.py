"""The door of an app: who may come in, and how much they may bring.

A door in front of an app that has none of its own.
"""

from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from ...errors import SetupError
from .auth import AuthLike, Principal, authenticate, refusal_of, to_auth_list
from .errors import ServingError, error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

T = TypeVar("T")

_LOCAL_NAMES = frozenset({"localhost"})


class RequestGuard:
    """Lets in who can say who they are; without `auth`, only those on this machine, unless `allow_anyone`."""

    def __init__(self, auth: AuthLike | None = None, *, allow_anyone: bool = False, max_body: int = 1 << 20) -> None:
        if max_body < 1:
            raise SetupError(f"max_body={max_body} would let nothing in; give a number of bytes")
        self.auth = to_auth_list(auth)
        self._allow_anyone = allow_anyone
        self._max_body = max_body

    async def admit(self, request: Request) -> Principal:
        """Who makes this request. Raises Problem if they may not."""
        if not self.auth:
            if not self._allow_anyone:
                _refuse_strangers(request)
            return Principal(sees_all=True)
        caller = await authenticate(request, self.auth)
        if caller is None:
            told, headers = refusal_of(self.auth)
            raise ServingError(401, "unauthorized", told, headers=headers)
        return caller

    async def body(self, request: Request, read: Callable[[bytes], T], *, default: T | None = None) -> T:
        """The body, read. With a `default` there need not be one. Raises Problem if it is not as it should be."""
        content = await self._content(request)
        if not content and default is not None:
            return default
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ServingError(415, "unsupported_media_type", "send JSON, with Content-Type: application/json")
        try:
            return read(content)
        except msgspec.ValidationError as error:
            raise ServingError(422, "invalid", f"the body does not fit: {error}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ServingError(400, "malformed_json", "the body is not JSON")

    async def _content(self, request: Request) -> bytes:
        too_much = ServingError(413, "too_large", f"the body has more than {self._max_body} bytes")
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > self._max_body:
            raise too_much
        content = bytearray()
        try:
            async for piece in request.stream():
                content += piece
                if len(content) > self._max_body:
                    raise too_much
        except ClientDisconnect:
            raise ServingError(400, "incomplete", "the body was cut off")
        return bytes(content)


def is_local(host: str) -> bool:
    """Whether this is the name or address of this machine as only itself can use it."""
    name = host.strip("[]").lower()
    if name in _LOCAL_NAMES:
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _refuse_strangers(request: Request) -> None:
    """Without auth everybody who gets in may do everything, so only this machine does.

    The name that was asked for must be this machine's too: a page elsewhere can have its own name lead here.
    """
    peer: Any = request.client
    asked_for = request.url.hostname or ""
    if (peer is not None and peer.host and not is_local(peer.host)) or not is_local(asked_for):
        raise ServingError(403, "forbidden", "without auth this server is for its own machine only")


_CALLER = "baton.caller"


class AuthMiddleware:
    """ASGI middleware that lets in whom a door admits; `principal_of` tells the app behind it who that is."""

    def __init__(self, app: "ASGIApp", door: RequestGuard) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "http":
            request = Request(scope)
            try:
                scope = {**scope, _CALLER: await self._door.admit(request)}
            except Exception as error:  # noqa: BLE001 - the edge of the program: here a failure becomes an answer
                await error_response(request, error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def principal_of(request: Request | None) -> Principal:
    """Who was let in with a request; where nobody is asked, or there are no requests, whoever runs the program."""
    known = None if request is None else request.scope.get(_CALLER)
    return known if isinstance(known, Principal) else Principal(sees_all=True)
