"""A connection to an MCP server: it opens a session when needed and replaces a lost one."""

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from typing import TypeAlias, TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_TIMEOUT
from pydantic import ValidationError

from mcp import ClientSession

from ..errors import SetupError, ToolError, ToolsUnavailableError, ToolTimeoutError
from ..tools import Tool
from .convert import is_repeatable
from .mcp_session import MCPSession, RequestAnswerer, Send, ServerSettings
from .transports import AuthorizationRequiredError, MCPSessionError, SessionFailure, logger

T = TypeVar("T")

ToolBuilder: TypeAlias = "Callable[[MCPConnection, Sequence[types.Tool]], tuple[Tool, ...]]"
"""Creates the tools for agents from those that a server lists."""
_MAX_PAGES = 1000


class MCPConnection:
    """A connection for one run, or for all runs while the application keeps it open.

    It may be used from any task of the event loop that created it.
    """

    def __init__(self, settings: ServerSettings, build_tools: "ToolBuilder") -> None:
        self.settings = settings
        self._label = settings.transport.label
        self._build_tools = build_tools
        self._session: MCPSession | None = None
        self._closing: list[MCPSession] = []
        self._open_lock = asyncio.Lock()
        self._attempts = 0
        self._failure: SessionFailure | None = None
        """The error of the last attempt to open a session."""
        self._list_lock = asyncio.Lock()
        self._listed: list[types.Tool] = []
        self._tools: tuple[Tool, ...] | None = None
        self._version = 0
        """Incremented when the server's tools may have changed."""
        self._listed_version = -1
        self._is_closed = False
        self._loop = asyncio.get_running_loop()

    async def tools(self) -> tuple[Tool, ...]:
        """Return the server's tools; the same tuple unless they have changed.

        Raises:
            ToolsUnavailableError: They could not be listed, and none are known from before.
            AuthorizationRequiredError: A user must authorize the client first.
        """
        self._check_loop()
        if self._tools is not None and self._listed_version == self._version:
            return self._tools
        attempts = self._attempts
        async with self._list_lock:
            if self._tools is not None and self._listed_version == self._version:
                return self._tools
            try:
                version, listed = await self._request(self._list_tools, may_repeat=True, attempts=attempts)
            except AuthorizationRequiredError:
                if self._tools is None:
                    raise
                return self._tools
            except (MCPSessionError, MCPError, ValidationError) as error:
                if self._tools is None:
                    raise ToolsUnavailableError(self._label, str(error)) from error
                # Calls fail on their own if the server stays unreachable.
                logger.warning("could not list the tools of %s, using the known ones: %s", self._label, error)
                return self._tools
            if self._tools is None or listed != self._listed:
                self._tools = self._build_tools(self, listed)
                self._listed = listed
            self._listed_version = version
            return self._tools

    async def _list_tools(self, session: ClientSession) -> tuple[int, list[types.Tool]]:
        # Read before listing: a change between two pages may be on neither of them.
        version = self._version
        cursor = None
        tools: list[types.Tool] = []
        for _ in range(_MAX_PAGES):
            page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        return version, tools

    async def call(self, tool: types.Tool, send: Send[T], *, answerer: RequestAnswerer, key: str) -> T:
        """Send a tool call and return its result.

        Raises:
            ToolError: The call failed; the message says whether the server may have executed it.
            AuthorizationRequiredError: A user must authorize the client first.
        """
        self._check_loop()
        try:
            return await self._request(send, may_repeat=is_repeatable(tool), answerer=answerer, key=key)
        except MCPSessionError as error:
            if error.was_sent:
                raise unknown_outcome(tool, str(error)) from error
            raise ToolError(f"tool `{tool.name}` was not called: {error}", tool=tool.name) from error
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT and self.settings.timeout is not None:
                raise ToolTimeoutError(tool.name, self.settings.timeout) from error
            if error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
                self._mark_changed()
            raise ToolError(f"tool `{tool.name}` failed: {error.message}", tool=tool.name) from error
        except (RuntimeError, ValidationError) as error:
            # The SDK raises these for a result that does not match the tool's output schema.
            raise ToolError(f"tool `{tool.name}` returned an invalid result: {error}", tool=tool.name) from error

    async def _request(
        self,
        send: Send[T],
        *,
        may_repeat: bool,
        answerer: RequestAnswerer | None = None,
        key: str = "",
        attempts: int | None = None,
    ) -> T:
        """Send a request; send it once more if the session was lost and repeating is safe."""
        attempts = self._attempts if attempts is None else attempts
        is_repeated = False
        while True:
            session = await self._get_session(attempts)
            try:
                return await session.request(send, answerer=answerer, key=key)
            except MCPSessionError as error:
                self._drop(session)
                if is_repeated or (error.was_sent and not may_repeat):
                    raise
                logger.info("%s; retrying once", error)
            attempts = self._attempts
            is_repeated = True

    async def _get_session(self, attempts: int) -> MCPSession:
        """Return the open session; `attempts` is the count when the caller started waiting."""
        async with self._open_lock:
            session = self._session
            if session is not None and not session.is_lost:
                return session
            if self._failure is not None and self._attempts > attempts:
                # Another task has just tried: waiting tasks must not time out one after the other.
                raise copy(self._failure)
            if self._is_closed:
                raise MCPSessionError(f"{self._label} is closed")
            if session is not None:
                self._drop(session)
            self._attempts += 1
            self._failure = None
            try:
                self._session = await self._open_session()
            except (MCPSessionError, AuthorizationRequiredError) as failure:
                self._failure = failure
                raise
            return self._session

    async def _open_session(self) -> MCPSession:
        session = MCPSession(self.settings, on_change=self._mark_changed)
        # Registered before it is opened, so that `close` reaches it.
        self._closing = [*[each for each in self._closing if not each.is_closed], session]
        await session.open()
        self._closing.remove(session)
        return session

    def _drop(self, session: MCPSession) -> None:
        if self._session is session:
            self._session = None
            self._mark_changed()
            self._closing.append(session)
            session.retire()

    async def close(self) -> None:
        """Close all sessions; calls in flight fail."""
        self._is_closed = True
        session = self._session
        self._session = None
        sessions = [*self._closing, *([session] if session is not None else [])]
        if sessions:
            await asyncio.gather(*[each.close() for each in sessions])

    def has_suspended_call(self, key: str = "") -> bool:
        """Return whether the call with this key, or any call, waits for an answer."""
        session = self._session
        return session is not None and not session.is_lost and session.calls.has_suspended(key)

    @property
    def is_in_running_loop(self) -> bool:
        """True if the connection belongs to the running event loop."""
        return asyncio.get_running_loop() is self._loop

    def _mark_changed(self) -> None:
        self._version += 1

    def _check_loop(self) -> None:
        if not self.is_in_running_loop:
            raise SetupError(f"{self._label} was opened in another event loop; open it where the agents run")


def unknown_outcome(tool: types.Tool, reason: str) -> ToolError:
    """Return the error of a call that the server may have executed."""
    advice = "because the server does not declare it idempotent; find out what happened before calling it again"
    message = f"it is unknown whether `{tool.name}` was executed: {reason}. It is not retried, {advice}"
    return ToolError(message, tool=tool.name)
