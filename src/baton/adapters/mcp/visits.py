"""A user is sent to a page, so that a server can be used in their name."""

from typing import Any

from ...context import RunContext
from ...errors import ToolsUnavailableError
from .auth import AuthorizationCode
from .gone import AuthorizationRequiredError
from .oauth import AuthorizationCodeFlow, ConcurrentAuth
from .ways import MCPTransport, StreamableHTTPTransport

AUTHORIZATION = "authorization"
"""The kind of question that asks a user to visit a page."""

_ANSWER: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "description": "The address that the user was sent back to, with code and state in it."},
        {"type": "object", "required": ["state"], "description": "Its fields: code, state, and iss if it is there."},
        {"type": "boolean", "description": "False: the user gives no leave. True: it was given elsewhere."},
    ]
}

_MOST_VISITS = 3


class UserAuthorization:
    """The visits that one thing in a run waits for: a server's tools, or a call."""

    def __init__(self, way: MCPTransport, ctx: RunContext[Any] | None) -> None:
        """Without a run, only a function of the application can send a user anywhere."""
        self._way = way
        self._made = 0
        # A place of its own: whatever else is asked here keeps its number, whether or not this has to be asked.
        self._ctx = None if ctx is None else RunContext(ctx._run, ctx._origin, f"{ctx._scope}/visit", ctx.tool_call)

    async def made(self, needed: AuthorizationRequiredError) -> None:
        """Return when the user has been there. Raises Suspend until then, ToolsUnavailableError if they do not want to."""
        way = self._way
        assert isinstance(way, StreamableHTTPTransport)
        flow = way.flow
        assert isinstance(flow, ConcurrentAuth)
        assert isinstance(flow.provider, AuthorizationCodeFlow)
        visit = way.auth.on_authorize if isinstance(way.auth, AuthorizationCode) else None
        if visit is not None:
            self._made += 1
            if self._made > _MOST_VISITS:
                raise ToolsUnavailableError(
                    way.label, f"leave was given {_MOST_VISITS} times, and it still is not enough"
                )
            if not await flow.provider.came_back(await visit(needed.url)):
                raise ToolsUnavailableError(way.label, "what `visit` gave is no answer to the page that it was given")
            return
        if self._ctx is None:
            raise ToolsUnavailableError(way.label, str(needed)) from needed
        while True:
            answer = await self._asked(self._ctx, needed)
            if answer is False:
                raise ToolsUnavailableError(way.label, "the user gave no leave to use it")
            # An answer to a page from before a restart, or to one that has been answered, is of no use any more.
            if answer is True or await flow.provider.came_back(answer):
                return

    async def _asked(self, ctx: RunContext[Any], needed: AuthorizationRequiredError) -> Any:
        question = {
            "kind": AUTHORIZATION,
            "server": needed.label,
            "message": f"Give leave to use {needed.label}, then answer with the address that you are sent back to.",
            "url": needed.url,
        }
        return await ctx.interrupt(question, schema=_ANSWER)
