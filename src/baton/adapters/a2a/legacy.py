"""Version 0.3 beside 1.0: the SDK translates, and the desk answers both."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from a2a.auth.user import UnauthenticatedUser, User
from a2a.server.context import ServerCallContext
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.utils.errors import A2AError

from .desk import Desk
from .entrance import Entrance, Refused

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

_USER = "baton.a2a.user"


class _WithUser(ServerCallContextBuilder):
    """Takes over who the entrance has found to be calling."""

    def build(self, request: "Request") -> ServerCallContext:
        """The context of a call."""
        user: User = request.scope.get(_USER) or UnauthenticatedUser()
        return ServerCallContext(user=user, state={"headers": dict(request.headers)})


class Legacy:
    """The two doors for callers who speak 0.3."""

    def __init__(self, desk: Desk, entrance: Entrance) -> None:
        from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter
        from a2a.compat.v0_3.rest_adapter import REST03Adapter

        self._entrance = entrance
        self._jsonrpc = JSONRPC03Adapter(desk, _WithUser())
        self._rest = REST03Adapter(desk, _WithUser())

    def speaks(self, method: str, version: str) -> bool:
        """Whether a call is one of 0.3."""
        return version.startswith("0.") and self._jsonrpc.supports_method(method)

    async def answer(
        self, request: "Request", id: str | int | None, method: str, call: dict[str, Any], user: User
    ) -> "Response":
        """The response to a call of 0.3."""
        request.scope[_USER] = user
        adapter: Any = self._jsonrpc
        return await adapter.handle_request(id, method, call, request)

    def routes(self) -> "list[BaseRoute]":
        """The addresses of 0.3, for an app of Starlette."""
        from starlette.routing import Route

        return [
            Route(path, self._admitting(endpoint), methods=[method])
            for (path, method), endpoint in self._rest.routes().items()
        ]

    def _admitting(self, endpoint: Callable[["Request"], Any]) -> "Callable[[Request], Awaitable[Response]]":
        async def answer(request: "Request") -> "Response":
            from .rest import refusal

            try:
                request.scope[_USER] = (await self._entrance.admitted(request)).user
                return await endpoint(request)
            except Refused as refused:
                return refusal(refused.error, status=refused.status, headers=refused.headers)
            except A2AError as error:
                return refusal(error)

        return answer
