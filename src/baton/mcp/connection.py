"""A server as long as somebody uses it: its session is opened when needed, and again when it was lost."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_TIMEOUT
from pydantic import ValidationError

from mcp import ClientSession

from ..errors import SetupError, ToolError, ToolsUnavailableError, ToolTimeoutError
from ..tools import Tool
from .in_flight import RequestAnswerer
from .session import MCPSession, Mode
from .transports import AuthorizationRequiredError, MCPSessionError, MCPTransport, logger

T = TypeVar("T")

_MOST_PAGES = 1000


class MCPConnection:
    """One server for one run, or for all runs while the application keeps it open. May be used from any task."""

    def __init__(
        self,
        way: MCPTransport,
        make: "Callable[[MCPConnection, Sequence[types.Tool]], tuple[Tool, ...]]",
        *,
        mode: Mode,
        roots: tuple[types.Root, ...],
        sampling: bool,
        startup: float,
        timeout: float | None,
    ) -> None:
        self._way = way
        self._make = make
        self._mode: Mode = mode
        self._roots = roots
        self._sampling = sampling
        self._startup = startup
        self._timeout = timeout
        self._session: MCPSession | None = None
        self._dropped: list[MCPSession] = []
        self._opening = asyncio.Lock()
        self._attempts = 0
        self._failure: MCPSessionError | None = None
        """Why the last attempt to open a session failed."""
        self._listing = asyncio.Lock()
        self._listed: list[types.Tool] = []
        self._tools: tuple[Tool, ...] | None = None
        self._changes = 0
        """How often the server's tools may have changed."""
        self._listed_at = -1
        self._is_closed = False
        self._loop = asyncio.get_running_loop()

    async def tools(self) -> tuple[Tool, ...]:
        """The server's tools; the same object unless they have changed.

        Raises ToolsUnavailableError if it never had any, AuthorizationRequiredError if a user must give leave first.
        """
        self._check_loop()
        if self._tools is not None and self._listed_at == self._changes:
            return self._tools
        attempts = self._attempts
        async with self._listing:
            if self._tools is not None and self._listed_at == self._changes:
                return self._tools
            try:
                known, listed = await self._request(self._list, may_repeat=True, attempts=attempts)
            except AuthorizationRequiredError:
                if self._tools is None:
                    raise
                return self._tools
            except (MCPSessionError, MCPError, ValidationError) as error:
                if self._tools is None:
                    raise ToolsUnavailableError(self._way.label, str(error)) from error
                # Calls will say so if the server stays away; what it offers is known.
                logger.warning("%s cannot list its tools, those known are used: %s", self._way.label, error)
                return self._tools
            if self._tools is None or listed != self._listed:
                self._listed, self._tools = listed, self._make(self, listed)
            self._listed_at = known
            return self._tools

    async def _list(self, session: ClientSession) -> tuple[int, list[types.Tool]]:
        # Counted before: what changes while the pages come in may be on none of them.
        return self._changes, await _all_tools(session)

    async def call(
        self,
        tool: types.Tool,
        send: Callable[[ClientSession], Awaitable[T]],
        *,
        may_repeat: bool,
        answering: RequestAnswerer,
        place: str,
    ) -> T:
        """What a call came to. Raises ToolError if the server fails, with what is known of the call; AuthorizationRequiredError if a
        user must give leave first.

        `place` is where in which run it is made; if a call of that place waits for an answer, it goes on.
        """
        self._check_loop()
        try:
            return await self._request(send, may_repeat=may_repeat, answering=answering, place=place)
        except AuthorizationRequiredError:
            raise
        except MCPSessionError as gone:
            raise ToolError(_lost_call(tool.name, gone), tool=tool.name) from gone
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT and self._timeout is not None:
                raise ToolTimeoutError(tool.name, self._timeout) from error
            if error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
                self._has_changed()
            raise ToolError(f"tool `{tool.name}` failed: {error.message}", tool=tool.name) from error
        except (RuntimeError, ValidationError) as error:
            # The SDK's words for a result that is not what the server itself promised.
            raise ToolError(f"tool `{tool.name}` gave an invalid result: {error}", tool=tool.name) from error

    async def _request(
        self,
        send: Callable[[ClientSession], Awaitable[T]],
        *,
        may_repeat: bool,
        answering: RequestAnswerer | None = None,
        place: str = "",
        attempts: int | None = None,
    ) -> T:
        """Ask; ask once more if the session was lost and that can do no harm."""
        session = await self._opened(self._attempts if attempts is None else attempts)
        try:
            return await session.request(send, answering=answering, place=place)
        except AuthorizationRequiredError:
            raise
        except MCPSessionError as gone:
            self._drop(session)
            if gone.was_sent and not may_repeat:
                raise
            logger.info("%s; trying once more", gone)
        session = await self._opened(self._attempts)
        try:
            return await session.request(send, answering=answering, place=place)
        except MCPSessionError:
            self._drop(session)
            raise

    async def _opened(self, attempts: int) -> MCPSession:
        """The session. `attempts` is how many had been made to open one when it was first wanted."""
        async with self._opening:
            session = self._session
            if session is not None and not session.is_lost:
                return session
            if self._failure is not None and self._attempts > attempts:
                # Somebody else has tried meanwhile: many who wait should not wait one after the other.
                raise self._failure.again()
            if self._is_closed:
                raise MCPSessionError(f"{self._way.label} has been closed here", was_sent=False)
            if session is not None:
                self._drop(session)
            self._attempts += 1
            self._failure = None
            try:
                self._session = await self._new_session()
            except MCPSessionError as failure:
                self._failure = failure
                raise
            return self._session

    async def _new_session(self) -> MCPSession:
        session = MCPSession(
            self._way, on_change=self._has_changed, mode=self._mode, roots=self._roots, sampling=self._sampling
        )
        # Among those to be closed from the first moment on, whatever becomes of the opening.
        self._dropped = [*[other for other in self._dropped if not other.is_over], session]
        await session.open(self._startup)
        self._dropped.remove(session)
        return session

    def _drop(self, session: MCPSession) -> None:
        if self._session is session:
            self._session = None
            self._has_changed()
            self._dropped.append(session)
            session.retire()

    async def close(self) -> None:
        """Close all that is open; a call that is still on its way gets an error."""
        self._is_closed = True
        session, self._session = self._session, None
        sessions = [*self._dropped, *([session] if session is not None else [])]
        if sessions:
            await asyncio.gather(*[each.close() for each in sessions])

    def is_waiting(self, place: str = "") -> bool:
        """Whether a call of this place, or any call, waits for an answer from outside, and the server for it."""
        session = self._session
        return session is not None and not session.is_lost and session.has_parked(place)

    @property
    def is_of_this_loop(self) -> bool:
        """Whether it was opened in the event loop that runs now."""
        return asyncio.get_running_loop() is self._loop

    def _has_changed(self) -> None:
        self._changes += 1

    def _check_loop(self) -> None:
        if not self.is_of_this_loop:
            raise SetupError(f"{self._way.label} was opened in another event loop; open it in the one that runs agents")


async def _all_tools(session: ClientSession) -> list[types.Tool]:
    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return tools


def _lost_call(tool: str, gone: MCPSessionError) -> str:
    if not gone.was_sent:
        return f"tool `{tool}` was not called: {gone}"
    return (
        f"it is unknown whether `{tool}` was carried out: {gone}. It is not called again by itself, because its server "
        "does not say that this would do no harm; find out first what happened"
    )
