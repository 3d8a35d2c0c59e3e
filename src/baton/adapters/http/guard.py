"""A door in front of an app that has none of its own."""

from typing import TYPE_CHECKING

from starlette.requests import Request

from .callers import Principal
from .door import RequestGuard
from .problems import error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

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
